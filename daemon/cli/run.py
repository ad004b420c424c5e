"""``outlast run``: the daemon in the foreground."""

from __future__ import annotations

import argparse
import asyncio
import faulthandler
import os
import sys
from pathlib import Path

from outlast.daemon.cli.config import DEFAULT_FILE, config_file
from outlast.daemon.ops.exit import ExitCode

_EXAMPLES = """\
examples:
  outlast run                              with /etc/outlast/outlast.yaml
  outlast run -c ./outlast.yaml            with another file

It stays in the foreground, notifies systemd where systemd started it, and ends on SIGTERM or SIGINT.
SIGHUP checks the configuration file.

exit status: 0 stopped, 1 cannot serve (the message says why), 78 bad configuration
"""


def add_parser(subparsers: argparse._SubParsersAction[argparse.ArgumentParser]) -> None:
    """Register ``run``."""
    parser = subparsers.add_parser(
        "run",
        help="run the daemon in the foreground",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-c", "--config", type=Path, help=f"default: $OUTLAST_CONFIG or {DEFAULT_FILE}")
    parser.set_defaults(run=run)


def run(args: argparse.Namespace) -> int:
    """Run until stopped. Returns the exit code."""
    # structlog loads rich for pretty tracebacks wherever it is installed: 10 MB that a daemon never uses.
    sys.modules.setdefault("rich", None)  # type: ignore[arg-type]  # None in place of a module is how an import is refused
    from outlast.daemon.config import ConfigError, load
    from outlast.daemon.core.app import Daemon
    from outlast.daemon.ops.logs import configure
    from outlast.providers.base import SystemClock

    faulthandler.enable()
    file = config_file(args.config)
    try:
        settings = load(file)
    except ConfigError as exc:
        print(exc, file=sys.stderr)
        return ExitCode.BAD_CONFIG
    configure(settings.log.level, settings.log.format)
    try:
        settings.node.state.mkdir(parents=True, exist_ok=True)
        settings.node.runtime.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        print(
            f"outlast: cannot make {exc.filename}: {exc.strerror}; check node.state and node.runtime",
            file=sys.stderr,
        )
        return ExitCode.FAILED
    return asyncio.run(Daemon(settings, file, SystemClock(), _boot_id(), os.environ).run())


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return "unknown"
