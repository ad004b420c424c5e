"""Names of objects: those of a local store, below ``<prefix>/<job>/``, so that a folder is a local store.

epoch-3/global_step120/<file>                    a file of the checkpoint
epoch-3/global_step120/outlast.manifest.json     written last: now it is committed
epoch-3/.staging/global_step120.offer            who sends it, and what has arrived so far
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from outlast.wire.manifest import MANIFEST_NAME, ManifestError, check_name

_EPOCH = re.compile(r"epoch-(0|[1-9][0-9]{0,15})")
STAGING = ".staging"
OFFER = ".offer"


@dataclass(frozen=True, slots=True)
class Keys:
    """The names of one job's objects; ``root`` is the prefix with the job's name, without a last slash."""

    root: str

    def epoch(self, epoch: int) -> str:
        """What the checkpoints of an epoch lie below."""
        return f"{self.root}/epoch-{epoch}"

    def tag(self, epoch: int, tag: str) -> str:
        """What the files of a checkpoint lie below."""
        return f"{self.epoch(epoch)}/{tag}"

    def file(self, epoch: int, tag: str, path: str) -> str:
        """A file of a checkpoint."""
        return f"{self.tag(epoch, tag)}/{path}"

    def manifest(self, epoch: int, tag: str) -> str:
        """The object that commits a checkpoint."""
        return self.file(epoch, tag, MANIFEST_NAME)

    def claim(self, epoch: int, tag: str) -> str:
        """The object that says who is sending a checkpoint."""
        return f"{self.epoch(epoch)}/{STAGING}/{tag}{OFFER}"

    def inside(self, epoch: int, key: str) -> tuple[str, str] | None:
        """The tag and the path that a key below an epoch stands for; None for anything else."""
        tag, _, path = key.removeprefix(f"{self.epoch(epoch)}/").partition("/")
        return (tag, path) if path and is_tag(tag) else None

    def claimed(self, epoch: int, key: str) -> str | None:
        """The tag whose claim this key is."""
        start = f"{self.epoch(epoch)}/{STAGING}/"
        tag = key.removeprefix(start).removesuffix(OFFER)
        fits = key.startswith(start) and key.endswith(OFFER) and is_tag(tag)
        return tag if fits else None


def epoch_of(name: str) -> int | None:
    """The epoch that the last part of a prefix names."""
    match = _EPOCH.fullmatch(name.rstrip("/").rpartition("/")[2])
    return int(match[1]) if match else None


def is_tag(name: str) -> bool:
    """Whether a folder of that name can be a checkpoint."""
    try:
        check_name(name, "tag")
    except ManifestError:
        return False
    return True
