"""`outlast restore` as a user runs it: what it shows, what it fetches, and how it ends."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import IO, TYPE_CHECKING

import pytest

from outlast.daemon.ops.exit import ExitCode
from outlast.simulations.rank import Script, ScriptedRank
from outlast.simulations.saved import FOUR_RANKS, committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.wire.messages import Layout
from outlast.wire.store import newest_whole, scan, verify

if TYPE_CHECKING:
    from tests.cli.conftest import Outcome, Place

CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - name: tune
    checkpoints: {folder}/ckpt
    stores: [{{url: {folder}/nfs}}]
{peer}"""


@pytest.fixture
def stored(place: Place) -> Place:
    """The job has a store beside its own folder."""
    (place.folder / "nfs").mkdir()
    place.config.write_text(CONFIG.format(folder=place.folder, peer=""))
    return place


def restore(place: Place, *words: object) -> Outcome:
    """Run the command with the place's configuration."""
    return place.outlast("restore", "-c", place.config, *words)


def test_the_newest_is_fetched_and_said_where_it_is(stored: Place) -> None:
    """Dry, it tells; then it fetches; then it is here; each time with status 0."""
    committed(stored.folder / "ckpt", 10, job="tune")
    item = committed(stored.folder / "nfs/tune", 30, job="tune")
    dry = restore(stored, "--dry-run")
    assert (dry.code, dry.err) == (0, "")
    assert f"{stored.folder}/ckpt (local): global_step10 of epoch 1" in dry.out
    assert "global_step30 of epoch 1 would be fetched" in dry.out
    assert [one.step for one in scan(stored.folder / "ckpt")] == [10]
    done = restore(stored, "--world", 2, "--zero", 2)
    assert done.code == 0
    assert f"fetched {stored.folder}/ckpt/epoch-1/global_step30" in done.out
    assert verify(stored.folder / "ckpt/epoch-1" / item.tag) == []
    again = restore(stored, "--json")
    assert (again.json["outcome"], again.json["fetched_bytes"]) == ("here", 0)
    assert again.json["newest"]["step"] == 30
    assert [place["kind"] for place in again.json["places"]] == ["local", "file"]


@pytest.mark.parametrize("words", [["--world", "4", "--zero", "2"], ["--pipeline", "2"]])
def test_what_does_not_fit_is_refused(stored: Place, words: list[str]) -> None:
    """65, with how it was saved, what this run has and the two ways out; nothing is fetched."""
    committed(stored.folder / "nfs/tune", 30, job="tune")
    done = restore(stored, *words)
    assert done.code == ExitCode.MISFIT
    assert "saved with 2 ranks" in done.err
    assert "ds_to_universal.py" in done.err
    assert scan(stored.folder / "ckpt") == []
    assert restore(stored, "--any-world").code == 0


def test_nothing_to_restore_and_a_place_that_is_gone(stored: Place) -> None:
    """66 where all places answered; 3 where one that might have it did not."""
    done = restore(stored)
    assert (done.code, "no place has a checkpoint" in done.err) == (ExitCode.NOTHING, True)
    (stored.folder / "nfs").rmdir()
    done = restore(stored, "--from", stored.folder / "nfs")
    assert done.code == ExitCode.UNREACHABLE
    assert "mount it, or make it" in done.out


def test_no_room_is_no_success(stored: Place) -> None:
    """1, with what is in the way, and the older one is not taken for the newest."""
    committed(stored.folder / "nfs/tune", 30, job="tune")
    (stored.folder / "ckpt/epoch-1").write_text("in the way")
    done = restore(stored)
    assert done.code == ExitCode.FAILED
    assert "cannot take global_step30" in done.err


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["--from", "s3://elsewhere"], "give one of local"),
        (["--job", "other"], "give one of tune"),
        (["--any-world", "--world", "2"], "exclude each other"),
        (["--world", "0"], "not a whole number"),
    ],
)
def test_wrong_words_are_usage(stored: Place, words: list[str], why: str) -> None:
    """2, and what could have been said."""
    done = restore(stored, *words)
    assert done.code == ExitCode.USAGE
    assert why in done.err


def test_into_another_folder_from_one_place(stored: Place) -> None:
    """--to leaves the job's folder alone; --from looks nowhere else, even if something newer is here."""
    committed(stored.folder / "ckpt", 40, job="tune")
    committed(stored.folder / "nfs/tune", 30, job="tune")
    other = stored.folder / "other"
    assert restore(stored, "--from", stored.folder / "nfs", "--to", other).code == 0
    assert [one.step for one in scan(other)] == [30]
    assert restore(stored, "--to", other).code == 0
    found = newest_whole(other)
    assert found is not None
    assert found.step == 40
    assert [one.step for one in scan(stored.folder / "ckpt")] == [40]


async def test_from_the_peer(place: Place) -> None:
    """A node whose disk is new and whose peer has the job's checkpoints: one command brings it back."""
    item = await asyncio.to_thread(committed, place.folder / "replicas/tune", 30, job="tune")
    folder = place.folder / "ssh"
    folder.mkdir()
    async with Sshd(folder, receive_command(place.folder / "replicas", "tune")) as server:
        peer = (
            f"    peer: {{ssh: '{server.user}@{server.host}:{server.port}', "
            f"host_key: '{server.host_key}', key: {server.client.private}}}\n"
        )
        (place.folder / "nfs").mkdir()
        place.config.write_text(CONFIG.format(folder=place.folder, peer=peer))
        done = await asyncio.to_thread(restore, place, "--json")
    assert (done.code, done.json["outcome"]) == (0, "fetched")
    assert done.json["newest"]["place"] == f"{server.host}:{server.port}"
    assert done.json["fetched_bytes"] == item.manifest.total_bytes
    gone = await asyncio.to_thread(restore, place, "--from", "peer")
    assert gone.code == ExitCode.UNREACHABLE
    assert "cannot be reached" in gone.out


def test_a_converted_one_is_committed_and_fits_any_run(stored: Place) -> None:
    """What DeepSpeed's converter leaves beside a checkpoint counts once it is committed, and not before."""
    item = committed(stored.folder / "ckpt", 30, job="tune", layout=FOUR_RANKS)
    assert restore(stored, "--world", 2).code == ExitCode.MISFIT
    universal = item.folder / f"{item.tag}_universal"
    empty = restore(stored, "--universal", universal)
    assert (empty.code, "is not <store>/epoch-N/<tag>_universal" in empty.err) == (ExitCode.FAILED, True)
    universal.mkdir()
    (universal / "mp_rank_00_model_states.pt").write_bytes(b"model")
    plain = restore(stored, "--universal", universal)
    assert (plain.code, "no universal checkpoint" in plain.err) == (ExitCode.FAILED, True)
    (universal / "zero/weight").mkdir(parents=True)
    (universal / "zero/weight/fp32.pt").write_bytes(b"weights")
    for _ in range(2):
        done = restore(stored, "--universal", universal)
        assert (done.code, "load_universal" in done.out) == (0, True)
    assert verify(universal) == []
    fits = restore(stored, "--world", 2, "--json")
    assert (fits.code, fits.json["newest"]["tag"]) == (0, universal.name)
    assert restore(stored, "--world", 4, "--json").json["newest"]["tag"] == item.tag


@pytest.fixture
async def rank(stored: Place) -> AsyncIterator[ScriptedRank]:
    """A trainer of one rank, which connects again for as long as it takes."""
    script = Script(stored.folder / "run/trainer.sock", stored.folder / "ckpt", step_s=0.02, size=1000)
    made = ScriptedRank(script)
    task = asyncio.create_task(made.run())
    yield made
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


@pytest.mark.parametrize("at", ["fetching", "fetched"])
async def test_a_daemon_killed_while_it_restores_does_so_in_its_next_life(
    at: str, stored: Place, rank: ScriptedRank
) -> None:
    """kill -9 before and after the fetch: the next life brings the same checkpoint, whole."""
    item = await asyncio.to_thread(
        committed, stored.folder / "nfs/tune", 30, job="tune", layout=layout_of(rank), shard_bytes=300_000
    )
    mark = stored.folder / "died"
    death = ["--at", at, "--any-time", "--victim", "daemon", "--mark", str(mark)]
    with (stored.folder / "log").open("wb") as log:
        first = await life(stored, death, log)
        async with running(first):
            assert await first.wait() == -signal.SIGKILL
        assert mark.exists()
        for one in await asyncio.to_thread(scan, stored.folder / "ckpt"):
            assert await asyncio.to_thread(verify, one.path) == []
        async with running(await life(stored, death, log)):
            while rank.step <= 30:  # noqa: ASYNC110 - a scripted rank has no event for its steps
                await asyncio.sleep(0.02)
    assert rank.resumed is not None
    assert (rank.resumed.tag, rank.resumed.step) == (item.tag, 30)
    assert await asyncio.to_thread(verify, stored.folder / "ckpt/epoch-1" / item.tag) == []


def layout_of(rank: ScriptedRank) -> Layout:
    """What a scripted rank says of its run."""
    world = rank.script.world
    return Layout(world, world, zero_stage=2)


async def life(place: Place, death: list[str], log: IO[bytes]) -> asyncio.subprocess.Process:
    """A daemon with a death appointed, unless it has died of it before."""
    words = ["-m", "outlast.simulations.crashing", *death, "run", "-c", str(place.config)]
    return await asyncio.create_subprocess_exec(sys.executable, *words, stdout=log, stderr=log, env=place.env)


@asynccontextmanager
async def running(process: asyncio.subprocess.Process) -> AsyncIterator[None]:
    """The block has a bound, and the process does not outlive it."""
    try:
        async with asyncio.timeout(30):
            yield
    finally:
        with suppress(ProcessLookupError):
            process.kill()
        await process.wait()


def test_into_a_folder_that_holds_the_jobs_own(stored: Place) -> None:
    """--to is DIR/epoch-N/TAG and nothing else, also where the job's own folder lies deeper in DIR."""
    item = committed(stored.folder / "ckpt", 40, job="tune")
    assert restore(stored, "--to", stored.folder).code == 0
    assert verify(stored.folder / "epoch-1" / item.tag) == []


def test_into_a_folder_of_another_job(stored: Place) -> None:
    """A newer checkpoint of that job is not this one's newest, and one of the same name stays as it is."""
    committed(stored.folder / "nfs/tune", 30, job="tune")
    other = committed(stored.folder / "theirs", 90, job="other")
    done = restore(stored, "--to", stored.folder / "theirs")
    assert done.code == 0
    assert "not usable: a checkpoint of job other" in done.out
    assert f"{stored.folder}/theirs/epoch-1/global_step30" in done.out
    same = committed(stored.folder / "last", 30, job="other")
    refused = restore(stored, "--to", stored.folder / "last")
    assert (refused.code, "is a checkpoint of job other" in refused.err) == (ExitCode.FAILED, True)
    assert [verify(item.path) for item in (other, same)] == [[], []]
