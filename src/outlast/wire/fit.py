"""Whether a run can load a checkpoint: by the layout in its manifest, before anything is loaded or fetched.

DeepSpeed's own files fit one number of ranks, one ZeRO stage and one split into tensor and pipeline parts. A
universal checkpoint, which ``ds_to_universal.py`` makes of them, fits any.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass

from outlast.wire.manifest import Manifest
from outlast.wire.messages import Layout

# What lies below ``zero/<parameter>/`` in a universal checkpoint, one file a parameter, and nowhere else.
_UNIVERSAL = "fp32.pt"
_WORDS = {"world": "ranks", "data": "data", "tensor": "tensor", "pipeline": "pipeline", "zero_stage": "ZeRO"}


@dataclass(frozen=True)
class World:
    """What is known of a run's layout, as in ``Layout``; None is not known and fits anything."""

    world: int | None = None
    data: int | None = None
    tensor: int | None = None
    pipeline: int | None = None
    zero_stage: int | None = None


def world_of(layout: Layout) -> World:
    """A run whose layout is known whole."""
    return World(**asdict(layout))


def is_universal(manifest: Manifest) -> bool:
    """Whether these are the files of a universal checkpoint."""
    parts = (entry.path.split("/") for entry in manifest.files)
    return any(len(path) > 2 and path[0] == "zero" and path[-1] == _UNIVERSAL for path in parts)


def misfit(manifest: Manifest, world: World) -> str:
    """How the checkpoint differs from the run, or an empty text where the run can load it."""
    if is_universal(manifest):
        return ""
    saved = asdict(manifest.layout)
    wanted = {key: value for key, value in asdict(world).items() if value is not None}
    if all(saved[key] == value for key, value in wanted.items()):
        return ""
    return f"it was saved with {words(saved)}, this run has {words(wanted)}"


def advice(manifest: Manifest) -> str:
    """What to do about a misfit."""
    folders = f"--input_folder {manifest.tag} --output_folder {manifest.tag}_universal"
    return (
        f"start the trainer with {words(asdict(manifest.layout))}; or convert the checkpoint once with"
        f" DeepSpeed's ds_to_universal.py ({folders}), commit that with 'outlast restore --universal', and"
        ' set "checkpoint": {"load_universal": true} in DeepSpeed\'s configuration'
    )


def words(sizes: dict[str, int]) -> str:
    """A layout, or what is known of it, for a person: ``8 ranks (data 4, tensor 2), ZeRO stage 2``."""
    parallel = [f"{_WORDS[key]} {sizes[key]}" for key in ("data", "tensor", "pipeline") if key in sizes]
    inner = f"({', '.join(parallel)})" if parallel else ""
    count = sizes.get("world", 0)
    ranks = f"{count} rank{'s' if count > 1 else ''}" if count else ""
    stage = f"ZeRO stage {sizes['zero_stage']}" if "zero_stage" in sizes else ""
    return ", ".join(part for part in (f"{ranks} {inner}".strip(), stage) if part)
