"""Traces of launch probes: availability as time goes by, and how many instances came. See docs/fleet.md.

A probe that found capacity stands for an instance held until the next probe; a drop is a failed launch, not
the eviction of a node that was held. The pools say so by their origin, "probe".
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from outlast.daemon.fleet.faults import Faults, fault, shown
from outlast.daemon.fleet.flat import Gather, Imported
from outlast.daemon.fleet.places import pool_of
from outlast.daemon.fleet.texts import instant, parsed, table
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Launch

# Probes further apart than this many usual steps say nothing about the time between them.
GAP_STEPS = 3.0
MOST_SLOTS = 4096


def read_availability(
    path: Path,
    pool: Pool,
    *,
    naive_utc: bool = False,
    begins: float | None = None,
    gap_s: float | None = None,
) -> Imported:
    """One pool's trace: CSV with ``date,availability``, or JSON without a clock, which needs ``begins``.

    A run of samples with capacity is a spell; it is lost at the first sample with less (each slot of a
    count for itself), and is cut off where probes are missing or the trace ends. Raises ImportFaultError.
    """
    if path.suffix == ".json":
        at, up = _read_json(path, begins, gap_s)
    else:
        at, up = _read_csv(path, naive_utc)
    gather = Gather()
    for slot in range(max(up, default=0)):
        add_runs(gather, pool, at, [count > slot for count in up], f"slot-{slot}")
    return Imported(gather.flat(), notes=_notes(path, up))


def read_launches(path: Path, pool: Pool, *, naive_utc: bool = False) -> Imported:
    """Launch probes of several zones: CSV ``started_at_utc,zone,instances_created,instances_requested``.

    ``pool`` gives provider and instance type, and region and zone where a line's zone is empty. Each line is
    a launch; the last slot's time with capacity is a spell, so a loss is the drop to none. Raises
    ImportFaultError.
    """
    faults = Faults(path)
    launches: list[Launch] = []
    names = ("started_at_utc", "zone", "instances_created", "instances_requested")
    pools: dict[str, Pool] = {}
    for line, fields in table(path, {name: name for name in names}):
        try:
            zone = fields["zone"]
            if zone not in pools:
                pools[zone] = pool_of(pool.provider, pool.region, zone or pool.zone, pool.instance_type)
            at = instant(fields["started_at_utc"], naive_utc)
            asked, got = _count(fields["instances_requested"]), _count(fields["instances_created"])
            if got > asked or asked == 0:
                raise ValueError(f"{got} of {asked} instances came; correct the counts")
            launches.append(Launch(pools[zone], at, asked, got))
        except ValueError as exc:
            faults.add(line, f"{exc}.")
    faults.settle()
    launches.sort(key=lambda launch: (launch.pool, launch.at))
    return Imported(_last_slots(launches), launches=tuple(launches))


def add_runs(gather: Gather, pool: Pool, at: Sequence[float], up: Sequence[bool], node: str) -> None:
    """The spells of one slot. ``at`` are UTC seconds in order."""
    if len(at) < 2:
        return
    limit = GAP_STEPS * float(np.median(np.diff(at)))
    began: float | None = None
    known = False
    for i, now in enumerate(at):
        seen = i > 0 and now - at[i - 1] <= limit
        if began is not None and not seen:
            _cut(gather, pool, node, began, at[i - 1], known)
            began = None
        if began is None and up[i]:
            began, known = now, seen
        elif began is not None and not up[i]:
            gather.add(pool, node, began, now, "interruption", known=known, origin="probe")
            began = None
    if began is not None:
        _cut(gather, pool, node, began, at[-1], known)


def _cut(gather: Gather, pool: Pool, node: str, began: float, ended: float, known: bool) -> None:
    if ended > began:
        gather.add(pool, node, began, ended, "running", known=known, origin="probe")


def _last_slots(launches: Sequence[Launch]) -> Any:
    series: dict[Pool, list[Launch]] = defaultdict(list)
    for launch in launches:
        series[launch.pool].append(launch)
    gather = Gather()
    for pool, ours in series.items():
        add_runs(gather, pool, [one.at for one in ours], [one.got > 0 for one in ours], "slot-0")
    return gather.flat()


def _read_csv(path: Path, naive_utc: bool) -> tuple[list[float], list[int]]:
    faults = Faults(path)
    at: list[float] = []
    up: list[int] = []
    for line, fields in table(path, {"date": "date", "availability": "availability"}):
        try:
            when, count = instant(fields["date"], naive_utc), _count(fields["availability"])
            if at and when <= at[-1]:
                raise ValueError("the time does not grow from line to line; sort the file, once each")
            at.append(when)
            up.append(count)
        except ValueError as exc:
            faults.add(line, f"{exc}.")
    faults.settle()
    return at, up


def _read_json(path: Path, begins: float | None, gap_s: float | None) -> tuple[list[float], list[int]]:
    body = parsed(path)
    data = body.get("data") if isinstance(body, dict) else None
    metadata = body.get("metadata") if isinstance(body, dict) else None
    step = (
        gap_s if gap_s is not None else (metadata.get("gap_seconds") if isinstance(metadata, dict) else None)
    )
    if not isinstance(data, list):
        raise fault(
            path, 1, 'has no list "data"; it should be {"metadata": {"gap_seconds": …}, "data": […]}.'
        )
    if isinstance(step, bool) or not isinstance(step, int | float) or not 0 < step <= 1e6:
        raise fault(path, 1, 'has no "gap_seconds" above 0 in its "metadata"; give --gap SECONDS.')
    if begins is None:
        raise fault(path, 1, "has no clock; say when its first probe was with --begins TIME.")
    for number, count in enumerate(data):
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count <= MOST_SLOTS:
            raise fault(path, 1, f"data[{number}] is no count from 0 to {MOST_SLOTS}; correct it.")
    return [begins + step * number for number in range(len(data))], data


def _count(text: str) -> int:
    value = (
        float(text) if text.replace(".", "", 1).isascii() and text.replace(".", "", 1).isdigit() else math.nan
    )
    if not value.is_integer() or value > MOST_SLOTS:
        raise ValueError(f"'{shown(text, 40)}' is no count from 0 to {MOST_SLOTS}; correct it")
    return int(value)


def _notes(path: Path, up: Sequence[int]) -> tuple[str, ...]:
    return () if any(up) else (f"{shown(str(path))}: no probe found capacity.",)
