"""A fleet's Parquet in an object store: a real server on a socket, the real clients against it."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from moto.server import ThreadedMotoServer

from outlast.daemon.fleet.load import observe
from outlast.daemon.fleet.place import PlaceError, StorePlace, place_of

HEADER = "provider,region,zone,instance_type,node,began,ended,cause\n"
NODES = 12


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    """A server that speaks S3, with nothing in it."""
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def bucket(address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """An empty bucket's URL; where the store is and who asks is in the environment, as the SDKs have it."""
    for name in ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "http_proxy", "https_proxy", "all_proxy"):
        monkeypatch.delenv(name, raising=False)
    said = {
        "AWS_ENDPOINT_URL": address,
        "AWS_ALLOW_HTTP": "true",
        "AWS_ACCESS_KEY_ID": "key",
        "AWS_SECRET_ACCESS_KEY": "secret",
        "AWS_REGION": "us-east-1",
    }
    for name, value in said.items():
        monkeypatch.setenv(name, value)
    import boto3

    number = os.urandom(4).hex()
    store = boto3.client("s3", endpoint_url=address, region_name="us-east-1")
    store.create_bucket(Bucket=f"fleet-{number}")
    store.close()
    return f"s3://fleet-{number}/a/prefix"


def spells(folder: Path, name: str, nodes: range, last: str = "09:00", cause: str = "interruption") -> Path:
    """A file of one spell a node, in two months."""
    days = {n: f"2026-0{1 + n % 2}-03T" for n in nodes}
    lines = (f"n-{n},{day}00:00:00Z,{day}{last}:00Z,{cause}\n" for n, day in days.items())
    text = "".join(f"aws,us-east-1,use1-az4,g5.xlarge,{line}" for line in lines)
    path = folder / name
    path.write_text(HEADER + text)
    return path


def started(*words: str) -> subprocess.Popen[str]:
    """``outlast WORDS``, in a process of its own."""
    command = [sys.executable, "-m", "outlast", *words]
    return subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)


def done(process: subprocess.Popen[str]) -> str:
    """What it printed; it has to succeed."""
    out, err = process.communicate(timeout=50)
    assert process.returncode == 0, err
    return out


def counted(source: str) -> tuple[int, int, float]:
    """Spells, losses and exposure that are read from there."""
    table = observe([source], time.time()).table
    return int(table.spells.sum()), int(table.losses.sum()), round(float(table.exposure.sum()), 6)


def test_a_name_that_is_there_is_not_written_again(bucket: str, tmp_path: Path) -> None:
    """Whoever comes second changes nothing, whatever it brings: the store itself refuses."""
    import obstore

    place = StorePlace(bucket)
    for text in ("first", "second"):
        (tmp_path / "file").write_text(text)
        place.put("spells/x.parquet", tmp_path / "file")
    assert place.names("") == ["spells/x.parquet"]
    kept = obstore.get(place._store, "a/prefix/spells/x.parquet").bytes()
    assert bytes(kept) == b"first"


def test_two_mergers_at_once_lose_nothing(bucket: str, tmp_path: Path) -> None:
    """Both add to the same months at the same time, some spells the same; every spell counts once."""
    one = spells(tmp_path, "one.csv", range(8))
    two = spells(tmp_path, "two.csv", range(4, NODES))
    for process in [started("history", "merge", "--into", bucket, str(file)) for file in (one, two)]:
        done(process)
    assert counted(bucket) == (NODES, NODES, 9.0 * NODES)
    (pool,) = json.loads(done(started("report", bucket, "--json")))["pools"]
    assert (pool["spells"], pool["losses"]) == (NODES, NODES)


def test_merging_again_adds_nothing_and_later_versions_count(bucket: str, tmp_path: Path) -> None:
    """The second merge puts no file; a spell that went on is one spell, up to its end."""
    early = spells(tmp_path, "early.csv", range(NODES), "04:00", "running")
    late = spells(tmp_path, "late.csv", range(NODES))
    merged = [
        json.loads(done(started("history", "merge", "--into", bucket, "--json", str(file))))["added"]
        for file in (early, late, early, late)
    ]
    assert merged == [NODES, NODES, 0, 0]
    assert len(place_of(bucket).names("")) == 4
    assert counted(bucket) == (NODES, NODES, 9.0 * NODES)


def test_a_store_merges_into_a_file_and_back(bucket: str, tmp_path: Path) -> None:
    """The same spells, wherever they lie."""
    file = tmp_path / "fleet.sqlite3"
    done(started("history", "merge", "--into", bucket, str(spells(tmp_path, "a.csv", range(NODES)))))
    done(started("history", "merge", "--into", str(file), bucket))
    assert counted(str(file)) == counted(bucket)
    assert "nothing new" in done(started("history", "merge", "--into", bucket, str(file)))


def test_a_store_that_refuses_is_said_in_one_line(bucket: str, tmp_path: Path) -> None:
    """A bucket that is not there: the URL, why, and what to look at."""
    file = spells(tmp_path, "a.csv", range(2))
    process = started("history", "merge", "--into", "s3://no-such-bucket/x", str(file))
    _, err = process.communicate(timeout=50)
    assert process.returncode == 1
    assert err.startswith("outlast history merge: s3://no-such-bucket does not do as asked")
    assert "credentials" in err
    assert len(err.splitlines()) == 1
    with pytest.raises(PlaceError):
        place_of("s3://no-such-bucket/x").names("")
