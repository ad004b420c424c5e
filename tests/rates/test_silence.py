"""Nodes that could say no last word: what a table makes of real history files that just stop."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.fleet.load import observe
from outlast.daemon.history.counting import SILENT_S, count, merge
from outlast.daemon.history.db import History
from outlast.daemon.history.reading import read_rows
from outlast.daemon.rates.table import CAUSES, UNKNOWN_AGE, Table
from outlast.providers.base import Action, Hint, Identity, Notice

if TYPE_CHECKING:
    from tests.conftest import ManualClock

    NewClock = Callable[[], ManualClock]

HOUR = 3600.0
WHO = Identity("aws", "us-east-1", "us-east-1a", "use1-az4", "p5.48xlarge", "i-0victim")


class Node:
    """One machine with a file and a clock of its own, which beats each minute."""

    def __init__(self, folder: Path, clock: ManualClock, identity: Identity = WHO, name: str = "a") -> None:
        self.file, self.clock, self.identity, self.name = folder / f"{name}.db", clock, identity, name
        self.history = History.open(self.file, clock)
        self.spell = 0

    def start(self, boot: str = "boot-1", drill: bool = False) -> Node:
        """The daemon comes up in this boot."""
        self.spell = self.history.begin_spell(self.identity, self.name, boot, drill)
        return self

    def live(self, minutes: int) -> Node:
        """So many heartbeats, a minute apart."""
        for _ in range(minutes):
            self.clock.advance(60)
            self.history.heartbeat(self.spell)
        return self

    def notice(self, drill: bool = False) -> None:
        """The provider gives two minutes."""
        word = Notice("n-1", Action.TERMINATE, self.clock.monotonic() + 120, "spot/instance-action")
        self.history.notice_seen(self.spell, word, self.clock.wall() + 120, "boot-1", drill)


def stop(*nodes: Node) -> float:
    """The power goes off; a day later is now."""
    for node in nodes:
        node.history.close()
    return max(node.clock.wall() for node in nodes) + 86_400


def table(now: float, *nodes: Node) -> Table:
    """What the files say, which must be what is counted from their rows."""
    found = observe([str(node.file) for node in nodes], now).table
    total = count(merge(*(read_rows(node.file) for node in nodes)), now).total
    assert found.losses.sum() == total.interruptions
    assert found.bursts.sum() == len(found.burst_at) == total.bursts
    assert found.exposure.sum() == pytest.approx(total.exposure_hours)
    return found


def causes(found: Table) -> dict[str, int]:
    """How many stays ended how."""
    return {cause: int(n) for cause, n in zip(CAUSES, found.causes.sum(axis=0), strict=True) if n}


def test_a_stay_that_just_stops_is_cut_off_at_its_last_heartbeat(tmp_path: Path, new_clock: NewClock) -> None:
    """Nobody says why it is silent: exposure up to the last heartbeat, and no loss is made up."""
    node = Node(tmp_path, new_clock()).start().live(90)
    found = table(stop(node), node)
    assert causes(found) == {"running": 1}
    assert found.exposure.sum() == pytest.approx(1.5)
    assert found.losses.sum() == 0


def test_a_later_boot_says_that_the_stay_before_was_lost(tmp_path: Path, new_clock: NewClock) -> None:
    """Without a notice a silent loss, at the last heartbeat; the time in between is nobody's."""
    node = Node(tmp_path, new_clock()).start().live(90)
    silent = node.clock.wall()
    node.clock.advance(5 * HOUR)
    node.start("boot-2").live(60)
    found = table(stop(node), node)
    assert causes(found) == {"silent-loss": 1, "running": 1}
    assert found.exposure.sum() == pytest.approx(2.5)
    assert found.burst_at.tolist() == pytest.approx([silent])
    assert found.spells.tolist() == [2]
    assert found.nodes.tolist() == [1]


def test_silence_after_a_notice_is_an_interruption(tmp_path: Path, new_clock: NewClock) -> None:
    """The notice's deadline passed and no heartbeat came: taken, at the last heartbeat."""
    node = Node(tmp_path, new_clock()).start().live(90)
    node.notice()
    node.live(1)
    found = table(stop(node), node)
    assert causes(found) == {"interruption": 1}
    assert found.burst_at.tolist() == pytest.approx([node.clock.wall()])
    assert found.exposure.sum() == pytest.approx(91 / 60)


@pytest.mark.parametrize("word", ["withdrawn", "outlived", "drill", "hint"])
def test_silence_after_a_word_that_took_nothing_is_no_loss(
    word: str, tmp_path: Path, new_clock: NewClock
) -> None:
    """A notice that was withdrawn, outlived or played, or a hint alone, makes no interruption of silence."""
    node = Node(tmp_path, new_clock()).start().live(90)
    if word == "hint":
        node.history.hint_seen(node.spell, Hint("h-1", "rebalance", "events"))
    else:
        node.notice(drill=word == "drill")
    if word == "withdrawn":
        node.history.notice_withdrawn(node.spell, "n-1")
    node.live(30 if word == "outlived" else 1)
    found = table(stop(node), node)
    assert causes(found) == {"running": 1}
    assert found.losses.sum() == found.left_on_hint.sum() == 0


def test_silence_is_not_believed_before_its_time(tmp_path: Path, new_clock: NewClock) -> None:
    """A node may miss heartbeats for three minutes, whatever its notice or its peer says."""
    node = Node(tmp_path, new_clock()).start().live(90)
    node.notice()
    node.history.close()
    beat = node.clock.wall()
    assert causes(table(beat + 121, node)) == {"running": 1}
    assert causes(table(beat + SILENT_S, node)) == {"running": 1}
    assert causes(table(beat + SILENT_S + 1, node)) == {"interruption": 1}


@pytest.mark.parametrize("sightings", [1, 3])
def test_a_peer_says_what_the_victim_could_not(sightings: int, tmp_path: Path, new_clock: NewClock) -> None:
    """A loss that peers saw ends the victim's stay at its last heartbeat, once however many saw it."""
    node = Node(tmp_path, new_clock()).start().live(90)
    peers = []
    for number in range(sightings):
        there = Identity("aws", "us-west-2", "us-west-2a", "usw2-az1", "p5.48xlarge", f"i-peer{number}")
        peer = Node(tmp_path, new_clock(), there, f"peer-{number}").start().live(95 + number)
        peer.history.loss(WHO, "peer", node="a")
        peers.append(peer)
    found = table(stop(node, *peers), node, *peers)
    assert causes(found) == {"silent-loss": 1, "running": sightings}
    assert found.burst_at.tolist() == pytest.approx([node.clock.wall()])
    assert found.losses.sum() == 1
    assert sum(pool.region == "us-east-1" for pool in found.pools) == 1


def test_a_peer_was_wrong_about_a_node_that_lives_on(tmp_path: Path, new_clock: NewClock) -> None:
    """A node that was given up and beats on an hour later was not lost."""
    node = Node(tmp_path, new_clock()).start().live(90)
    peer = Node(tmp_path, new_clock(), Identity("aws", "us-west-2"), "peer").start().live(60)
    peer.history.loss(WHO, "peer", node="a")
    found = table(stop(node, peer), node, peer)
    assert found.losses.sum() == 0
    assert found.exposure.sum() == pytest.approx(2.5)


def test_a_victim_of_which_nothing_else_is_known_is_a_loss_without_exposure(
    tmp_path: Path, new_clock: NewClock
) -> None:
    """Its file is gone with it: the peer's word counts, at its instant, of unknown age, and is no spell."""
    peer = Node(tmp_path, new_clock(), Identity("aws", "us-west-2"), "peer").start().live(90)
    peer.history.loss(WHO, "peer", node="a")
    seen = peer.clock.wall()
    peer.live(1)
    peer.history.loss(WHO, "peer", node="a")
    found = table(stop(peer), peer)
    assert causes(found) == {"running": 1, "silent-loss": 1}
    lost = [pool.region for pool in found.pools].index("us-east-1")
    assert found.losses[lost, UNKNOWN_AGE].sum() == 1
    assert found.burst_at.tolist() == pytest.approx([seen])
    assert found.exposure[lost].sum() == 0
    assert found.spells[lost] == 0


def test_a_drill_is_in_no_table(tmp_path: Path, new_clock: NewClock) -> None:
    """A rehearsed stay adds neither exposure nor loss, and its pool none to the pools."""
    node = Node(tmp_path, new_clock()).start(drill=True).live(90)
    node.notice(drill=True)
    node.history.loss(WHO, "peer", node="a", drill=True)
    found = table(stop(node), node)
    assert found.pools == ()
    assert found.exposure.sum() == 0


@pytest.mark.parametrize("step", [-7200.0, -120.0, 7200.0])
def test_a_wall_clock_that_is_set_changes_no_length(step: float, tmp_path: Path, new_clock: NewClock) -> None:
    """An hour before the step and a half after it are an hour and a half at risk."""
    node = Node(tmp_path, new_clock()).start().live(60)
    node.clock.step_wall(step)
    node.live(30)
    node.history.end_spell(node.spell, "outbid")
    found = table(stop(node), node)
    assert found.exposure.sum() == pytest.approx(1.5)
    assert causes(found) == {"outbid": 1}
    assert found.losses.sum() == 1


@pytest.mark.parametrize(("up", "band"), [(60.0, 2), (900.0, 2), (901.0, UNKNOWN_AGE), (1e6, UNKNOWN_AGE)])
def test_the_age_is_known_of_a_machine_observed_from_its_start(
    up: float, band: int, tmp_path: Path, new_clock: NewClock
) -> None:
    """A daemon that comes up within a quarter of an hour knows the age; one installed later does not."""
    clock = new_clock()
    clock.mono = up
    node = Node(tmp_path, clock).start().live(90)
    node.history.end_spell(node.spell, "interruption")
    found = table(stop(node), node)
    assert found.losses.sum(axis=(0, 2)).tolist() == [int(each == band) for each in range(UNKNOWN_AGE + 1)]
