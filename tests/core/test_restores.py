"""What a restore took is measured, whether the job came back here or was taken over; and who was lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from outlast.daemon.core.restores import Restores
from outlast.daemon.core.victim import last_heard_of
from outlast.daemon.history.ledger import Changed
from outlast.daemon.history.rows import Pool, Rows, Spell
from outlast.daemon.history.segments import write
from outlast.simulations.rank import Script

if TYPE_CHECKING:
    from tests.conftest import ManualClock
    from tests.core.conftest import Ground, Noted


def told(noted: Noted) -> list[tuple[str, Any]]:
    return [(what, fields.get("seconds")) for what, fields in noted.restores]


def test_a_takeover_counts_from_the_takeover(noted: Noted, manual_clock: ManualClock) -> None:
    """The trainer's start belongs to it, and a first attempt that failed as well."""
    restores = Restores("gpt", manual_clock, noted)
    restores.taken_over()
    manual_clock.advance(10)
    restores.returned()
    restores.resuming(2, "t9", "replica")
    manual_clock.advance(2)
    manual_clock.step_wall(-500)
    restores.gone()
    restores.returned()
    restores.resuming(2, "t9", "replica")
    manual_clock.advance(3)
    restores.stepped(10)
    assert told(noted) == [("began", None), ("failed", 12), ("began", None), ("stepped", 15)]
    first, last = noted.restores[0][1], noted.restores[3][1]
    assert (first["place"], first["tag"], first["epoch"], last["step"]) == ("replica", "t9", 2, 10)
    assert first["id"] != last["id"]


def test_a_return_counts_from_the_trainers_first_word(noted: Noted, manual_clock: ManualClock) -> None:
    """The days in which nobody trained are no restore, and neither is a start from nothing."""
    restores = Restores("gpt", manual_clock, noted)
    restores.returned()
    restores.resuming(1, "", "")
    restores.stepped(1)
    assert noted.restores == []
    restores.gone()
    manual_clock.advance(86400)
    restores.returned()
    manual_clock.advance(4)
    restores.resuming(1, "t1", "own")
    manual_clock.advance(1)
    restores.stepped(2)
    assert told(noted) == [("began", None), ("stepped", 5)]


async def test_a_trainer_that_comes_back_is_timed(ground: Ground) -> None:
    """A real restart: saved, gone, connected again, resumed, one step."""
    script: Script = ground.script()
    async with ground.life() as life:
        async with ground.trainer(script):
            await life.record.until("first_step")
            life.notice(60.0)
            await life.record.until("committed")
        assert life.record.restores == [], "a start from nothing restores nothing"
        life.job.noticed(None)
        async with ground.trainer(script):
            await life.record.until("first_step", 2)
    (began, first), (stepped, last) = life.record.restores
    assert (began, stepped, first["place"]) == ("began", "stepped", "own")
    assert 0 < last["seconds"] < 15


def spell(number: int, heartbeat: float, ended: float | None = None) -> Spell:
    pool = Pool("aws", "r", "z", "t")
    cause = "running" if ended is None else "interruption"
    return Spell(number, pool, f"i-{number}", "there", "b", False, 0.0, heartbeat, heartbeat, ended, cause)


def test_the_peer_names_a_victim_that_said_nothing_more(tmp_path: Path) -> None:
    """The stay that ran last, by the newest segment of each machine that ever sent any."""

    def deliver(writer: str, seq: int, *spells: Spell) -> None:
        write(tmp_path / "stats", "there", Changed(writer, -1, seq, 1, Rows(spells=spells)), seq)

    assert last_heard_of(tmp_path) is None
    deliver("old", 1, spell(1, 900.0))
    deliver("new", 1, spell(2, 950.0))
    deliver("new", 2, spell(2, 950.0, 950.0), spell(3, 1000.0))
    found = last_heard_of(tmp_path)
    assert found == spell(3, 1000.0)
    (tmp_path / "stats" / "there.new" / "00000003.jsonl.gz").write_bytes(b"garbage")
    assert last_heard_of(tmp_path) == spell(3, 1000.0)
