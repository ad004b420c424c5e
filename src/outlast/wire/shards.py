"""What DeepSpeed writes into a tag, as far as names and archives tell without loading anything.

Nothing here unpickles: a checkpoint is data, and whoever wrote it gets no code run.
"""

from __future__ import annotations

import pickletools
import re
import zipfile
from pathlib import Path

from outlast.wire.messages import Layout

_SHARD = re.compile(
    r"(?P<head>(?:bf16_)?zero_pp_rank_)(?P<rank>[0-9]+)(?P<tail>_mp_rank_[0-9]+_(?:optim|model)_states\.pt)"
)
_STATE = re.compile(r"outlast_rank_([0-9]{5})\.pt")
_MAX_PICKLE = 64 * 1024 * 1024


def state_name(rank: int) -> str:
    """The file each rank writes beside DeepSpeed's: random-number and data state."""
    return f"outlast_rank_{rank:05d}.pt"


def torn(path: Path) -> str:
    """What is wrong with one ``.pt`` archive by its own checksums, or an empty text."""
    try:
        with path.open("rb") as file:
            if file.read(2) == b"\x80\x02":
                return ""  # torch's format before 1.6: a bare pickle, which carries no checksum
        with zipfile.ZipFile(path) as archive:
            if any(item.compress_type != zipfile.ZIP_STORED for item in archive.infolist()):
                return "torn: compressed, which torch never writes"
            bad = archive.testzip()
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError) as exc:
        return f"torn: {exc}"
    return f"torn: {bad} inside does not match its checksum" if bad else ""


def missing(path: Path, names: set[str]) -> list[str]:
    """Shards that must have existed beside ``names``, by the ranks that did write and what they noted."""
    families = {(match["head"], match["tail"]) for name in names if (match := _SHARD.fullmatch(name))}
    ranks = [int(match["rank"]) for name in names if (match := _SHARD.fullmatch(name))]
    states = [int(match[1]) for name in names if (match := _STATE.fullmatch(name))]
    data = max([rank + 1 for rank in ranks] + [_data_size(path, names)], default=0)
    wanted = {f"{head}{rank}{tail}" for head, tail in families for rank in range(data)}
    wanted |= {state_name(rank) for rank in range(max(states, default=-1) + 1)}
    if not any(name.endswith("model_states.pt") for name in names):
        wanted.add("mp_rank_00_model_states.pt")
    return sorted(wanted - names)


def expected(layout: Layout, names: set[str]) -> list[str]:
    """Names that a save of all ranks under ``layout`` must have left and that ``names`` lacks, readable."""
    lacking = [state_name(rank) for rank in range(layout.world) if state_name(rank) not in names]
    plain = layout.tensor == layout.pipeline == 1
    data = layout.world if plain else layout.data
    if layout.zero_stage >= 1:
        lacking += _lacking_shards(names, data, "optim")
    if layout.zero_stage >= 3:
        lacking += _lacking_shards(names, data, "model")
    elif not any(name.endswith("model_states.pt") for name in names):
        lacking.append("mp_rank_00_model_states.pt")
    return lacking


def _lacking_shards(names: set[str], data: int, kind: str) -> list[str]:
    found = {
        int(match["rank"])
        for name in names
        if (match := _SHARD.fullmatch(name)) and match["tail"].endswith(f"_{kind}_states.pt")
    }
    return [f"zero_pp_rank_{rank}_mp_rank_00_{kind}_states.pt" for rank in range(data) if rank not in found]


def _data_size(path: Path, names: set[str]) -> int:
    """``dp_world_size`` as DeepSpeed noted it in a model file; 0 where it cannot be told."""
    for name in sorted(names):
        if name.endswith("model_states.pt"):
            return _noted_int(path / name, "dp_world_size")
    return 0


def _noted_int(path: Path, key: str) -> int:
    try:
        with zipfile.ZipFile(path) as archive:
            inner = next((item for item in archive.infolist() if item.filename.endswith("/data.pkl")), None)
            if inner is None or inner.compress_type or inner.file_size > _MAX_PICKLE:
                return 0
            return _int_after(archive.read(inner), key)
    except (OSError, zipfile.BadZipFile, EOFError, ValueError, NotImplementedError, RuntimeError):
        return 0


def _int_after(pickled: bytes, key: str) -> int:
    armed = False
    for opcode, argument, _ in pickletools.genops(pickled):
        if armed and isinstance(argument, int) and "INT" in opcode.name:
            return argument if 0 < argument <= 1 << 20 else 0
        if isinstance(argument, str):
            armed = argument == key
    return 0
