"""Public traces as they lie on disk, ready for the estimators: for benchmarks and back-tests."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from outlast.daemon.fleet.flat import Flat, Imported, join
from outlast.daemon.fleet.imports import read_spells
from outlast.daemon.fleet.places import pool_of
from outlast.daemon.fleet.probes import read_availability, read_launches
from outlast.daemon.fleet.texts import instant, table
from outlast.daemon.fleet.ticks import read_ticks
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed, Price
from outlast.daemon.rates.tabulate import tabulate

V100_TYPE = "p3.2xlarge"
H100_TYPE = "a3-highgpu-1g"


def aws_v100(folder: Path, prices: Path | None = None) -> Observed:
    """Availability of one V100 in nine zones: ``<zone>_v100_1.csv`` each, clock UTC, and prices if given.

    ``prices`` is JSON with one list a trace, by the traces' names, one price a probe.
    """
    files = sorted(folder.glob("*_v100_1.csv"))
    pools = {file.stem: pool_of("aws", "", file.stem.split("_")[0], V100_TYPE) for file in files}
    parts = [read_availability(file, pools[file.stem], naive_utc=True) for file in files]
    return _observed(parts, folder, _priced(prices, pools, files))


def gcp_2019(folder: Path) -> Observed:
    """Preemptible VMs with their true instants: ``spells.csv``. A life over 23.5 h met the 24-hour cap."""
    mapping = {
        "node": "vm",
        "instance_type": "machine_type",
        "began": "started_epoch",
        "ended": "ended_epoch",
        "cause": "event(1=preempted,0=user stop)",
    }
    part = read_spells(folder / "spells.csv", mapping, {"provider": "gcp"}, max_life_h=23.5)
    return _observed([part], folder)


def gcp_h100(folder: Path) -> Observed:
    """Launch probes of sixteen H100 instances in thirteen zones: ``gcp_h100x16_probes.csv``."""
    part = read_launches(folder / "gcp_h100x16_probes.csv", Pool("gcp", "", "", H100_TYPE))
    return _observed([part], folder)


def _observed(parts: Sequence[Imported], folder: Path, prices: tuple[Price, ...] = ()) -> Observed:
    spells: Flat = join([part.spells for part in parts])
    now = float(spells.columns.ended.max()) if len(spells) else 0.0
    return Observed(
        table=tabulate(spells.columns, now),
        launches=tuple(launch for part in parts for launch in part.launches),
        prices=prices,
        sources=(str(folder),),
        notes=tuple(note for part in parts for note in part.notes),
    )


def _priced(prices: Path | None, pools: dict[str, Pool], files: Sequence[Path]) -> tuple[Price, ...]:
    if prices is None:
        return ()
    body: Any = json.loads(prices.read_bytes())
    ours = {name: pool for name, pool in pools.items() if name in body}
    return read_ticks(prices, ours, {file.stem: _stamps(file) for file in files})


def _stamps(file: Path) -> list[float]:
    return [instant(fields["date"], naive_utc=True) for _, fields in table(file, {"date": "date"})]
