"""What the estimators find. Rates are per instance-hour, times UTC epoch seconds, hours of the day UTC."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Origin

# ok: enough to rank. thin: an interval, no ranking. not enough: nothing to go by. stale: too old for "now".
PoolState = Literal["ok", "thin", "not enough", "stale"]
PatternState = Literal["pattern", "no pattern", "not enough"]


@dataclass(frozen=True, slots=True)
class Range:
    """A figure with its equal-tailed 90 % interval."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True, slots=True)
class PoolRate:
    """One pool's interruption rate, as a Gamma posterior of ``shape`` and ``rate_h`` (hours).

    Both are already divided by the over-dispersion ``phi``; the mean is ``shape / rate_h``. ``state`` is one
    of the fixed words and ``because`` its sentence. ``as_left`` is the mean when every stay that was left
    after a hint counts as a loss. ``current`` forgets with a half-life: the rate for what starts now.
    """

    pool: Pool
    origin: Origin
    exposure_h: float
    spells: int
    losses: int
    bursts: int
    days: int
    shape: float
    rate_h: float
    phi: float
    hazard: Range
    as_left: float
    current: Range
    current_shape: float
    current_rate_h: float
    typical_stay_h: float | None
    state: PoolState
    because: str
    newest: float
    causes: dict[str, int]
    mean_burst: float
    largest_burst: int


@dataclass(frozen=True, slots=True)
class AgeBand:
    """One band of age; ``factor`` is its hazard relative to what the pool's own rate expects."""

    from_h: float
    to_h: float | None
    exposure_h: float
    losses: int
    hazard: Range
    factor: float


@dataclass(frozen=True, slots=True)
class AgeCurve:
    """How the hazard falls with age, pooled over one provider."""

    provider: str
    bands: tuple[AgeBand, ...]


@dataclass(frozen=True, slots=True)
class Weekend:
    """Weekend hazard relative to weekdays in one region; ``p`` from day-clustered errors, Holm-adjusted."""

    provider: str
    region: str
    ratio: Range
    p: float
    state: PatternState
    sentence: str


@dataclass(frozen=True, slots=True)
class Pattern:
    """The verdict on a daily cycle in one region.

    ``p`` is Holm-adjusted, ``p_raw`` the day-rotation Rayleigh's; ``peak_hour`` and ``peak_to_mean`` (None
    unless a shape could be fitted) come from one harmonic; ``gain`` is the held-out log-likelihood gain in
    nats and ``folds_won`` of ``folds`` blocks gained; ``detectable`` is the smallest peak/mean that would
    have been seen. ``profile`` has 24 fitted factors, empty unless ``state`` is "pattern".
    """

    provider: str
    region: str
    state: PatternState
    losses: int
    bursts: int
    days: int
    p_raw: float | None
    p: float | None
    peak_hour: float | None
    peak_to_mean: float | None
    gain: float | None
    folds_won: int
    folds: int
    detectable: float | None
    profile: tuple[float, ...]
    sentence: str


@dataclass(frozen=True, slots=True)
class Claim:
    """A claimed set of UTC hours against the others, age, pool and weekend adjusted.

    ``refused`` when the data speak against a higher rate there that matters; ``verdict`` is one of
    "supported", "refused", "open". ``losses`` are the bursts in these hours, ``expected`` how many there
    would be if these hours were like the others; ``region`` is "" in the row over all regions of a provider.
    An interval without an upper bound is stated as reaching 1000.
    """

    provider: str
    region: str
    hours: tuple[int, ...]
    ratio: Range
    p: float
    losses: int
    expected: float
    verdict: Literal["supported", "refused", "open"]
    sentence: str


@dataclass(frozen=True, slots=True)
class Week:
    """One week of one pool: its exposure, losses and rate with interval."""

    begins: float
    exposure_h: float
    losses: int
    hazard: Range


@dataclass(frozen=True, slots=True)
class Trend:
    """A pool week by week; held nodes and probes of one pool are two, told apart by their ``origin``."""

    pool: Pool
    weeks: tuple[Week, ...]
    origin: Origin = "held"


@dataclass(frozen=True, slots=True)
class Coverage:
    """How often the stated 90 % ranges held when asked of the past: ``held`` of ``asked``."""

    held: int
    asked: int
    train_days: float
    test_days: float
    sentence: str


@dataclass(frozen=True, slots=True)
class Study:
    """Everything that was found. Pools are in order of rate, the calmest first."""

    begins: float
    ends: float
    now: float
    pools: tuple[PoolRate, ...]
    ages: tuple[AgeCurve, ...]
    weekends: tuple[Weekend, ...]
    patterns: tuple[Pattern, ...]
    trends: tuple[Trend, ...]
    coverage: Coverage | None
    notes: tuple[str, ...]
