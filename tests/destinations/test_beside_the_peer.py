"""A job with a peer and a store: whatever the store does, the peer's copy arrives and stays whole."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable
from contextlib import AsyncExitStack
from pathlib import Path

import pytest
from tests.core.conftest import Noted, until
from tests.destinations.conftest import MIB, make_bucket, running

from outlast.daemon.config import load
from outlast.daemon.core.destinations import destinations
from outlast.daemon.core.facts import Place as Checkpoint
from outlast.daemon.core.node import Desk, build
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.simulations.standins.stores import Fault, Way
from outlast.wire.store import newest_whole, verify

CONFIG = """\
node: {{name: here, state: {folder}/state, runtime: {folder}/run}}
provider: {{name: none}}
jobs:
  - name: gpt
    checkpoints: {folder}/ckpt
    peer: {{ssh: "{user}@{host}:{port}", host_key: "{host_key}", key: {key}}}
    stores: [{{url: "s3://{bucket}/x", endpoint: "{url}"}}]
    require: all
"""

FAULTS = {
    "fails in mid-upload": lambda: Fault(10_000, fits=lambda m, path: m == "PUT" and "optim" in path),
    "throttles": lambda: Fault(10_000, status=503),
    "loses its credentials": lambda: Fault(10_000, status=403, fits=lambda m, _: m in {"PUT", "POST"}),
}


async def desk_of(
    folder: Path, stack: AsyncExitStack, way: Way, bucket: str, record: Noted
) -> tuple[Desk, Path]:
    """A primary whose peer is a real SSH server; everything runs. And the peer's folder of replicas."""
    for name in ("ckpt", "ssh"):
        (folder / name).mkdir()
    command = receive_command(folder / "replicas", "gpt")
    server = await stack.enter_async_context(Sshd(folder / "ssh", command))
    text = CONFIG.format(
        folder=folder,
        user=server.user,
        host=server.host,
        port=server.port,
        host_key=server.host_key,
        key=server.client.private,
        bucket=bucket,
        url=way.url,
    )
    await asyncio.to_thread((folder / "outlast.yaml").write_text, text)
    settings = await asyncio.to_thread(load, folder / "outlast.yaml", env={})
    desk = (await asyncio.to_thread(build, settings, SystemClock(), record))["gpt"]
    assert desk.peer is not None
    assert desk.replicas is not None
    for work in (desk.peer.run(), desk.keeper.run(lambda: None), desk.replicas.keepers[0].run()):
        await stack.enter_async_context(running(work))
    return desk, folder / "replicas" / "gpt"


@pytest.mark.parametrize("what", FAULTS)
async def test_a_store_in_trouble_leaves_the_peer_alone(
    what: str, moto: str, tmp_path: Path, environment: Callable[..., None], stack: AsyncExitStack
) -> None:
    """The peer has each checkpoint while the store has none, and nothing goes here; then it catches up."""
    bucket, record = f"outlast-{os.urandom(4).hex()}", Noted()
    await asyncio.to_thread(make_bucket, moto, bucket)
    way = await stack.enter_async_context(Way(moto))
    environment(AWS_ACCESS_KEY_ID="key", AWS_SECRET_ACCESS_KEY="secret", AWS_REGION="us-east-1")
    fault = FAULTS[what]()
    way.faults.append(fault)
    desk, replicas = await desk_of(tmp_path, stack, way, bucket, record)
    for number, step in enumerate((10, 20, 30), 1):
        done = await asyncio.to_thread(committed, tmp_path / "ckpt", step, shard_bytes=MIB)
        desk.job.found(Checkpoint(1, done.tag, step, "", done.manifest.total_bytes))
        await record.until("verified", number)
        found = await asyncio.to_thread(newest_whole, replicas)
        assert found is not None
        assert found.step == step
    peer, store = destinations(desk.job, desk.errands)
    assert (peer["kind"], peer["lag"]["bytes"], store["kind"]) == ("peer", 0, "s3")
    assert store["lag"]["steps"] == 30
    assert len(list(await asyncio.to_thread(os.listdir, tmp_path / "ckpt/epoch-1"))) == 4  # three, and latest
    fault.times = 0
    await until(lambda: destinations(desk.job, desk.errands)[1]["lag"]["bytes"] == 0, 40)
    store = destinations(desk.job, desk.errands)[1]
    assert (store["reachable"], store["because"], store["newest"]["step"]) == (True, "", 30)
    assert await asyncio.to_thread(verify, replicas / "epoch-1/global_step30") == []
