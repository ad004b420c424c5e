"""What ``history merge``, ``import`` and ``share`` share: where to, how far it is, what went wrong."""

from __future__ import annotations

import argparse
import contextlib
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from outlast.daemon.ops.exit import ExitCode

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from outlast.daemon.fleet.load import Found
    from outlast.daemon.fleet.telling import Tell


class WrongError(Exception):
    """The words of the command do not fit together. The text says why and what to do."""


def add_into(parser: argparse.ArgumentParser) -> None:
    """Where to merge into."""
    parser.add_argument(
        "--into",
        required=True,
        metavar="DEST",
        help="the file to add to, or with --parquet the folder; or a URL (s3://, gs://, az://) of Parquet",
    )
    parser.add_argument(
        "--parquet", action="store_true", help="fill DEST with Parquet, by provider and month"
    )
    parser.add_argument("--json", action="store_true", help="print one JSON object")


def fill(
    args: argparse.Namespace, found: Found, sources: Sequence[str], now: float, who: str, tell: Tell
) -> int:
    """Add what was found to the destination and say how much was new."""
    from outlast.daemon.fleet import filling

    added = filling.fill(args.into, found, now, parquet=args.parquet, tell=tell)
    notes = list(dict.fromkeys(found.notes))
    if args.json:
        body = {"format": 1, "into": args.into, "sources": list(sources), "added": added, "notes": notes}
        print(json.dumps(body))
        return ExitCode.DONE
    for note in notes:
        print(f"{who}: {plain(note)}", file=sys.stderr)
    rows = f"{added} row{'s' if added != 1 else ''}"
    print(f"{rows} added to {plain(args.into)}" if added else f"nothing new: {plain(args.into)} has it all")
    return ExitCode.DONE


@contextlib.contextmanager
def progress() -> Iterator[Tell]:
    """Say on a terminal how far it is; nothing elsewhere."""
    from outlast.daemon.fleet.telling import nothing

    if not sys.stderr.isatty():
        yield nothing
        return
    from rich.console import Console

    with Console(stderr=True).status("reading …") as status:

        def tell(what: str, done: int, of: int) -> None:
            status.update(f"{what} … {done} of {of}" if of > 1 else f"{what} …")

        yield tell


def guarded(who: str, work: Callable[[Tell], int]) -> int:
    """Do it; what goes wrong is said on standard error, and the exit status tells it."""
    from outlast.daemon.fleet.database import MergeError
    from outlast.daemon.fleet.faults import ImportFaultError
    from outlast.daemon.history.reading import UnreadableError

    try:
        with progress() as tell:
            return work(tell)
    except WrongError as exc:
        _say(who, str(exc))
        return ExitCode.USAGE
    except (UnreadableError, ImportFaultError, MergeError) as exc:
        _say(who, str(exc))
    except OSError as exc:
        what = exc.filename or "a file"
        _say(who, f"{what}: {exc.strerror or exc}. Run this as a user who may read and write there.")
    return ExitCode.FAILED


def count_imported(file: Path) -> int:
    """How many spells of a readable history come from other programs."""
    from outlast.daemon.history.schema import read_only

    with contextlib.closing(read_only(file)) as db:
        there = db.execute("SELECT 1 FROM sqlite_schema WHERE name = 'imported'").fetchone()
        return int(db.execute("SELECT count(*) FROM imported").fetchone()[0]) if there else 0


def not_our_own(into: str) -> None:
    """Refuse the daemon's file: all that is in it goes to the peer as this node's. Raises WrongError."""
    from outlast.daemon.cli.history import _own_file as own_file

    if Path(into).resolve() == own_file().resolve():
        raise WrongError(
            f"{into} is this node's own history, which the daemon writes and sends to its peer."
            " Merge into another file; every reading command takes it."
        )


def plain(text: str) -> str:
    """Text from outside without control characters."""
    from outlast.daemon.fleet.faults import shown

    return shown(text, 600)


def _say(who: str, text: str) -> None:
    for line in text.splitlines():
        print(f"{who}: {plain(line)}", file=sys.stderr)
