"""Structured logs: to the journal by its own protocol, as JSON lines, or for a person at a terminal.

Everything goes one way, ours and the libraries' alike: context, level, time, traceback, redaction, renderer.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from typing import Any, TextIO

import structlog

from outlast.daemon.ops import journal
from outlast.daemon.ops.redact import redact

FORMATS = ("auto", "json", "console", "journal")
LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}


def configure(
    level: str = "info",
    log_format: str = "auto",
    *,
    stream: TextIO | None = None,
    env: Mapping[str, str] | None = None,
    journal_socket: str = journal.SOCKET,
) -> str:
    """Set up logging for the process and return the format in use (never ``auto``). May be called again.

    ``auto`` is the journal if ``stream`` (default: stderr) leads to it, the console on a terminal, else JSON.
    The standard library's loggers come in from WARNING on, ``outlast`` and those below it from ``level`` on.
    """
    stream = sys.stderr if stream is None else stream
    env = os.environ if env is None else env
    chosen = _detect(stream, env) if log_format == "auto" else log_format
    structlog.configure(
        processors=_processors(chosen, stream, env),
        wrapper_class=structlog.make_filtering_bound_logger(LEVELS[level]),
        logger_factory=_factory(chosen, stream, journal_socket),
        cache_logger_on_first_use=False,
    )
    _route_standard_library(LEVELS[level])
    return chosen


def _detect(stream: TextIO, env: Mapping[str, str]) -> str:
    try:
        descriptor = stream.fileno()
    except (OSError, ValueError):
        return "json"
    if journal.is_journal(env, descriptor):
        return "journal"
    return "console" if os.isatty(descriptor) else "json"


def _processors(chosen: str, stream: TextIO, env: Mapping[str, str]) -> list[structlog.typing.Processor]:
    shared: list[structlog.typing.Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.processors.add_log_level,
        structlog.processors.format_exc_info,
    ]
    if chosen == "journal":  # which keeps its own time
        return [*shared, redact, journal.whole_event]
    if chosen == "json":
        stamp = structlog.processors.TimeStamper(fmt="iso", utc=True)
        return [*shared, stamp, redact, structlog.processors.JSONRenderer()]
    clock = structlog.processors.TimeStamper(fmt="%H:%M:%S", utc=False)
    colors = stream.isatty() and not env.get("NO_COLOR")
    console = structlog.dev.ConsoleRenderer(
        colors=colors, pad_event_to=0, exception_formatter=structlog.dev.plain_traceback
    )
    return [*shared, clock, redact, console]


def _factory(chosen: str, stream: TextIO, journal_socket: str) -> Any:
    if chosen != "journal":
        return structlog.WriteLoggerFactory(stream)
    sink = journal.JournalLogger(journal_socket)
    return lambda *_: sink


class StandardLibraryHandler(logging.Handler):
    """Hands records of the standard library's loggers to structlog."""

    def emit(self, record: logging.LogRecord) -> None:
        """Log the record with the name of its logger."""
        try:
            message = record.getMessage()
        except (TypeError, ValueError, KeyError):
            message = f"{record.msg!s} (its arguments do not fit)"
        extra = {"exc_info": record.exc_info} if record.exc_info else {}
        structlog.get_logger().log(_standard(record.levelno), message, logger=record.name, **extra)


def _standard(level: int) -> int:
    """The nearest of the five levels below; libraries make up others."""
    return max(
        (known for known in (*LEVELS.values(), logging.CRITICAL) if known <= level), default=logging.DEBUG
    )


def _route_standard_library(level: int) -> None:
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, StandardLibraryHandler)]:
        root.removeHandler(handler)
    root.addHandler(StandardLibraryHandler())
    root.setLevel(logging.WARNING)
    logging.getLogger("outlast").setLevel(level)
