"""The deadline plan before there is a job: sizes, times and what each provider's notice allows. Pure.

Seconds and bytes. What a real node measures takes the place of all of it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from outlast.daemon.core.deadline import (
    SURVIVED,
    Choice,
    Outlook,
    Verdict,
    checkpoint_bytes,
    decide,
    margin,
    movable_bytes,
)
from outlast.daemon.core.pace import Pace, interval
from outlast.providers.notices import NoticeLength

# SHA-256 of the standard library, a core; the commit digests up to eight files at once.
DIGEST_BYTES_S = 1.4e9
DIGEST_CORES = 8
# Of a link's nominal rate; a channel's window; what one core encrypts and sends.
LINK_SHARE = 0.9
CHANNEL_WINDOW = 2 * 1024 * 1024
CORE_BYTES_S = 185e6
# Sessions that carry bulk: so many at least, and one more for each so many seconds of a round trip.
LEAST_SESSIONS = 2
RTT_A_SESSION_S = 0.01
# A notice is seen one poll late.
DETECT_S = 1.0


@dataclass(frozen=True, slots=True)
class Setup:
    """A job to be. ``parameters`` are the trained ones; ``link_bytes_s`` is nominal, of all nodes together.

    ``disk_bytes_s``, ``channels`` and ``cores`` (that may encrypt) are one node's. ``rtt_s``, ``cores``: None
    sets no bound. ``hazard_per_hour``: None for the prior.
    """

    parameters: float
    zero: int
    gpus: int
    gpus_a_node: int
    link_bytes_s: float
    disk_bytes_s: float
    step_s: float
    rtt_s: float | None = None
    channels: int = 8
    cores: int | None = None
    hazard_per_hour: float | None = None

    @property
    def nodes(self) -> int:
        """How many machines that is."""
        return -(-self.gpus // self.gpus_a_node)

    @property
    def writers(self) -> int:
        """Nodes that write a part of the checkpoint: without ZeRO rank 0 writes it all."""
        return self.nodes if self.zero else 1


@dataclass(frozen=True, slots=True)
class Figures:
    """What one checkpoint takes, and the pace that follows."""

    size: float
    save_s: float
    commit_s: float
    bytes_s: float
    limit: str
    pace: Pace

    @property
    def ship_s(self) -> float:
        """Sending a whole one."""
        return self.size / self.bytes_s


@dataclass(frozen=True, slots=True)
class Row:
    """One notice. ``lost_s`` and ``mean_s``: training time that a standby would have to do again, at most
    and on average over when the notice comes; ``kept_here``: this disk has every step, once it is back."""

    notice: NoticeLength
    verdict: Verdict
    movable: float
    lost_s: float
    mean_s: float
    kept_here: bool


def figures(setup: Setup) -> Figures:
    """One checkpoint of this job."""
    size = checkpoint_bytes(setup.parameters, setup.zero)
    share = size / setup.writers
    save_s = share / setup.disk_bytes_s
    threads = min(DIGEST_CORES, setup.gpus_a_node, setup.gpus) if setup.zero else 1
    bytes_s, limit = _rate(setup)
    pace = interval(save_s, setup.hazard_per_hour, size / bytes_s)
    return Figures(size, save_s, share / (threads * DIGEST_BYTES_S), bytes_s, limit, pace)


def _rate(setup: Setup) -> tuple[float, str]:
    """Bytes a second that arrive, and what sets the limit. Each node sends its part over its own sessions."""
    each, limit = rate(setup.link_bytes_s / setup.writers, setup.rtt_s, setup.channels, setup.cores)
    return min((setup.disk_bytes_s * setup.writers, "the disk"), (each * setup.writers, limit))


def rate(link_bytes_s: float, rtt_s: float | None, channels: int, cores: int | None) -> tuple[float, str]:
    """Bytes a second that arrive over a link, and what sets the limit. None sets no bound."""
    bounds = [(LINK_SHARE * link_bytes_s, "the link")]
    if rtt_s:
        count = sessions(rtt_s, channels)
        bounds.append((count * CHANNEL_WINDOW / rtt_s, f"{count} channels' windows"))
    if cores is not None:
        bounds.append((cores * CORE_BYTES_S, f"encryption on {cores} cores"))
    return min(bounds)


def sessions(rtt_s: float, channels: int) -> int:
    """How many sessions carry a checkpoint at that distance, of at most ``channels``."""
    return min(channels, max(LEAST_SESSIONS, 1 + math.ceil(rtt_s / RTT_A_SESSION_S)))


def at_notice(setup: Setup, one: Figures, notice: NoticeLength) -> Row:
    """What would be done at this notice, were a whole checkpoint still to be sent, and what that loses.

    A checkpoint saved ``t`` ago has arrived if ``t`` and what the notice leaves cover its commit and its
    transfer; so a loss is at most the interval and what is missing of those, and half an interval less on
    average.
    """
    left = notice.seconds - DETECT_S
    verdict = decide(
        Outlook(
            left_s=left,
            flush_s=setup.step_s + one.save_s,
            commit_s=one.commit_s,
            bytes_s=one.bytes_s,
            flush_bytes=one.size,
            unsent=one.size,
            under_way="the checkpoint under way",
            margin_s=margin(left),
            survives=notice.action in SURVIVED,
        )
    )
    late = max(0.0, one.commit_s + one.ship_s - max(0.0, left - margin(left)))
    lost, mean = one.pace.seconds + late, one.pace.seconds / 2 + late
    if verdict.choice is Choice.FLUSH_AND_SHIP:
        lost = mean = 0.0
    moved = movable_bytes(
        notice.seconds,
        one.bytes_s,
        detect_s=DETECT_S,
        step_s=setup.step_s,
        save_s=one.save_s,
        commit_s=one.commit_s,
    )
    return Row(notice, verdict, moved, lost, mean, verdict.choice is Choice.FLUSH_HERE)
