"""From a file to settings, or to every fault in it at once."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator, Mapping
from pathlib import Path

from pydantic import ValidationError

from outlast.daemon.config import checks
from outlast.daemon.config.explain import explain
from outlast.daemon.config.model import Settings
from outlast.daemon.config.problem import ConfigError, Fault, Loc, Problem
from outlast.daemon.config.reader import MAX_BYTES, Document, YamlError, read
from outlast.daemon.config.values import Context

_EMPTY = Fault((), "says nothing; the least is a job: jobs: [{name: tune, checkpoints: /data/checkpoints}]")


def load(path: Path, *, env: Mapping[str, str] | None = None, assume_credentials: bool = False) -> Settings:
    """Read and check a configuration file, and the keys and folders that it names.

    ``env`` (default: the process's) tells where systemd credentials are; with ``assume_credentials`` they
    may be out of reach, as they are outside the unit. Raises ConfigError with every fault. Blocks on files.
    """
    folder = (os.environ if env is None else env).get("CREDENTIALS_DIRECTORY")
    context = Context(Path(folder) if folder else None, assume_credentials)
    try:
        document = read(_text(path))
    except YamlError as exc:
        raise ConfigError(path, (exc.problem,)) from exc
    settings, faults = _judge(document, context)
    if settings is None or faults:
        told = _first_of_each(faults)
        raise ConfigError(path, tuple(document.positions.problem(fault) for fault in told))
    return settings


def _judge(document: Document, context: Context) -> tuple[Settings | None, list[Fault]]:
    if document.data is None:
        return None, [_EMPTY]
    settings: Settings | None = None
    faults = list(document.faults)
    try:
        settings = Settings.model_validate(document.data, context=context)
    except ValidationError as exc:
        faults += explain(exc)
    if isinstance(document.data, dict):
        faults += checks.check(document.data)
    return settings, faults


def _first_of_each(faults: list[Fault]) -> Iterator[Fault]:
    """One fault a place: what the reader refused needs no second opinion, nor does anything inside it."""
    told: set[Loc] = set()
    for fault in faults:
        around = {fault.loc[:length] for length in range(1, len(fault.loc) + 1)}
        if fault.at is not None:
            yield fault
        elif told.isdisjoint(around):
            told.add(fault.loc)
            yield fault


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise _whole(path, "is not a file")
            raw = file.read(MAX_BYTES + 1)
    except FileNotFoundError:
        raise _whole(path, "does not exist; write one, or name another in $OUTLAST_CONFIG") from None
    except (OSError, ValueError) as exc:
        reason = exc.strerror if isinstance(exc, OSError) else "impossible path"
        raise _whole(path, f"cannot be read: {reason}") from None
    if len(raw) > MAX_BYTES:
        raise _whole(path, f"is larger than {MAX_BYTES // 1024} KiB, so it is no configuration of Outlast")
    try:
        return raw.decode("utf-8-sig")
    except UnicodeDecodeError as exc:
        line = raw.count(b"\n", 0, exc.start) + 1
        column = exc.start - (raw.rfind(b"\n", 0, exc.start) + 1) + 1
        raise ConfigError(path, (Problem(line, column, "", "is not UTF-8 text"),)) from None


def _whole(path: Path, message: str) -> ConfigError:
    return ConfigError(path, (Problem(0, 0, "", message),))
