"""Figures as words, the same in the terminal and on the page. A rate is shown per 100 instance-hours."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Origin
from outlast.daemon.rates.values import PoolRate, Range
from outlast.daemon.report.text import clean, elide

PER_H = 100.0
# What print has and a keyboard lacks; the terminal keeps to the keyboard.
DASH, TIMES = "\N{EN DASH}", "\N{MULTIPLICATION SIGN}"
# From this over-dispersion on, losses are said to come clumped.
_CLUMPED = 1.5
_MOST_DIGITS = 6
PROVIDERS = {
    "aws": "AWS",
    "gcp": "GCP",
    "azure": "Azure",
    "runpod": "RunPod",
    "vast": "Vast.ai",
    "lambda": "Lambda",
    "coreweave": "CoreWeave",
}


def digits(value: float) -> int:
    """How many decimals show two significant digits of ``value``."""
    if value <= 0 or not math.isfinite(value):
        return 0
    return min(max(0, 1 - math.floor(math.log10(value) + 1e-9)), _MOST_DIGITS)


def figure(value: float, decimals: int | None = None) -> str:
    """A figure with two significant digits, or with ``decimals``; thousands are set apart."""
    if not math.isfinite(value):
        return "?"
    return f"{value:,.{digits(value) if decimals is None else decimals}f}"


def spread(found: Range, scale: float = PER_H) -> str:
    """``10 (6-14)``: a mean and its interval, in the decimals of the mean."""
    decimals = digits(found.mean * scale)
    mean, low, high = (figure(value * scale, decimals) for value in (found.mean, found.low, found.high))
    return f"{mean} ({low}-{high})"


def rate(pool: PoolRate) -> str:
    """A pool's losses per 100 instance-hours. Without a loss only an upper bound can be told."""
    if pool.exposure_h <= 0:
        return "?"
    if pool.losses == 0:
        return f"0-{figure(pool.hazard.high * PER_H)}"
    return spread(pool.hazard)


def hours(value: float | None) -> str:
    """``0.7 h``, ``10 h``; ``?`` where it is not known."""
    if value is None or not math.isfinite(value):
        return "?"
    return f"{figure(value, 1 if value < 100 else 0)} h"


def state(pool: PoolRate) -> str:
    """The state of a pool's data in the fixed words, with what there is to say about it."""
    if pool.state == "ok":
        return f"ok, clumped x{pool.phi:.0f}" if pool.phi >= _CLUMPED else "ok"
    because = clean(pool.because, 160)
    if because.startswith(pool.state):
        return because
    return f"{pool.state}: {because}" if because else pool.state


def counted(number: int, what: str) -> str:
    """``1 loss``, ``2 losses``, ``1,887 losses``."""
    plural = what if number == 1 else f"{what}es" if what.endswith("s") else f"{what}s"
    return f"{number:,} {plural}"


def told_apart(name: str, origin: Origin) -> str:
    """The name of a pool, which its held nodes and its probes share, with the word that tells them apart."""
    return f"{name} (probes)" if origin == "probe" else name


def probability(p: float) -> str:
    """A p-value in words; never less than what is worth telling."""
    return (
        "p < 0.0001"
        if p < 0.0001
        else f"p {p:.4f}"
        if p < 0.001
        else f"p {p:.3f}"
        if p < 0.1
        else f"p {p:.2f}"
    )


def typeset(text: str) -> str:
    """A figure for the page: ``10 (6-14)`` with a dash between its bounds, ``x5`` with the sign for times."""
    return text.replace("-", DASH).replace(" x", f" {TIMES}")


def percent(share: float) -> str:
    """``93 %``; never a certainty that was not proven."""
    if 0 < share < 0.01:
        return "< 1 %"
    return "> 99 %" if 0.99 < share < 1 else f"{share:.0%}".replace("%", " %")


def dollars(value: float) -> str:
    """``$0.95``; two significant digits under ten cents."""
    if not math.isfinite(value):
        return "?"
    return f"${value:,.{max(2, digits(abs(value)))}f}"


def provider(name: str) -> str:
    """A provider's name as it writes it itself."""
    return PROVIDERS.get(name, clean(name, 24)) or "unknown provider"


def place(pool: Pool) -> str:
    """Region and zone in one: the region is left out where the zone's name begins with it."""
    region, zone = clean(pool.region, 120), clean(pool.zone, 120)
    if not zone or zone.startswith(region):
        return zone or region or "somewhere"
    return f"{region} {zone}"


def common(pools: Iterable[Pool]) -> str:
    """What all pools share of provider and type, for a heading: ``AWS p3.2xlarge``; empty if nothing."""
    seen = tuple(pools)
    parts = [
        {provider(pool.provider) for pool in seen},
        {clean(pool.instance_type, 40) for pool in seen},
    ]
    return " ".join(next(iter(part)) for part in parts if len(part) == 1 and all(part))


def names(pools: Sequence[Pool], most: int = 60) -> dict[Pool, str]:
    """A short name for each pool that tells it from the others, of at most ``most`` characters."""
    several = len({pool.provider for pool in pools}) > 1
    types = len({pool.instance_type for pool in pools}) > 1
    found: dict[Pool, str] = {}
    taken: set[str] = set()
    for pool in dict.fromkeys(pools):
        parts = (
            provider(pool.provider) if several else "",
            place(pool),
            clean(pool.instance_type, 60) if types else "",
        )
        name = unique = elide(" ".join(part for part in parts if part), most)
        number = 1
        while unique in taken:
            number += 1
            unique = f"{elide(name, most - 2 - len(str(number)))} #{number}"
        taken.add(unique)
        found[pool] = unique
    return found
