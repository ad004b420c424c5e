"""What the command line can ask of the jobs: a checkpoint now, a takeover."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from outlast.daemon.core.control import RequestError
from outlast.daemon.core.facts import Role
from outlast.daemon.core.node import Desk

TAKEOVER_S = 10.0


class Operator:
    """What the command line can ask of the jobs."""

    def __init__(self, desks: Mapping[str, Desk]) -> None:
        self._desks = desks

    def _desk(self, request: Mapping[str, Any]) -> Desk:
        name = request.get("job")
        if name is None and len(self._desks) == 1:
            return next(iter(self._desks.values()))
        if not isinstance(name, str) or name not in self._desks:
            known = ", ".join(sorted(self._desks))
            asked = "which job?" if name is None else f"there is no job {name} here."
            raise RequestError(f"{asked} This node has: {known}. Say it with --job NAME")
        return self._desks[name]

    async def checkpoint(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """One checkpoint now; answers when it is committed, or why it is not."""
        job = self._desk(request).job
        role = job.state.role
        if role is not Role.PRIMARY:  # ranks that are parked, or on their way out, would never answer
            raise RequestError(f"this node is {role.value} of job {job.name}: nothing is trained here")
        outcome = await job.ask_checkpoint("an operator asked")
        if isinstance(outcome, str):
            raise RequestError(f"no checkpoint of job {job.name}: {outcome}")
        where = str(job.checkpoints / f"epoch-{outcome.epoch}" / outcome.tag) if job.checkpoints else ""
        return {
            "tag": outcome.tag,
            "step": outcome.step,
            "epoch": outcome.epoch,
            "bytes": outcome.size,
            "path": where,
        }

    async def takeover(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Make this standby the primary, without the old one's word."""
        desk = self._desk(request)
        job, role = desk.job, desk.job.state.role
        if desk.standby is None or role is Role.PRIMARY:
            raise RequestError(f"this node is {role.value} of job {job.name}: nothing to take over")
        taken = desk.standby.ask_takeover()
        try:
            async with asyncio.timeout(TAKEOVER_S):
                await taken.wait()
        except TimeoutError:
            desk.standby.operator_asks = None
            raise RequestError(f"not taken over: {job.last_decision}") from None
        return {"job": job.name, "epoch": job.state.epoch, "because": job.state.because}
