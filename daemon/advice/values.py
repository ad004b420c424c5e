"""What is asked of the advice and what it answers. Money in US dollars, times UTC epoch seconds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.values import PoolState, Range

# run: start in the first pool. tie: the first ones cannot be told apart. on-demand: spot does not pay or
# would not be done. not enough data: no pool can be ranked.
Verdict = Literal["run", "tie", "on-demand", "not enough data"]


@dataclass(frozen=True, slots=True)
class Costs:
    """Stated inputs of the cost: each is shown, each may be changed by an option."""

    storage_usd_gb_month: float = 0.023
    egress_usd_gb: float = 0.09
    engineer_usd_h: float = 0.0
    engineer_h_per_failure: float = 0.0
    failed_run_usd: float = 0.0


@dataclass(frozen=True, slots=True)
class Request:
    """The job. ``hours`` is useful training time on one instance; ``deadline`` UTC seconds or None.

    ``stall_s`` is what one checkpoint holds training up, ``restart_s`` what a restart costs in billed time,
    ``wait_s`` the unbilled wait for a new instance, ``flush_share`` the share of interruptions whose flush
    succeeds, ``flush_s`` its length. None where the history's own measurement or a default is to be used.
    """

    hours: float
    gpus: int = 1
    gpu_type: str = ""
    instance_types: tuple[str, ...] = ()
    deadline: float | None = None
    params: float | None = None
    checkpoint_bytes: int | None = None
    step_s: float | None = None
    stall_s: float | None = None
    restart_s: float | None = None
    wait_s: float | None = None
    flush_share: float | None = None
    flush_s: float | None = None
    costs: Costs = Costs()


@dataclass(frozen=True, slots=True)
class Row:
    """One way to run the job. ``per_useful_hour`` includes all parts; ``parts`` are their means, dollars an
    hour of useful training, by name. ``p_best`` is the chance that this pool is the cheapest."""

    pool: Pool
    market: Literal["spot", "on_demand"]
    price_usd_h: float
    cap: str
    hazard: Range | None
    state: PoolState
    interval_s: float | None
    interval_steps: int | None
    goodput: float
    per_useful_hour: Range
    parts: dict[str, float]
    p_deadline: float | None
    p_best: float
    p_capacity: float | None
    notes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Bid:
    """One point of a bid curve: dollars an hour, and what a useful hour would cost at it."""

    bid_usd_h: float
    hazard: float
    goodput: float
    per_useful_hour: float


@dataclass(frozen=True, slots=True)
class BidCurve:
    """The whole curve b / G(b) of one pool, and the bid that minimises it."""

    pool: Pool
    best: Bid
    points: tuple[Bid, ...]


@dataclass(frozen=True, slots=True)
class BackTest:
    """The advice asked of the past, dollars a useful hour: what following it would have cost, and what else.

    ``weeks`` origins were replayed; None where it could not be replayed, and ``sentence`` says why.
    """

    weeks: int
    advised: float | None
    random_pool: float | None
    cheapest_pool: float | None
    hindsight: float | None
    sentence: str


@dataclass(frozen=True, slots=True)
class Advice:
    """The recommendation, why, and what it does not know. ``standby`` is in another region than ``order[0]``.

    ``window`` says when to start: a span of UTC hours or "any hour". ``valid_until`` is UTC seconds.
    """

    verdict: Verdict
    sentence: str
    request: Request
    rows: tuple[Row, ...]
    order: tuple[Pool, ...]
    standby: Pool | None
    window: str
    policy: str
    cap: str
    interval_s: float | None
    interval_steps: int | None
    bids: tuple[BidCurve, ...]
    reasons: tuple[str, ...]
    not_known: tuple[str, ...]
    assumed: tuple[str, ...]
    data_from: float
    data_to: float
    valid_until: float
    backtest: BackTest | None
