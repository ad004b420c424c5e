"""The command line. Each command is a module that is imported only when it is the one asked for."""

from __future__ import annotations

import argparse
import importlib
import sys
from collections.abc import Sequence

from outlast import __version__

# Command to (module, what the top-level help says). `receive` must start fast: sshd starts one a channel.
COMMANDS = {
    "run": ("outlast.daemon.cli.run", "run the daemon in the foreground"),
    "status": ("outlast.daemon.cli.status", "show what the daemon sees, has decided and why"),
    "checkpoint": ("outlast.daemon.cli.ask", "save and commit a checkpoint now"),
    "takeover": ("outlast.daemon.cli.ask", "make this standby the primary"),
    "restore": ("outlast.daemon.cli.restore", "fetch the newest checkpoint from wherever it is"),
    "verify": ("outlast.daemon.cli.verify", "check a checkpoint, or a folder of them, file by file"),
    "history": ("outlast.daemon.cli.history", "what has happened: spells, interruptions, the timeline"),
    "rates": ("outlast.daemon.cli.rates", "how often each pool is taken back, with ranges and verdicts"),
    "advise": ("outlast.daemon.cli.advise", "where and when to run a job, how often to save, at what cost"),
    "report": ("outlast.daemon.cli.report", "what is known of each pool, as text or one HTML page"),
    "plan": ("outlast.daemon.cli.plan", "on paper: what can be saved in a notice, and how often to save"),
    "prices": ("outlast.daemon.cli.prices", "prices and risk figures as the providers publish them"),
    "config": ("outlast.daemon.cli.config", "check a configuration file"),
    "drill": (
        "outlast.simulations.drill.cli",
        "rehearse an interruption here, with real training",
    ),
    "simulate": ("outlast.simulations.simulate", "a provider's metadata endpoint, scripted"),
    "receive": ("outlast.daemon.ship.receive", "take a peer's checkpoints (sshd starts it)"),
}

# The extra that brings a module which not every command needs; all others come with `daemon`.
EXTRAS = {
    "duckdb": "fleet",
    "fsspec": "fleet",
    "jinja2": "report",
    "markupsafe": "report",
    "matplotlib": "report",
    "numpy": "report",
    "obstore": "fleet",
    "scipy": "report",
}

EXAMPLES = """\
examples:
  outlast drill                       rehearse an interruption here, end to end
  outlast config check                is /etc/outlast/outlast.yaml right?
  outlast run                         protect this node's jobs
  outlast status                      what is going on, and why
  outlast verify /data/checkpoints    which checkpoints are whole?

Each command has its own --help with examples.
"""


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command. Returns its exit code; 2 for wrong usage, 130 when interrupted."""
    words = list(sys.argv[1:] if argv is None else argv)
    parser = _parser(words[0] if words else "")
    args = parser.parse_args(words)
    if not hasattr(args, "run"):
        parser.print_help()
        return 2
    try:
        return int(args.run(args))
    except ModuleNotFoundError as exc:
        raise _lacking(words[0], exc) from exc
    except KeyboardInterrupt:
        return 130
    except BrokenPipeError:
        # The reader went away (`| head`): nothing is left to say, and Python must not try to.
        sys.stderr.close()
        return 1


def _parser(command: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="outlast",
        description="Training that outlasts the spot instance it runs on.",
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"outlast {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND")
    if command in COMMANDS:
        _register(subparsers, command)
    else:
        for name, (_, text) in COMMANDS.items():
            subparsers.add_parser(name, help=text)
    return parser


def _register(subparsers: argparse._SubParsersAction[argparse.ArgumentParser], command: str) -> None:
    module, _ = COMMANDS[command]
    try:
        loaded = importlib.import_module(module)
    except ModuleNotFoundError as exc:
        raise _lacking(command, exc) from exc
    loaded.add_parser(subparsers)


def _lacking(command: str, exc: ModuleNotFoundError) -> BaseException:
    """How to install what a command lacks; the error itself where a module of ours is missing."""
    if not exc.name or exc.name.startswith("outlast"):
        return exc
    more = "deepspeed" if command == "drill" else EXTRAS.get(exc.name.partition(".")[0], "")
    extras = f"daemon,{more}" if more else "daemon"
    message = f"outlast {command} needs {exc.name}, which is not installed: pip install 'outlast[{extras}]'"
    return SystemExit(f"outlast: {message}")


if __name__ == "__main__":
    sys.exit(main())
