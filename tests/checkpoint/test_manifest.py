"""The manifest: what it says it reads back, and what a hostile one cannot do."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.wire.digests import digest
from outlast.wire.manifest import (
    MANIFEST_NAME,
    MAX_BYTES,
    FileEntry,
    Manifest,
    ManifestError,
    Part,
    check_name,
    check_staged,
    parse,
    read,
    tag_of,
)
from outlast.wire.messages import Layout

SHA = "0" * 64
names = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}x", fullmatch=True)
paths = st.lists(names, min_size=1, max_size=3).map("/".join)
numbers = st.integers(0, 1 << 53)


def body(**changes: Any) -> dict[str, Any]:
    """A valid manifest's values, changed."""
    files = [{"path": "a.pt", "size": 1, "sha256": SHA}]
    base: dict[str, Any] = {"format": 1, "job": "gpt", "tag": "global_step1", "step": 1, "epoch": 0}
    base |= {"flush_id": "f", "reason": "r", "created": 1.5, "layout": {"world": 2}, "files": files}
    return {**base, **changes}


def with_path(path: object) -> dict[str, Any]:
    """A manifest with one file of that path."""
    return body(files=[{"path": path, "size": 1, "sha256": SHA}])


@given(
    job=names, tag=names, step=numbers, epoch=numbers,
    reason=st.text(max_size=50), created=st.floats(0, 1e12),
    files=st.lists(paths, min_size=1, max_size=5, unique_by=lambda path: path.split("/")[0]),
)  # fmt: skip
def test_a_manifest_reads_back_as_it_was_written(
    job: str, tag: str, step: int, epoch: int, reason: str, created: float, files: list[str]
) -> None:
    """Every manifest we can write we can read, with every value unchanged."""
    entries = tuple(FileEntry(path, 1 + at, SHA) for at, path in enumerate(files))
    manifest = Manifest(job, tag, step, epoch, "f-1", reason, created, Layout(4, 2, 2, 1, 3), entries)
    assert parse(manifest.to_bytes()) == manifest
    assert manifest.total_bytes == sum(entry.size for entry in entries)


def part_body(part: object, **changes: Any) -> dict[str, Any]:
    """A valid manifest's values but for its part."""
    return body(format=3, chunk=1 << 20, part=part, **changes)


@given(
    nodes=st.lists(
        st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True), min_size=2, max_size=5, unique=True
    ),
    data=st.data(),
)
def test_a_part_reads_back_and_is_no_format_that_older_readers_know(
    nodes: list[str], data: st.DataObject
) -> None:
    """Who does not know parts must refuse one by its format, and never take it for a checkpoint."""
    part = Part(data.draw(st.integers(0, len(nodes) - 1)), tuple(nodes))
    entries = (FileEntry("a.pt", 1, SHA),)
    manifest = Manifest("gpt", "global_step1", 1, 0, "f-1", "r", 0.0, Layout(4), entries, part)
    assert parse(manifest.to_bytes()) == manifest
    assert manifest.as_dict()["format"] == 3
    assert check_staged(manifest.staged) == manifest.staged
    assert tag_of(manifest.staged) == "global_step1"
    with pytest.raises(ManifestError):
        check_name(manifest.staged, "tag")


@pytest.mark.parametrize(
    "part",
    [
        None, [], "x", {}, {"index": 0}, {"nodes": ["a", "b"]}, {"index": 0, "nodes": ["a"]},
        {"index": 2, "nodes": ["a", "b"]}, {"index": -1, "nodes": ["a", "b"]},
        {"index": True, "nodes": ["a", "b"]},
        {"index": 0, "nodes": ["a", "a"]}, {"index": 0, "nodes": ["a", "../b"]},
        {"index": 0, "nodes": ["a", 1]},
        {"index": 0, "nodes": ["a", ""]}, {"index": 0, "nodes": ["a", "b\n"]}, {"index": 0, "nodes": "ab"},
        {"index": 0, "nodes": [f"n{i}" for i in range(1025)]}, {"index": 0, "nodes": ["a", "b" * 254]},
    ],
)  # fmt: skip
def test_a_part_out_of_bounds_is_refused(part: object) -> None:
    """Names, their number and the index are bounded; nothing is guessed."""
    parse(json.dumps(part_body({"index": 1, "nodes": ["a", "b"]})).encode())
    with pytest.raises(ManifestError):
        parse(json.dumps(part_body(part)).encode())


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["index", "nodes"]) | st.text(max_size=4), inner, max_size=3),
))  # fmt: skip
def test_any_part_is_refused_or_reads_back(part: object) -> None:
    """Whatever stands there, it is an error or a value that comes back as it was."""
    try:
        manifest = parse(json.dumps(part_body(part)).encode())
    except ManifestError:
        return
    assert parse(manifest.to_bytes()) == manifest


@pytest.mark.parametrize(
    "name",
    ["x.part-", "x.part-a", "x.part-00", "x.part-12345", ".part-1", "x.part-1.part-2", "../x.part-1",
     "x.parts", "x.partial.part-1", "", 7, None],
)  # fmt: skip
def test_a_staged_name_is_a_tag_or_a_part_of_one(name: object) -> None:
    """Nothing else names a folder at a receiver."""
    if name in ("x.part-", "x.part-a"):
        assert check_staged(name) == name  # a tag of that name, odd as it is
        return
    with pytest.raises(ManifestError):
        check_staged(name)


@given(st.binary(max_size=200) | st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
).map(lambda value: json.dumps(value).encode()))  # fmt: skip
def test_garbage_raises_manifest_error_and_nothing_else(data: bytes) -> None:
    """Whatever lies in the file, the reader says that it is no manifest."""
    with pytest.raises(ManifestError):
        parse(data)


@given(
    key=st.sampled_from(sorted(body())),
    value=st.none() | st.booleans() | st.integers() | st.floats() | st.text() | st.lists(st.integers()),
)
def test_a_value_of_the_wrong_kind_is_refused_or_valid(key: str, value: object) -> None:
    """One altered value gives a manifest that still reads back the same, or a ManifestError."""
    try:
        manifest = parse(json.dumps(body(**{key: value})).encode())
    except ManifestError:
        return
    assert parse(manifest.to_bytes()) == manifest


@pytest.mark.parametrize(
    "path",
    ["../x", "a/../../x", "/etc/passwd", "a//b", "./a", "a/.", "", "a\\b", "a\0b", "a\nb", "\ud800", 7, None,
     "x" * 5000, "y" * 256, MANIFEST_NAME, "a.outlast-part", "a/"],
)  # fmt: skip
def test_a_path_that_could_leave_the_folder_is_refused(path: object) -> None:
    """No path in a manifest leads outside the checkpoint's folder or onto our own files."""
    with pytest.raises(ManifestError):
        parse(json.dumps(with_path(path)).encode())


@pytest.mark.parametrize(
    "changes",
    [
        {"format": 2}, {"format": True}, {"job": "../gpt"}, {"job": ".hidden"}, {"tag": "-rf"},
        {"tag": "a/b"},
        {"tag": "global_step1.partial"}, {"tag": "global_step1.damaged-1"}, {"step": -1}, {"step": True},
        {"step": 1 << 60}, {"epoch": "1"}, {"created": float("nan")}, {"created": float("inf")},
        {"layout": {}}, {"layout": {"world": 0}}, {"layout": {"world": 1, "zero_stage": 4}}, {"files": []},
        {"files": [{"path": "a", "size": 0, "sha256": SHA}]},
        {"files": [{"path": "a", "size": 1, "sha256": "x"}]},
        {"files": [{"path": "a", "size": 1, "sha256": SHA}] * 2},
        {"files": [{"path": p, "size": 1, "sha256": SHA} for p in ("a", "a/b")]},
        {"files": [{"path": "a", "size": 1, "sha256": SHA.replace("0", "A")}]}, {"flush_id": "x" * 5000},
    ],
)  # fmt: skip
def test_a_manifest_out_of_bounds_is_refused(changes: dict[str, Any]) -> None:
    """Names, numbers and lists have bounds; outside of them nothing is guessed."""
    with pytest.raises(ManifestError):
        parse(json.dumps(body(**changes)).encode())


def test_too_many_bytes_or_too_deep_is_refused() -> None:
    """A manifest can neither fill our memory nor our stack."""
    with pytest.raises(ManifestError, match="at most"):
        parse(b" " * (MAX_BYTES + 1))
    with pytest.raises(ManifestError):
        parse(b"[" * 200_000)


def test_a_link_in_place_of_a_manifest_or_file_is_not_followed(tmp_path: Path) -> None:
    """Neither the manifest nor a digest is read through a symbolic link, nor from a pipe."""
    outside = tmp_path / "outside"
    outside.write_text(json.dumps(body()))
    (tmp_path / "tag").mkdir()
    (tmp_path / "tag" / MANIFEST_NAME).symlink_to(outside)
    with pytest.raises(ManifestError):
        read(tmp_path / "tag")
    with pytest.raises(OSError, match="symbolic links"):
        digest(tmp_path / "tag" / MANIFEST_NAME)
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(OSError, match="not a regular file"):
        digest(tmp_path / "pipe")
