"""Every kind of destination, each with a real server behind it, and a way to it that can misbehave."""

from __future__ import annotations

import asyncio
import base64
import email.utils
import hashlib
import hmac
import json
import os
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

import pytest
from moto.server import ThreadedMotoServer

from outlast.daemon.checkpoint.destinations import Progress, Shipped
from outlast.daemon.ship.link import Peer, PeerSettings
from outlast.daemon.store.address import parse
from outlast.daemon.store.destination import StoreDestination, StoreSettings
from outlast.daemon.store.listing import everything
from outlast.daemon.store.target import open_target
from outlast.providers.base import SystemClock
from outlast.simulations.saved import committed
from outlast.simulations.sshd import Sshd, receive_command
from outlast.simulations.standins.stores import Way, gcs
from outlast.wire.store import Committed, scan, verify

AZURITE = "azurite@3.37.0"
# The account that every Azure emulator has.
AZURE_ACCOUNT = "devstoreaccount1"
AZURE_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
PROXIES = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy")
MIB = 1024 * 1024


class Destination(Protocol):
    """What a peer and a store have in common."""

    async def ship(self, committed: Committed, progress: Progress | None = None) -> Shipped:
        """Have it committed there."""
        ...


@dataclass
class Place:
    """One destination under test. ``another`` gives a second writer to the same place.

    ``committed`` tells what counts as a checkpoint there: epoch, tag, and whether it is whole.
    """

    kind: str
    destination: Any
    another: Callable[[], Any]
    newest: Callable[[], Any]
    committed: Callable[[], Any]
    way: Way | None = None
    folder: Path | None = None


@pytest.fixture(scope="session")
def moto() -> Iterator[str]:
    """A server that speaks S3."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture(scope="session")
def azurite(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A server that speaks Azure Blob Storage; from npm, kept in the user's cache."""
    program = _azurite_program()
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    flags = ["--inMemoryPersistence", "--silent", "--skipApiVersionCheck", "--disableTelemetry"]
    place = ["--blobHost", "127.0.0.1", "--blobPort", str(port)]
    log = (tmp_path_factory.mktemp("azurite") / "log").open("wb")
    process = subprocess.Popen(["node", program, *flags, *place], stdout=log, stderr=log, cwd="/")
    try:
        _until_open(port, process)
        yield f"http://127.0.0.1:{port}"
    finally:
        process.send_signal(signal.SIGTERM)
        process.wait(10)
        log.close()


def _azurite_program() -> str:
    npm, node = shutil.which("npm"), shutil.which("node")
    if npm is None or node is None:
        pytest.skip("Azure is tried against azurite, which needs node and npm: apt-get install npm")
    cache = Path(os.environ.get("XDG_CACHE_HOME", Path.home() / ".cache")) / "outlast-tests"
    kept = cache / AZURITE.replace("@", "-")
    program = kept / "node_modules" / ".bin" / "azurite-blob"
    if not program.exists():
        fresh = cache / f".{kept.name}.{os.getpid()}"
        fresh.mkdir(parents=True)
        (fresh / "package.json").write_text("{}")
        command = [npm, "install", "--no-audit", "--no-fund", "--ignore-scripts", AZURITE]
        done = subprocess.run(command, cwd=fresh, capture_output=True, text=True, timeout=240, check=False)
        if done.returncode != 0:
            shutil.rmtree(fresh)
            pytest.skip(f"azurite could not be installed from npm: {done.stderr.strip()[-200:]}")
        shutil.rmtree(kept, ignore_errors=True)
        fresh.rename(kept)
    return str(program)


def _until_open(port: int, process: subprocess.Popen[bytes]) -> None:
    until = time.monotonic() + 30
    while time.monotonic() < until and process.poll() is None:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                return
        time.sleep(0.05)
    pytest.fail("azurite does not listen")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Sets what a cloud's own tools would read; nothing else of the machine's speaks."""
    for name in [name for name in os.environ if name.startswith(("AWS_", "AZURE_", "GOOGLE_"))]:
        monkeypatch.delenv(name)
    for name in PROXIES:
        monkeypatch.delenv(name, raising=False)

    def put(**values: str) -> None:
        for name, value in values.items():
            monkeypatch.setenv(name, value)

    return put


def make_bucket(url: str, name: str) -> None:
    """Make a bucket at a server that speaks S3."""
    request = urllib.request.Request(f"{url}/{name}", method="PUT")
    urllib.request.urlopen(request, timeout=10).close()


def make_container(url: str, name: str) -> None:
    """Make a container at a server that speaks Azure's protocol, which checks who asks."""
    date, version = email.utils.formatdate(usegmt=True), "2021-08-06"
    path = f"/{AZURE_ACCOUNT}/{AZURE_ACCOUNT}/{name}"  # the second is the emulator's way to name it
    text = f"PUT{chr(10) * 12}x-ms-date:{date}\nx-ms-version:{version}\n{path}\nrestype:container"
    digest = hmac.new(base64.b64decode(AZURE_KEY), text.encode(), hashlib.sha256).digest()
    key = f"SharedKey {AZURE_ACCOUNT}:{base64.b64encode(digest).decode()}"
    headers = {"x-ms-date": date, "x-ms-version": version, "Authorization": key}
    wanted = f"{url}/{AZURE_ACCOUNT}/{name}?restype=container"
    request = urllib.request.Request(wanted, method="PUT", headers=headers)
    urllib.request.urlopen(request, timeout=10).close()


def store_place(settings: StoreSettings, kind: str, way: Way | None, folder: Path | None = None) -> Place:
    """A store as a place under test."""

    def another() -> StoreDestination:
        return StoreDestination(settings, "gpt", SystemClock())

    async def there() -> list[tuple[int, str, bool]]:
        target = await asyncio.to_thread(open_target, settings, "gpt")
        return [(tag.epoch, tag.name, tag.whole) for tag in await everything(target) if tag.manifest]

    destination = another()
    look = there if folder is None else _whole_in(folder / "gpt")
    return Place(kind, destination, another, destination.newest, look, way, folder)


async def peer_place(tmp_path: Path, stack: AsyncExitStack) -> Place:
    """A peer behind a real SSH server, in which one key can deliver one job."""
    folder = tmp_path / "ssh"
    folder.mkdir()
    server = await stack.enter_async_context(Sshd(folder, receive_command(tmp_path / "replicas", "gpt")))
    settings = PeerSettings(server.host, server.port, server.user, server.host_key, server.client.private)
    peers = [Peer(settings, "gpt", SystemClock()) for _ in range(2)]
    for peer in peers:
        await stack.enter_async_context(running(peer.run()))

    async def newest() -> tuple[int, str, int] | None:
        return (await peers[0].ask_state()).newest

    return Place("peer", peers[0], lambda: peers[1], newest, _whole_in(tmp_path / "replicas" / "gpt"))


def _whole_in(store: Path) -> Callable[[], Any]:
    async def there() -> list[tuple[int, str, bool]]:
        found = await asyncio.to_thread(scan, store)
        whole = [not await asyncio.to_thread(verify, item.path) for item in found]
        return sorted((item.epoch, item.tag, good) for item, good in zip(found, whole, strict=True))

    return there


@pytest.fixture
async def stack() -> AsyncIterator[AsyncExitStack]:
    """Whatever a test starts ends with it."""
    async with AsyncExitStack() as held:
        yield held


@pytest.fixture
def make_place(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    environment: Callable[..., None],
    stack: AsyncExitStack,
) -> Callable[..., Any]:
    """Makes a store of a kind; keyword arguments change its settings."""
    bucket = f"outlast-{os.urandom(4).hex()}"

    async def make(kind: str, **changes: Any) -> Place:
        if kind == "peer":
            return await peer_place(tmp_path, stack)
        if kind == "folder":
            root = tmp_path / "nfs"
            root.mkdir(exist_ok=True)
            return store_place(_settings(str(root), None, changes), kind, None, root)
        server = request.getfixturevalue("azurite" if kind == "az" else "moto")
        await asyncio.to_thread(make_container if kind == "az" else make_bucket, server, bucket)
        way = await stack.enter_async_context(Way(server, gcs) if kind == "gs" else Way(server))
        environment(**_credentials(kind, way.url))
        endpoint = f"{way.url}/{AZURE_ACCOUNT}" if kind == "az" else way.url
        return store_place(_settings(f"{kind}://{bucket}/a/prefix", endpoint, changes), kind, way)

    return make


def _settings(url: str, endpoint: str | None, changes: dict[str, Any]) -> StoreSettings:
    quick = StoreSettings(parse(url), endpoint, patience_s=3.0, part_bytes=5 * MIB)
    return replace(quick, **changes)


def _credentials(kind: str, url: str) -> dict[str, str]:
    if kind == "s3":
        return {"AWS_ACCESS_KEY_ID": "key", "AWS_SECRET_ACCESS_KEY": "secret", "AWS_REGION": "us-east-1"}
    if kind == "az":
        return {"AZURE_STORAGE_ACCOUNT_NAME": AZURE_ACCOUNT, "AZURE_STORAGE_ACCOUNT_KEY": AZURE_KEY}
    account = {"gcs_base_url": url, "disable_oauth": True, "client_email": "", "private_key": ""}
    return {"GOOGLE_SERVICE_ACCOUNT_KEY": json.dumps({**account, "private_key_id": ""})}


async def saved(tmp_path: Path, step: int, **more: Any) -> Committed:
    """A checkpoint committed in the node's own store."""
    return await asyncio.to_thread(committed, tmp_path / "store", step, **more)


@asynccontextmanager
async def running(work: Any) -> AsyncIterator[None]:
    """A task for the length of a block."""
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
