"""The AWS Spot Advisor's published file: bands of reclaimed capacity, kept in their own unit.

The bands say what share was reclaimed in the trailing month; of what, is not published. They are no hazard
and are never made into one. The format is in docs/imports.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from outlast.daemon.fleet.faults import Faults, fault, shown
from outlast.daemon.fleet.places import MOST_NAME
from outlast.daemon.fleet.texts import parsed
from outlast.providers.market.base import Risk

SYSTEM = "Linux"
# The file's own upper bounds are 5, 11, 16, 22, 100; its labels say the published ones.
_LABELS = {"<5%": (0.0, 5.0), "5-10%": (5.0, 10.0), "10-15%": (10.0, 15.0), "15-20%": (15.0, 20.0)}
_OPEN = {">20%": (20.0, 100.0)}


def read_advisor(path: Path, at: float, system: str = SYSTEM) -> tuple[Risk, ...]:
    """Every region's band of every instance type, as published ``at`` UTC. Raises ImportFaultError."""
    body = parsed(path)
    if not isinstance(body, dict):
        raise fault(path, 1, "is no JSON object; take the file as AWS publishes it.")
    bands = _bands(path, body.get("ranges"))
    regions = body.get("spot_advisor")
    if not isinstance(regions, dict):
        raise fault(path, 1, 'has no "spot_advisor"; take the file as AWS publishes it.')
    faults = Faults(path)
    risks: list[Risk] = []
    for region, systems in regions.items():
        types = systems.get(system) if isinstance(systems, dict) else None
        if not isinstance(types, dict):
            continue  # a region may offer other systems only
        for name, entry in types.items():
            place = f"{shown(str(region))}/{shown(str(name))}"
            try:
                risks.append(_risk(region, name, entry, bands, at, path.name))
            except ValueError as exc:
                faults.add(place, f"{exc}.")
    faults.settle()
    return tuple(risks)


def _bands(path: Path, ranges: Any) -> dict[int, tuple[str, float, float]]:
    if not isinstance(ranges, list):
        raise fault(path, 1, 'has no list "ranges"; take the file as AWS publishes it.')
    found: dict[int, tuple[str, float, float]] = {}
    for entry in ranges:
        label = entry.get("label") if isinstance(entry, dict) else None
        bounds = ({**_LABELS, **_OPEN}).get(label) if isinstance(label, str) else None
        number = entry.get("index") if isinstance(entry, dict) else None
        if bounds is None or isinstance(number, bool) or not isinstance(number, int):
            raise fault(path, 1, f"has an unknown band {shown(repr(entry))} in its ranges; update Outlast.")
        found[number] = (str(label), *bounds)
    return found


def _risk(
    region: str, name: str, entry: Any, bands: Mapping[int, tuple[str, float, float]], at: float, source: str
) -> Risk:
    for text in (region, name):
        if not text or len(text) > MOST_NAME or not text.isprintable():
            raise ValueError("is no name of a region or instance type; leave the entry out")
    number = entry.get("r") if isinstance(entry, dict) else None
    if isinstance(number, bool) or not isinstance(number, int) or number not in bands:
        raise ValueError(
            f"its band 'r' is {shown(repr(number), 40)}, which the ranges do not name; correct it"
        )
    label, low, high = bands[number]
    return Risk("aws", region, "", name, "reclaimed-per-month", low, high, label, at, source)
