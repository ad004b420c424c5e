"""The daemon that sits beside the trainer carries no statistics, plots or cloud SDKs."""

from __future__ import annotations

import subprocess
import sys

HEAVY = ("numpy", "scipy", "duckdb", "matplotlib", "jinja2", "obstore", "boto3", "google")


def test_the_daemon_loads_none_of_what_the_report_needs() -> None:
    """Everything that `outlast run` imports, in a fresh process."""
    script = (
        "import sys, outlast.daemon.core.app, outlast.daemon.cli.run;"
        f"heavy = {set(HEAVY)!r} & {{name.split('.')[0] for name in sys.modules}};"
        "sys.exit(repr(heavy) if heavy else 0)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
