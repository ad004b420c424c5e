"""The drill itself: train, let the provider speak, watch the handoff, compare with an undisturbed run."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, replace
from pathlib import Path

from outlast.simulations.drill import reap
from outlast.simulations.drill.losses import StepLine, last_step, read_steps
from outlast.simulations.drill.nodes import PRIMARY, STANDBY, Node
from outlast.simulations.drill.sandbox import Child, DrillError, Sandbox
from outlast.simulations.drill.scenario import Plan, Seen, Stage
from outlast.simulations.drill.verdict import Observed, Prediction
from outlast.simulations.drill.word import NOTICE_S
from outlast.wire.store import committed_at, epochs, folders, verify

REFERENCE = "reference"


@dataclass(frozen=True)
class Rehearsal:
    """``notice_at``: the step at which the provider speaks; ``steps``: where the run ends. ``trial``: a
    checkpoint is shipped before, and what the daemon then reckons with is held against what happens."""

    plan: Plan
    steps: int
    notice_at: int
    trial: bool = False


class Watch:
    """What a display is told: sentences that stay, and sights of the nodes as they come."""

    def say(self, sentence: str) -> None:
        """Something has happened."""

    def look(self, seen: Seen) -> None:
        """How far everything is."""

    def reference(self, step: int) -> None:
        """How far the uninterrupted run is."""


async def rehearse(rehearsal: Rehearsal, sandbox: Sandbox, watch: Watch) -> Observed:
    """Play a whole planned handoff. Raises DrillError if it does not come to its end."""
    async with Stage(rehearsal.plan, sandbox, watch.look) as stage:
        watch.say(f"starting a stand-in for {rehearsal.plan.provider}, an SSH server, two daemons, a trainer")
        await stage.begin()
        await stage.until(
            f"step {rehearsal.notice_at} at {PRIMARY}", lambda s: s.step(PRIMARY) >= rehearsal.notice_at
        )
        predicted = await _trial(stage, watch) if rehearsal.trial else None
        seen = await stage.seen()
        notice_s = NOTICE_S[rehearsal.plan.provider]
        watch.say(f"{PRIMARY} is at step {seen.step(PRIMARY)}: the provider gives notice, {notice_s:.0f} s")
        await stage.say("notice", in_s=notice_s)
        seen = await stage.until(
            f"the first step at {STANDBY}", lambda s: s.mark("first_step", STANDBY) is not None
        )
        observed = await _see_it_out(rehearsal, stage, watch, notice_s)
        return replace(observed, predicted=predicted)


async def _trial(stage: Stage, watch: Watch) -> Prediction:
    """Ship a first checkpoint; returns what the daemon reckons the next one takes."""
    watch.say("a first checkpoint is shipped, by which the daemon reckons the next one")
    await stage.order(stage.primary, "checkpoint", stage.plan.bound_s)
    await stage.until("the first checkpoint at the peer", lambda s: s.mark("verified", PRIMARY) is not None)
    (job,) = (await stage.order(stage.primary, "status"))["jobs"]
    coming = job["peer"]["next"]
    if coming["seconds"] is not None:
        size, seconds = coming["bytes"] / 1e6, coming["seconds"]
        watch.say(f"reckoned: the next one's {size:.0f} MB take {seconds:.1f} s to the peer")
    return Prediction(coming["bytes"], coming["seconds"])


async def _see_it_out(rehearsal: Rehearsal, stage: Stage, watch: Watch, notice_s: float) -> Observed:
    """From the standby's first step to the end of everything."""
    watch.say("the same run, uninterrupted and without a daemon, for comparison")
    undisturbed = Node(REFERENCE, stage.sandbox.folder / REFERENCE)
    await asyncio.to_thread(undisturbed.make)
    (first, *_) = await asyncio.to_thread(read_steps, stage.standby.losses)
    trainer = rehearsal.plan.trainer.undisturbed(first.step - 1)
    reference = await stage.start_trainer(undisturbed, trainer)
    stage.spare(reference)  # it may well be done before the standby is
    assert stage.trainer is not None
    primary_status = await stage.ended(stage.trainer)
    strays = await asyncio.to_thread(_ranks, stage)
    seen = await stage.until(
        f"the end of training at {STANDBY}", lambda s: s.mark("trainer_ended", STANDBY) is not None
    )
    reference_status = await _finish(stage, reference, undisturbed, watch)
    daemons = await stage.stop_daemons()
    seen = await stage.seen()
    ended = seen.mark("trainer_ended", STANDBY)
    statuses: dict[str, int | None] = {
        f"trainer at {PRIMARY}": primary_status,
        f"trainer at {STANDBY}": ended.whole("status") if ended is not None else None,
        "uninterrupted trainer": reference_status,
        **{f"daemon at {name}": status for name, status in daemons.items()},
    }
    return await asyncio.to_thread(_observe, stage, seen, undisturbed, statuses, strays, notice_s)


async def _finish(stage: Stage, reference: Child, node: Node, watch: Watch) -> int:
    """The reference's exit status, its progress told meanwhile."""

    def whole(_: Seen) -> bool:
        watch.reference(last_step(read_steps(node.losses)))
        return reference.status is not None

    await stage.until("the uninterrupted run", whole)
    if reference.status != 0:
        raise DrillError(f"the uninterrupted run failed:\n{await reference.tail()}")
    return 0


def _ranks(stage: Stage) -> set[int]:
    """What still runs at the primary besides its daemon."""
    daemon = stage.daemons[PRIMARY].pid
    return reap.on_node(stage.sandbox.id, PRIMARY) - {daemon}


def _observe(
    stage: Stage,
    seen: Seen,
    undisturbed: Node,
    statuses: dict[str, int | None],
    strays: set[int],
    notice_s: float,
) -> Observed:
    stores = [store for node in (stage.primary, stage.standby) for store in node.stores]
    reference: list[StepLine] = read_steps(undisturbed.losses)
    return Observed(
        story=seen.story,
        primary=seen.steps[PRIMARY],
        standby=seen.steps[STANDBY],
        reference=reference,
        notice_s=notice_s,
        statuses=statuses,
        unfinished=[str(path.relative_to(stage.sandbox.folder)) for s in stores for path in unfinished(s)],
        damaged=[str(path.relative_to(stage.sandbox.folder)) for s in stores for path in damaged(s)],
        secrets=secret_in(stage.sandbox.folder),
        strays=sorted(strays),
    )


def unfinished(store: Path) -> list[Path]:
    """Folders in a store that are no committed checkpoint: half-made ones, staging that was not cleared."""
    found = []
    for epoch, folder in epochs(store):
        for path in folders(folder):
            staged = path.name == ".staging" and not any(path.iterdir())
            if not staged and committed_at(path, epoch) is None:
                found.append(path)
    return found


def damaged(store: Path) -> list[Path]:
    """Committed checkpoints of a store that do not verify, digests included."""
    found = [path for epoch, folder in epochs(store) for path in folders(folder) if committed_at(path, epoch)]
    return [path for path in found if verify(path)]


def secret_in(folder: Path) -> list[str]:
    """Logs and histories below ``folder`` that hold a line of a private key of the drill."""
    secrets = [line for key in ("client", "host") for line in _key_lines(folder / "sshd" / key)]
    files = [path for pattern in ("logs/*", "sshd/*.log", "*/state/**/*") for path in folder.glob(pattern)]
    return [
        str(path.relative_to(folder))
        for path in files
        if path.is_file() and any(secret in path.read_bytes() for secret in secrets)
    ]


def _key_lines(path: Path) -> list[bytes]:
    """The lines that are the secret: all but the armour and the beginning every key of a kind shares."""
    lines = path.read_bytes().splitlines()
    return [line for line in lines[2:] if not line.startswith(b"-----")]
