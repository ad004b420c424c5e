"""The claim on a tag that is being sent: whose it is, and what has arrived. One small object."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass, field

from outlast.daemon.checkpoint.destinations import TAKEN, Refused
from outlast.daemon.store.errors import asked, sought
from outlast.daemon.store.listing import Stored, Tag, read_object
from outlast.daemon.store.target import Target
from outlast.wire.manifest import MAX_BYTES, Manifest

# An upload that has said nothing for so long is dead: its tag may be taken up, or its leftovers swept.
STALE_S = 3600.0


@dataclass
class Claim:
    """``manifest`` is the SHA-256 of the manifest that is sent. ``arrived``: size and mark of each file that
    is there. Only an object with both is believed to hold the bytes that were sent."""

    manifest: str
    arrived: dict[str, tuple[int, str]] = field(default_factory=dict)

    def holds(self, path: str, seen: Stored | None) -> bool:
        """Whether the object is the one that was sent."""
        return seen is not None and self.arrived.get(path) == (seen.size, seen.mark)

    def to_bytes(self) -> bytes:
        """The object's contents."""
        return json.dumps({"format": 1, "manifest": self.manifest, "arrived": self.arrived}).encode()


def fingerprint(manifest: Manifest) -> str:
    """What tells one checkpoint from another of the same tag."""
    return hashlib.sha256(manifest.to_bytes()).hexdigest()


def read(data: bytes) -> Claim | None:
    """A claim that anybody may have written; None for what is none."""
    try:
        body = json.loads(data)
        arrived = {str(path): (int(size), str(mark)) for path, (size, mark) in body["arrived"].items()}
        return Claim(str(body["manifest"]), arrived)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


async def take(target: Target, manifest: Manifest, seen: Tag, now: float) -> Claim:
    """Claim the tag, or take up the claim that an earlier try of the same checkpoint left. ``now``: UTC.

    Raises Refused with code ``taken`` while another writer sends something else under that name.
    """
    import obstore
    from obstore.exceptions import AlreadyExistsError

    key = target.keys.claim(manifest.epoch, manifest.tag)
    mine = Claim(fingerprint(manifest))
    try:
        await asked(target.address, obstore.put_async(target.store, key, mine.to_bytes(), mode="create"))
    except AlreadyExistsError:
        found = await read_object(target, key, MAX_BYTES)
        theirs = read(found.data) if found else None
        if theirs is not None and theirs.manifest == mine.manifest:
            return theirs
        if now - max(seen.touched, found.at if found else 0.0) < STALE_S:
            raise Refused(
                TAKEN,
                f"another writer is sending a different {manifest.tag} of epoch {manifest.epoch} to"
                f" {target.address}: only one node may train the job in an epoch",
            ) from None
        await write(target, manifest, mine)
    return mine


async def write(target: Target, manifest: Manifest, claim: Claim) -> None:
    """Record what has arrived, so that a later try does not send it again."""
    import obstore

    key = target.keys.claim(manifest.epoch, manifest.tag)
    await asked(target.address, obstore.put_async(target.store, key, claim.to_bytes()))


async def drop(target: Target, epoch: int, tag: str) -> None:
    """The claim has done its work."""
    import obstore

    await sought(target.address, obstore.delete_async(target.store, target.keys.claim(epoch, tag)))
