"""Recording a launch attempt from outside the daemon, into its file or one of its own."""

from __future__ import annotations

import contextlib
import sqlite3
from pathlib import Path

from outlast.daemon.history import schema
from outlast.daemon.history.ledger import put_launch
from outlast.daemon.history.rows import LaunchRow


class NotRecordedError(Exception):
    """The attempt is not on the disk. The text says what, why and what to do."""


def record(path: Path, row: LaunchRow, *, make: bool) -> None:
    """Write one attempt durably; ``make`` the file if there is none. The daemon may have it open.

    An unreadable file is left as it is. Raises NotRecordedError.
    """
    if not make and not path.is_file():
        raise NotRecordedError(
            f"There is no history at {path}. It is made by 'outlast run'; name another file with --db."
        )
    try:
        with contextlib.closing(schema.connect(path)) as db:
            db.execute("BEGIN IMMEDIATE")
            put_launch(db, row)
            db.execute("COMMIT")
    except schema.NotOursError as exc:
        raise NotRecordedError(f"{path} is no history: {exc}. Name another file with --db.") from exc
    except sqlite3.OperationalError as exc:
        why = f"{path} cannot be written: {exc}. Run this as the daemon's user or as root."
        raise NotRecordedError(why) from exc
    except (sqlite3.Error, OSError) as exc:
        raise NotRecordedError(f"{path} cannot be used: {exc}. Name another file with --db.") from exc
