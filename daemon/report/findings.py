"""What was found beside the pool table, in sentences: weekends, hours of the day, age, the back-test."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.rates.table import Table
from outlast.daemon.rates.values import AgeBand, AgeCurve, Pattern, Study, Weekend
from outlast.daemon.report import sparks, times, words
from outlast.daemon.report.text import clean

_LONGEST = 300
# A band of age is put in a sentence from this many losses on.
_TELLING = 3
NO_BACKTEST = "Not back-tested: the history is too short to ask these ranges of its own past."


@dataclass(frozen=True, slots=True)
class Daily:
    """The verdict on one region's daily cycle, beside its 24 hours in block characters (may be empty)."""

    pattern: Pattern
    region: str
    sparkline: str
    sentence: str


def title(study: Study) -> str:
    """``Interruptions, AWS p3.2xlarge, 2023-02-15 to 04-02 (46 days, UTC)``."""
    shared = words.common(pool.pool for pool in study.pools)
    parts = ("Interruptions", shared, times.period(study.begins, study.ends))
    return ", ".join(part for part in parts if part)


def totals(study: Study) -> str:
    """``9 pools, 6,336 instance-hours, 1,887 losses``."""
    exposure = sum(pool.exposure_h for pool in study.pools)
    losses = sum(pool.losses for pool in study.pools)
    seen = f"{words.figure(exposure, 0 if exposure >= 100 else 1)} instance-hours"
    return f"{words.counted(len(study.pools), 'pool')}, {seen}, {words.counted(losses, 'loss')}"


def region(provider: str, name: str) -> str:
    """A region's name; the provider's own for verdicts over all of its regions."""
    return clean(name, 60) or f"all of {words.provider(provider)}"


def weekend(found: Weekend) -> str:
    """The verdict on weekends in one region, led by its name."""
    return _led(region(found.provider, found.region), found.sentence)


def daily(study: Study, table: Table, zone: times.Zone) -> tuple[Daily, ...]:
    """The verdicts on daily cycles; those that found one first. A peak is told in the reader's zone too."""
    order = {"pattern": 0, "no pattern": 1, "not enough": 2}
    patterns = sorted(study.patterns, key=lambda p: (order[p.state], p.provider, p.region))
    return tuple(_daily(pattern, study, table, zone) for pattern in patterns)


def _daily(pattern: Pattern, study: Study, table: Table, zone: times.Zone) -> Daily:
    name = region(pattern.provider, pattern.region)
    sentence = _led(name, pattern.sentence)
    if pattern.peak_hour is not None and pattern.state == "pattern" and not times.is_utc(zone, study.now):
        local = times.clock(pattern.peak_hour, zone, study.now)
        sentence += f" Its peak is at {local} {times.abbreviation(zone, study.now)}."
    line = ""
    if pattern.state != "not enough":
        line = sparks.sparkline(*sparks.of_region(table, pattern.provider, pattern.region))
    return Daily(pattern, name, line, sentence)


def age(curve: AgeCurve) -> str:
    """``AWS: per 100 h, 119 are lost in the first 15 min of a stay, 6.0 after 12 h.`` Empty if untold."""
    told = [band for band in curve.bands if band.losses >= _TELLING]
    if len(told) < 2:
        return ""
    first, last = told[0], told[-1]
    rates = [words.figure(band.hazard.mean * words.PER_H) for band in (first, last)]
    return (
        f"{words.provider(curve.provider)}: per 100 h, {rates[0]} are lost {span(first)} of a stay, "
        f"{rates[1]} {span(last)}."
    )


def span(band: AgeBand) -> str:
    """``in the first 15 min``, ``from 1 h to 4 h``, ``after 12 h``."""
    if band.to_h is None:
        return f"after {length(band.from_h)}"
    if band.from_h == 0:
        return f"in the first {length(band.to_h)}"
    return f"from {length(band.from_h)} to {length(band.to_h)}"


def length(value: float) -> str:
    """An age in the unit that suits it: ``15 min``, ``4 h``."""
    return f"{value * 60:g} min" if value < 1 else f"{value:g} h"


def backtest(study: Study) -> str:
    """How often the stated ranges held."""
    return clean(study.coverage.sentence, _LONGEST) if study.coverage else NO_BACKTEST


def notes(*found: tuple[str, ...]) -> tuple[str, ...]:
    """Notes from several places, clean, each once."""
    return tuple(dict.fromkeys(clean(note, _LONGEST) for several in found for note in several))


def _led(name: str, sentence: str) -> str:
    text = clean(sentence, _LONGEST)
    return text if name in text else f"{name}: {text}"
