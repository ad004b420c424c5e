"""`outlast plan`: the deadline plan on paper, for every notice and every size, and its usage."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.__main__ import main
from outlast.daemon.core.on_paper import Setup, at_notice, figures, sessions
from outlast.daemon.ops.exit import ExitCode
from outlast.daemon.ship.carrier import Carrier
from outlast.daemon.ship.dial import PeerSettings
from outlast.providers.base import SystemClock
from outlast.providers.notices import NOTICES, NoticeLength

if TYPE_CHECKING:
    from tests.cli.conftest import Place

SEVEN = ["plan", "--model-params", "7e9", "--zero", "2", "--gpus", "8", "--bandwidth", "10G"]


def told(capsys: pytest.CaptureFixture[str], *words: str) -> Any:
    """What the command prints as JSON."""
    assert main([*words, "--json"]) == ExitCode.DONE
    return json.loads(capsys.readouterr().out)


def test_a_whole_7b_does_not_fit_into_two_minutes(place: Place) -> None:
    """The documented example: sizes, times, what is done, what is lost, and the interval, in words."""
    done = place.outlast(*SEVEN, "--notice", "120s")
    assert (done.code, done.err) == (ExitCode.DONE, "")
    for words in (
        "98.0 GB: 7B trained parameters, 14 bytes each, on 1 node",
        "save        49 s, in which training stands still",
        "ship        87 s at 1.1 GB/s, limited by the link",
        "interval    every 30.8 min: a checkpoint holds training up for 49 s",
        "at a notice of 120 s, then terminate: ship what is under way",
        "119.0 s are too short to flush and ship (145.9 s needed)",
        "lost: at most 1,846 steps (30.8 min), on average 923 steps (15.4 min)",
        "Assumed: A node's disk writes 2GB/s (--disk).",
        "Assumed: The job is interrupted once in 10 hours (--mtbf, --hazard).",
    ):
        assert words in done.out


def test_every_providers_notice_is_in_the_table(place: Place) -> None:
    """Without --notice: a row for each known length, from 0 s to 420 s."""
    lines = place.outlast(
        "plan", "--model-params", "1.3B", "--gpus", "8", "--bandwidth", "10G"
    ).out.splitlines()
    head = next(i for i, line in enumerate(lines) if line.startswith("provider"))
    rows = [line.split() for line in lines[head + 1 : head + 1 + len(NOTICES)]]
    assert [row[0] for row in rows] == [n.provider for n in NOTICES]
    assert {float(row[1]) for row in rows} == {0.0, 5.0, 8.0, 30.0, 120.0, 300.0, 420.0}


@pytest.mark.parametrize(
    ("words", "choices"),
    [
        # A LoRA fits wherever there is any time at all. 1.3B needs 30 s for all of it, 7B 146 s; less serves
        # to finish what is under way. 70B over 10 Gbit/s: a disk that survives, or what lies at the peer.
        (["--model-params", "7B", "--trainable", "7M"], "KK BB B BB BB"),
        (["--model-params", "1.3B"], "KK KK S BB BB"),
        (["--model-params", "7B"], "KK KK K SS BB"),
        (["--model-params", "70B", "--gpus", "64"], "KK KK K HK KK"),
    ],
    ids=["LoRA", "1.3B", "7B", "70B"],
)
def test_every_notice_against_every_size(
    capsys: pytest.CaptureFixture[str], words: list[str], choices: str
) -> None:
    """Choices in the table's order: vast, aws hibernate, runpod, azure, gcp, aws stop, aws terminate,
    volcengine, coreweave; what cannot be done at all loses more than the interval."""
    body = told(capsys, "plan", "--gpus", "8", *words, "--bandwidth", "10G")
    short = {
        "flush and ship": "B",
        "ship what is under way": "S",
        "flush to a disk that survives": "H",
        "keep to the last committed": "K",
    }
    seen = [short[row["choice"]] for row in body["notices"]]
    assert "".join(seen) == choices.replace(" ", "")
    for row, choice in zip(body["notices"], seen, strict=True):
        assert (row["lost_steps"] == 0) == (choice == "B")
        assert row["kept_here"] == (choice == "H")
        if choice == "K" and row["notice_s"] == 0:
            assert row["lost_s"] == pytest.approx(body["interval_s"] + body["commit_s"] + body["ship_s"])


def test_the_interval_is_never_shorter_than_the_transfer(capsys: pytest.CaptureFixture[str]) -> None:
    """70B over 1 Gbit/s takes 2.4 hours to ship: saving more often would only queue up."""
    body = told(capsys, "plan", "--model-params", "70B", "--gpus", "8", "--bandwidth", "1G", "--mtbf", "1h")
    assert body["interval_s"] == pytest.approx(body["ship_s"])
    assert "less than one takes to ship" in body["interval_because"]


def test_what_limits_the_transfer_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    """Distance, encryption and disk each can be what a fast link waits for."""
    fast = ["plan", "--model-params", "7B", "--gpus", "8", "--bandwidth", "100G"]
    assert told(capsys, *fast, "--disk", "500MB/s")["limited_by"] == "the disk"
    assert told(capsys, *fast, "--rtt", "70ms")["limited_by"] == "8 channels' windows"
    assert told(capsys, *fast, "--rtt", "30ms")["limited_by"] == "4 channels' windows"
    body = told(capsys, *fast, "--rtt", "1ms", "--cores", "2")
    assert (body["limited_by"], body["bytes_per_s"]) == ("encryption on 2 cores", 370_000_000)


def test_each_node_sends_its_part_over_sessions_of_its_own(capsys: pytest.CaptureFixture[str]) -> None:
    """Four nodes at a distance send four times as much as one, until the link they share is full."""
    many = ["plan", "--model-params", "70e9", "--zero", "3", "--rtt", "70ms", "--disk", "10GB/s"]
    one, four = (told(capsys, *many, "--bandwidth", "100G", "--gpus", gpus) for gpus in ("8", "32"))
    assert (one["nodes"], four["nodes"]) == (1, 4)
    assert four["bytes_per_s"] == pytest.approx(4 * one["bytes_per_s"], abs=4)
    assert told(capsys, *many, "--bandwidth", "4G", "--gpus", "32")["limited_by"] == "the link"


@pytest.mark.parametrize("rtt_s", [0.0, 0.0001, 0.01, 0.0301, 0.07, 0.3])
@pytest.mark.parametrize("channels", [1, 4, 8, 16])
def test_as_many_sessions_on_paper_as_are_opened(rtt_s: float, channels: int) -> None:
    """What is reckoned on paper is what ships: sessions by distance, configured or not."""
    settings = PeerSettings("peer", 22, "outlast", "", Path("key"), channels=channels)
    carrier = Carrier(settings, SystemClock())
    carrier.rtt_s = rtt_s
    assert sessions(rtt_s, channels) == carrier._sessions()
    assert Setup(7e9, 2, 8, 8, 1e9, 1e9, 1.0).channels == PeerSettings.channels


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (["--bandwidth", "10G"], ["--bandwidth", "1.25GB/s"]),
        (["--bandwidth", "10Gbit/s"], ["--bandwidth", "10000Mb/s"]),
        (["--bandwidth", "10G", "--disk", "16Gbit/s"], ["--bandwidth", "10G", "--disk", "2G"]),
        (["--bandwidth", "10G", "--mtbf", "2h"], ["--bandwidth", "10G", "--hazard", "0.5"]),
        (["--bandwidth", "10G", "--model-params", "7B"], ["--bandwidth", "10G", "--model-params", "7000m"]),
    ],
)
def test_one_amount_in_several_spellings(
    capsys: pytest.CaptureFixture[str], one: list[str], other: list[str]
) -> None:
    """Bits and bytes, prefixes, a rate or its inverse: the same plan."""
    bodies = [told(capsys, "plan", "--model-params", "7e9", *words) for words in (one, other)]
    for body in bodies:
        del body["assumed"]
    assert bodies[0] == bodies[1]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--model-params", "7B"], "--bandwidth"),
        (["--model-params", "many", "--bandwidth", "10G"], "'many' is not a number of parameters"),
        (["--model-params", "0", "--bandwidth", "10G"], "'0' is not a number of parameters"),
        (["--model-params", "7B", "--bandwidth", "10X"], "'10X' is not a rate such as 10G"),
        (["--model-params", "7B", "--bandwidth", "-1G"], "--bandwidth"),
        (["--model-params", "7B", "--bandwidth", "10G", "--notice", "soon"], "must be a duration"),
        (["--model-params", "7B", "--bandwidth", "10G", "--step", "0s"], "'0s' is not above nothing"),
        (["--model-params", "7B", "--bandwidth", "10G", "--zero", "4"], "--zero"),
        (["--model-params", "7B", "--bandwidth", "10G", "--gpus", "0"], "'0' is not a whole number"),
        (["--model-params", "7B", "--bandwidth", "10G", "--hazard", "0"], "'0' is not a number of"),
        (["--model-params", "7B", "--bandwidth", "10G", "--hazard", "1", "--mtbf", "1h"], "not allowed with"),
        (["--model-params", "7B", "--bandwidth", "10G", "--trainable", "8B"], "more than --model-params"),
        (["--model-params", "7B", "--bandwidth", "10G", "--action", "stop"], "--action goes with --notice"),
    ],
)
def test_wrong_words_are_usage(capsys: pytest.CaptureFixture[str], words: list[str], why: str) -> None:
    """Each is named on stderr with what would be right; status 2."""
    with pytest.raises(SystemExit) as ended:
        main(["plan", *words])
    out, err = capsys.readouterr()
    assert ended.value.code == ExitCode.USAGE
    assert why in err
    assert out == ""


SETUPS = st.builds(
    Setup,
    parameters=st.floats(1e6, 1e12),
    zero=st.integers(0, 3),
    gpus=st.integers(1, 512),
    gpus_a_node=st.sampled_from([1, 4, 8]),
    link_bytes_s=st.floats(1e6, 1e11),
    disk_bytes_s=st.floats(1e8, 1e11),
    step_s=st.floats(0.01, 60.0),
    rtt_s=st.none() | st.floats(0.0001, 0.3),
    channels=st.integers(1, 16),
    cores=st.none() | st.integers(1, 64),
    hazard_per_hour=st.none() | st.floats(0.001, 2.0),
)
LENGTHS = st.builds(
    NoticeLength, st.just(""), st.floats(0.0, 600.0), st.sampled_from(["terminate", "stop", "pause"])
)


@given(SETUPS, LENGTHS, st.floats(1.0, 100.0))
def test_more_bandwidth_never_makes_it_worse(setup: Setup, notice: NoticeLength, factor: float) -> None:
    """A faster link: as good a choice or a better one, and never more lost beyond the interval."""
    faster = replace(setup, link_bytes_s=setup.link_bytes_s * factor)
    slow, fast = (at_notice(s, figures(s), notice) for s in (setup, faster))
    assert fast.verdict.choice.rank <= slow.verdict.choice.rank
    assert fast.lost_s <= slow.lost_s + 1e-6
    assert fast.mean_s <= slow.mean_s + 1e-6


@given(SETUPS, LENGTHS, st.floats(0.0, 600.0))
def test_a_longer_notice_never_makes_it_worse(setup: Setup, notice: NoticeLength, more_s: float) -> None:
    """More time: as good a choice or a better one, no more lost, no less moved."""
    one = figures(setup)
    short, long = (
        at_notice(setup, one, n) for n in (notice, replace(notice, seconds=notice.seconds + more_s))
    )
    assert long.verdict.choice.rank <= short.verdict.choice.rank
    assert long.lost_s <= short.lost_s + 1e-6
    assert long.movable >= short.movable


@given(SETUPS, LENGTHS)
def test_no_more_is_lost_than_an_interval_and_a_transfer(setup: Setup, notice: NoticeLength) -> None:
    """At worst the interval, the commit and the transfer are lost: about 2 C/B where C/B rules."""
    one = figures(setup)
    row = at_notice(setup, one, notice)
    assert 0 <= row.mean_s <= row.lost_s
    assert row.lost_s <= (one.pace.seconds + one.commit_s + one.ship_s) * 1.000001
