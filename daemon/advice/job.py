"""The request with every gap filled: by what was measured, else by a default that is told."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.advice.values import Costs, Request
from outlast.daemon.rates.table import Timing
from outlast.providers.notices import usual_s

STALL_S = 30.0
RESTART_S = 300.0
FLUSH_S = 20.0
FLUSH_SHARE = 0.5
# Mixed-precision Adam: half-precision weights, fp32 master and two moments, as DeepSpeed writes them.
BYTES_A_PARAMETER = 14.0
# A share measured on fewer interruptions than this is not believed.
LEAST_LOSSES = 5


@dataclass(frozen=True, slots=True)
class Job:
    """All that a cost needs; seconds, and bytes of one whole checkpoint (None: not known).

    ``share`` is the measured or given share of interruptions whose flush succeeds; None where it goes by
    the provider's notice.
    """

    hours: float
    stall_s: float
    restart_s: float
    wait_s: float
    flush_s: float
    share: float | None
    bytes: float | None
    step_s: float | None
    costs: Costs

    def flush_share(self, provider: str) -> float:
        """The share of this provider's interruptions that a flush catches: none that outlasts its notice."""
        if self.share is not None:
            return self.share
        return FLUSH_SHARE if usual_s(provider) >= self.flush_s else 0.0


def filled(request: Request, timing: Timing) -> tuple[Job, tuple[str, ...], tuple[str, ...]]:
    """The job, what was assumed for it, and what is not known, a sentence each."""
    assumed: list[str] = []
    lacks: list[str] = []
    job = Job(
        hours=request.hours,
        stall_s=_told(request.stall_s, None, STALL_S, "a checkpoint holds training up for {:.0f} s", assumed),
        restart_s=_told(
            request.restart_s, timing.restore_s, RESTART_S, "a restart costs {:.0f} s of billed time", assumed
        ),
        wait_s=request.wait_s or 0.0,
        flush_s=_told(request.flush_s, timing.flush_s, FLUSH_S, "a flush takes {:.0f} s", assumed),
        share=_share(request, timing, assumed),
        bytes=_bytes(request, timing, assumed, lacks),
        step_s=request.step_s or timing.step_s,
        costs=request.costs,
    )
    if request.wait_s is None:
        lacks.append("How long a new instance has to be waited for: waits are not included.")
    if job.step_s is None:
        lacks.append("The length of a step: the interval is given in seconds alone.")
    return job, tuple(assumed), tuple(lacks)


def _told(
    given: float | None, measured: float | None, default: float, what: str, assumed: list[str]
) -> float:
    if given is not None:
        return given
    if measured is not None:
        assumed.append(f"Measured here: {what.format(measured)}.")
        return measured
    assumed.append(f"Assumed: {what.format(default)}.")
    return default


def _share(request: Request, timing: Timing, assumed: list[str]) -> float | None:
    if request.flush_share is not None:
        return request.flush_share
    if timing.losses >= LEAST_LOSSES:
        share = min(timing.flushes / timing.losses, 1.0)
        assumed.append(
            f"Measured here: {timing.flushes} of {timing.losses} interruptions ended with a committed flush."
        )
        return share
    assumed.append(
        "Assumed: half of the interruptions end with a committed flush, none if a flush outlasts the notice."
    )
    return None


def _bytes(request: Request, timing: Timing, assumed: list[str], lacks: list[str]) -> float | None:
    if request.checkpoint_bytes is not None:
        return float(request.checkpoint_bytes)
    if request.params is not None:
        size = request.params * BYTES_A_PARAMETER
        assumed.append(
            f"Assumed: {BYTES_A_PARAMETER:.0f} bytes a parameter, a checkpoint of {size / 1e9:.1f} GB."
        )
        return size
    if timing.checkpoint_bytes is not None:
        assumed.append(f"Measured here: a checkpoint of {timing.checkpoint_bytes / 1e9:.1f} GB.")
        return float(timing.checkpoint_bytes)
    lacks.append("The size of a checkpoint: storage and the traffic to the standby are not in the cost.")
    return None
