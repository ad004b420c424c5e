"""The parts of the stores' room by themselves: addresses, running digests, what is spare, what is a claim."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.daemon.store import claim as claims
from outlast.daemon.store.address import parse
from outlast.daemon.store.claim import STALE_S, Claim
from outlast.daemon.store.digesting import Running
from outlast.daemon.store.errors import explained
from outlast.daemon.store.layout import Keys
from outlast.daemon.store.listing import Stored, Tag
from outlast.daemon.store.prune import dead, spare
from outlast.daemon.store.sending import part_bytes
from outlast.daemon.store.together import each
from outlast.wire.digests import digest
from outlast.wire.manifest import MANIFEST_NAME, FileEntry, Manifest
from outlast.wire.messages import Layout

MIB = 1024 * 1024


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("s3://bucket", "s3://bucket"),
        ("s3://bucket/", "s3://bucket"),
        ("s3://bucket/a/b/", "s3://bucket/a/b"),
        ("gs://my-bucket/x=1/y", "gs://my-bucket/x=1/y"),
        ("az://container/outlast", "az://container/outlast"),
        ("/mnt/nfs/outlast/", "/mnt/nfs/outlast"),
        ("file:///mnt/nfs", "/mnt/nfs"),
    ],
)
def test_an_address_is_read_and_told(text: str, said: str) -> None:
    """What was written comes back without needless slashes."""
    assert str(parse(text)) == said
    assert parse(said) == parse(text)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bucket",
        "relative/folder",
        "http://bucket/x",
        "s3:/bucket",
        "s3://",
        "s3:///x",
        "s3://b/x",
        "s3://key:secret@bucket/x",
        "s3://bucket:80/x",
        "s3://bucket/x?versionId=1",
        "s3://bucket/x#y",
        "s3://bucket/a//b",
        "s3://bucket/../other",
        "s3://bucket/a b",
        "s3://[bad/x",
        "file://host/x",
        "file:///",
        "/",
        "/..",
        "/a\nb",
    ],
)
def test_what_is_no_address_is_refused_without_its_secrets(text: str) -> None:
    """A ValueError says what would do; a password in it is not repeated."""
    with pytest.raises(ValueError, match=r"\w") as caught:
        parse(text)
    assert "secret" not in str(caught.value)


@given(st.text(max_size=60))
def test_any_text_is_an_address_or_a_value_error(text: str) -> None:
    """Nothing else is raised; what is taken leads nowhere but below its bucket or folder."""
    try:
        address = parse(text)
    except ValueError:
        return
    assert ".." not in address.prefix.split("/")
    assert address.bucket or address.folder


@given(st.binary(max_size=5000), st.sampled_from([0, 1, 7, 64, 4096]), st.lists(st.integers(1, 900)))
def test_a_running_digest_is_that_of_the_file(data: bytes, chunk: int, cuts: list[int]) -> None:
    """However the bytes are cut on their way, the digest is the one of the file on a disk."""
    running, left = Running(chunk), data
    for size in cuts:
        running.update(left[:size])
        left = left[size:]
    running.update(left)
    assert running.size == len(data)
    if not data and chunk:
        return  # no file of a checkpoint is empty
    with _written(data) as path:
        assert running.hexdigest() == digest(path, chunk)
        entry = FileEntry("f", len(data), digest(path, chunk), chunk)
    assert running.differs_from(entry) == ""


class _written:  # noqa: N801 - reads like a function
    def __init__(self, data: bytes) -> None:
        import tempfile

        self._file = tempfile.NamedTemporaryFile()  # noqa: SIM115 - closed on exit
        self._file.write(data)
        self._file.flush()

    def __enter__(self) -> Path:
        return Path(self._file.name)

    def __exit__(self, *_: object) -> None:
        self._file.close()


@given(st.integers(1, 1 << 50))
def test_no_file_has_more_parts_than_stores_take(size: int) -> None:
    """At most ten thousand, each of whole MiB."""
    part = part_bytes(8 * MIB, size)
    assert part % MIB == 0
    assert -(-size // part) <= 10_000


def tag_of(epoch: int, step: int, *, whole: bool = True, committed: bool = True, at: float = 0.0) -> Tag:
    """A tag as a listing finds it."""
    entry = FileEntry("f", 3, "0" * 64)
    tag = Tag(epoch, f"global_step{step}")
    if committed:
        layout = Layout(world=1)
        tag.manifest = Manifest("gpt", tag.name, step, epoch, "f", "r", 0.0, layout, (entry,))
        tag.objects[MANIFEST_NAME] = Stored(10, "m", at)
    tag.objects["f"] = Stored(3 if whole else 2, "f", at)
    return tag


tags = st.builds(
    tag_of,
    st.integers(0, 3),
    st.integers(0, 9),
    whole=st.booleans(),
    committed=st.booleans(),
    at=st.floats(0, 2 * STALE_S),
)


@given(st.lists(tags, max_size=12, unique_by=lambda tag: (tag.epoch, tag.name)), st.integers(0, 5))
def test_retention_takes_only_whole_ones_older_than_all_that_stay(held: list[Tag], keep: int) -> None:
    """What goes is whole and committed; at least two newer whole ones stay, or as many as are wanted."""
    gone = spare(held, keep)
    stay = [tag for tag in held if tag.whole and tag not in gone]
    assert all(tag.whole for tag in gone)
    assert not gone or len(stay) == max(keep, 2)
    assert all(old.order < new.order for old in gone for new in stay)


@given(st.lists(tags, max_size=12, unique_by=lambda tag: (tag.epoch, tag.name)))
def test_only_what_was_never_committed_and_is_silent_counts_as_dead(held: list[Tag]) -> None:
    """A committed one is never swept, nor what was touched within the hour."""
    now = 2 * STALE_S
    for tag in dead(held, "global_step1", now):
        assert MANIFEST_NAME not in tag.objects
        assert tag.name != "global_step1"
        assert now - tag.touched >= STALE_S


@given(st.binary(max_size=200) | st.text(max_size=100).map(str.encode))
def test_a_claim_of_anybody_is_read_or_is_none(data: bytes) -> None:
    """No bytes make the reader fail."""
    assert claims.read(data) is None or isinstance(claims.read(data), Claim)


def test_a_claim_comes_back_as_it_was() -> None:
    """Only an object of the recorded size and mark counts as the one that was sent."""
    claim = claims.read(Claim("f" * 64, {"a/b": (3, "mark")}).to_bytes())
    assert claim is not None
    assert claim.holds("a/b", Stored(3, "mark", 0.0))
    assert not claim.holds("a/b", Stored(3, "other", 0.0))
    assert not claim.holds("a/b", Stored(4, "mark", 0.0))
    assert not claim.holds("a/b", None)
    assert not claim.holds("c", Stored(3, "mark", 0.0))


def test_keys_and_what_they_mean() -> None:
    """Names are those of a local store; what is none of ours is nobody's tag."""
    keys = Keys("p/gpt")
    assert keys.file(3, "global_step1", "a/b.pt") == "p/gpt/epoch-3/global_step1/a/b.pt"
    assert keys.inside(3, "p/gpt/epoch-3/global_step1/a/b.pt") == ("global_step1", "a/b.pt")
    assert keys.inside(3, "p/gpt/epoch-3/.staging/global_step1.offer") is None
    assert keys.inside(3, "p/gpt/epoch-3/global_step1.partial/a") is None
    assert keys.inside(3, "p/gpt/epoch-3/latest") is None
    assert keys.claimed(3, keys.claim(3, "global_step1")) == "global_step1"
    assert keys.claimed(3, "p/gpt/epoch-3/.staging/x") is None


@pytest.mark.parametrize(
    ("text", "code", "word"),
    [
        (
            "Server returned non-2xx status code: 403: <Code>AccessDenied</Code>",
            "credentials",
            "403",
        ),
        (
            "non-2xx status code: 400: <Code>ExpiredToken</Code>",
            "credentials",
            "ExpiredToken",
        ),
        ("Error performing token request: connect", "credentials", "role"),
        ("Server returned non-2xx status code: 404: <Code>NoSuchBucket</Code>", "bad_request", "make the"),
        ("Server returned non-2xx status code: 301 Moved", "bad_request", "region"),
        ("write: No space left on device (os error 28)", "no_space", "full"),
        ("Server returned non-2xx status code: 503: <Code>SlowDown</Code>", "", "throttles"),
        ("Server returned non-2xx status code: 500: no token for you", "", "500"),
        ("error sending request for url (https://h/b?sig=HUSH)", "", "does not answer"),
    ],
)
def test_a_failure_is_told_with_what_to_do(text: str, code: str, word: str) -> None:
    """Which failures are the credentials', the bucket's, the disk's or the weather's; without signatures."""
    told = explained(parse("s3://bucket/x"), RuntimeError(text))
    assert getattr(told, "code", "") == code
    assert word in str(told)
    assert "HUSH" not in str(told)


async def test_the_first_failure_ends_the_others_and_is_told() -> None:
    """Side by side, but no more than asked for; nothing is left running."""
    now, most, cut = 0, 0, 0

    async def work(item: int) -> None:
        nonlocal now, most, cut
        now += 1
        most = max(most, now)
        try:
            await asyncio.sleep(0)
            if item == 7:
                raise LookupError(item)
            if item > 7:
                await asyncio.Event().wait()
        except asyncio.CancelledError:
            cut += 1
            raise
        finally:
            now -= 1

    with pytest.raises(LookupError, match="7"):
        await each(range(100), 3, work)
    assert (now, most, cut) == (0, 3, 2)
