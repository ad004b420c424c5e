"""Made-up histories as CSV of spells: pools of known hazard, seeded."""

from __future__ import annotations

from pathlib import Path

import numpy as np

BEGINS = 1_790_000_400.0
DAYS = 45


def spells(file: Path, hazards: dict[str, float], days: float = DAYS, kind: str = "p4d.24xlarge") -> Path:
    """Four nodes a pool (``provider/region/zone``), taken at its hazard per hour and back at once."""
    rng = np.random.default_rng(3)
    lines = ["provider,region,zone,instance_type,node,began,ended,cause"]
    until = BEGINS + days * 86400
    for place, hazard in hazards.items():
        provider, region, zone = place.split("/")
        for node in range(4):
            at = BEGINS + float(rng.uniform(0, 3600))
            while at < until:
                ended = at + float(rng.exponential(1 / hazard)) * 3600 + 60
                cause = "interruption" if ended < until else "running"
                ended = min(ended, until)
                lines.append(f"{provider},{region},{zone},{kind},{zone}-{node},{at:.0f},{ended:.0f},{cause}")
                at = ended + 600
    file.write_text("\n".join(lines) + "\n")
    return file
