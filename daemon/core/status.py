"""What the daemon sees, has decided and why: the object that ``outlast status --json`` prints."""

from __future__ import annotations

from typing import Any

from outlast import __version__
from outlast.daemon.core.deadline import Verdict, sending
from outlast.daemon.core.destinations import destinations
from outlast.daemon.core.errands import Errands
from outlast.daemon.core.facts import PeerFact, Place, Role
from outlast.daemon.core.job import Job
from outlast.daemon.core.notices import Board
from outlast.daemon.core.prospect import prospect
from outlast.daemon.core.watch import Watcher
from outlast.providers.base import Clock


def node_status(name: str, watcher: Watcher | None, board: Board, clock: Clock) -> dict[str, Any]:
    """The node's part: who it is, how the watch does, the live notices."""
    return {
        "format": 1,
        "node": name,
        "version": __version__,
        "provider": _watch(watcher, clock),
        "notices": [
            {
                "id": live.id,
                "action": live.action,
                "source": live.source,
                "seconds_left": round(live.deadline - clock.monotonic(), 3),
                "first_seen": live.first_seen_wall,
            }
            for live in board.live.values()
        ],
    }


def _watch(watcher: Watcher | None, clock: Clock) -> dict[str, Any]:
    if watcher is None:
        where = dict.fromkeys(("seen_s_ago", "region", "zone", "instance_type", "spot"))
        return {"name": "none", "state": "off", "because": "", **where}
    who = watcher.identity
    seen = watcher.seen_at
    state = "blind" if watcher.blind else "asking" if seen is None else "ok"
    return {
        "name": who.provider if who else None,
        "state": state,
        "because": watcher.because,
        "seen_s_ago": None if seen is None else round(clock.monotonic() - seen, 3),
        "region": who.region if who else None,
        "zone": (who.zone_id or who.zone) if who else None,
        "instance_type": who.instance_type if who else None,
        "spot": who.spot if who else None,
    }


def job_status(job: Job, errands: Errands, parked: int) -> dict[str, Any]:
    """One job's part."""
    layout = job.ranks.layout
    return {
        "name": job.name,
        "role": job.state.role.value,
        "epoch": job.state.epoch,
        "because": job.last_decision or job.state.because,
        "trainer": {
            "ranks": len(job.ranks),
            "world": layout.world if layout else None,
            "here": job.ranks.world if layout else None,
            "parked": parked,
            "step": job.ranks.step if len(job.ranks) else job.done_step,
            "step_s": job.ranks.step_s,
            "done": job.done_step is not None,
            "pids": [c.pid for c in job.ranks],
        },
        "nodes": list(job.part.nodes) if job.part is not None else None,
        "flush": job.flush.id if job.flush else None,
        "held": job.held_for is not None,
        "newest": _place(job.newest),
        "next_checkpoint_s": job.interval_left(),
        "interval": _interval(job),
        "peer": _peer(job, errands),
        "destinations": destinations(job, errands),
        "require": errands.replicas.require if errands.replicas is not None else "any",
        "taken_now": _taken_now(job, errands),
        "plan": _plan(job.verdict) if job.notice is not None else None,
        "measured": {"flush_s": job.flush_s, "flushes": dict(job.ended)},
    }


def _interval(job: Job) -> dict[str, Any] | None:
    if job.pace is None:
        return None
    return {"seconds": job.pace.seconds, "auto": job.auto, "because": job.pace.sentence}


def _taken_now(job: Job, errands: Errands) -> dict[str, Any] | None:
    """What a loss this instant would cost; only a primary has something to lose."""
    if job.state.role is not Role.PRIMARY:
        return None
    trained = max(job.ranks.step, job.done_step or 0, job.newest.step if job.newest else 0)
    keepers = errands.replicas.keepers if errands.replicas is not None else ()
    stores = [PeerFact(keeper.destination.state.reachable, newest=keeper.there) for keeper in keepers]
    seen = prospect(trained, job.ranks.step_s, job.newest, errands.peer_fact(), stores)
    return {
        "step": seen.step,
        "peer_step": seen.peer,
        "store_step": seen.store,
        "lost_steps": seen.lost_steps,
        "lost_s": seen.lost_s,
        "sentence": seen.sentence,
    }


def _plan(verdict: Verdict | None) -> dict[str, Any] | None:
    if verdict is None:
        return None
    return {
        "choice": verdict.choice.value,
        "needed_s": verdict.needed_s,
        "left_s": verdict.left_s,
        "sentence": verdict.sentence,
    }


def _place(place: Place | None) -> dict[str, Any] | None:
    if place is None:
        return None
    order = {"epoch": place.epoch, "tag": place.tag, "step": place.step}
    return {**order, "bytes": place.size, "created": place.created}


def _peer(job: Job, errands: Errands) -> dict[str, Any] | None:
    seen = errands.peer_fact()
    if seen is None:
        return None
    sent, total = errands.sent
    return {
        "reachable": seen.reachable,
        "because": seen.because,
        "newest": _place(seen.newest),
        "shipping": {"sent": sent, "total": total} if "ship" in errands.in_flight else None,
        "waiting": list(seen.waiting),
        "next": _next(job),
    }


def _next(job: Job) -> dict[str, Any]:
    """What the deadline plan reckons with."""
    rest = sending(job.flush_bytes, job.newest.size if job.newest else 0, job.ship_bytes_s)
    return {"bytes": rest.size, "bytes_per_s": rest.bytes_s, "seconds": rest.seconds}
