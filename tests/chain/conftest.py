"""The harness, importable by the tests of this folder; the loop is shared with blocking look-ups."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
