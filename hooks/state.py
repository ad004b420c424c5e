"""What a rank needs besides the model to go on to the last bit: random numbers and the data's position.

Everything is put into types that ``torch.load(weights_only=True)`` reads: a checkpoint may come from
another machine and must not be able to run code.
"""

from __future__ import annotations

import io
import random
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Protocol

FORMAT = 1


class Stateful(Protocol):
    """An object whose state goes with the checkpoint: a sampler, a data loader, a scaler."""

    def state_dict(self) -> dict[str, Any]: ...
    def load_state_dict(self, state: dict[str, Any]) -> None: ...


class StateError(RuntimeError):
    """A rank's state cannot be saved or restored; the text says why and what to do."""


def rank_file(rank: int) -> str:
    """The name of a rank's own file in a checkpoint."""
    return f"outlast_rank_{rank:05d}.pt"


def capture(step: int, epoch: int, stateful: Mapping[str, Stateful]) -> dict[str, Any]:
    """This rank's state now."""
    return {
        "format": FORMAT,
        "step": step,
        "epoch": epoch,
        "random": _random_states(),
        "stateful": {name: item.state_dict() for name, item in stateful.items()},
    }


def write(path: Path, state: dict[str, Any]) -> None:
    """Write ``state``. Raises OSError, and what pickling raises."""
    import torch

    torch.save(state, path)


def check_loadable(stateful: Mapping[str, Stateful]) -> None:
    """Raises StateError if what the objects give could be saved but not read back."""
    import torch

    for name, item in stateful.items():
        buffer = io.BytesIO()
        try:
            torch.save(item.state_dict(), buffer)
            buffer.seek(0)
            torch.load(buffer, weights_only=True)
        except Exception as exc:  # raised again with the object's name
            raise StateError(
                f"stateful {name!r}: its state_dict() cannot be read back from a checkpoint ({_line(exc)}); "
                "use numbers, strings, lists, dicts and tensors only"
            ) from exc


def restore(path: Path, step: int, stateful: Mapping[str, Stateful]) -> None:
    """Put the state at ``path`` in place. Raises StateError; ``step`` must be the one that was saved."""
    import torch

    try:
        state = torch.load(path, map_location="cpu", weights_only=True)
    except Exception as exc:  # raised again with the object's name
        raise StateError(f"{path} cannot be read: {_line(exc)}; resume from an older checkpoint") from exc
    if state.get("format") != FORMAT or state.get("step") != step:
        raise StateError(f"{path} is of step {state.get('step')}, the checkpoint of step {step}")
    missing = sorted(set(stateful) ^ set(state["stateful"]))
    if missing:
        raise StateError(
            f"{path}: stateful {', '.join(missing)} is in the checkpoint or in protect(), not in both; "
            "pass the same names as when it was saved"
        )
    for name, item in stateful.items():
        item.load_state_dict(state["stateful"][name])
    _restore_random(state["random"])


def _line(exc: Exception) -> str:
    """The first line: torch adds a page of advice, some of which would let the file run code."""
    return (str(exc).splitlines() or [type(exc).__name__])[0]


def _random_states() -> dict[str, Any]:
    import torch

    version, words, gauss = random.getstate()
    states: dict[str, Any] = {"python": [version, list(words), gauss], "torch": torch.get_rng_state()}
    if "numpy" in sys.modules:
        name, keys, position, has_gauss, cached = sys.modules["numpy"].random.get_state()
        states["numpy"] = [str(name), [int(k) for k in keys], int(position), int(has_gauss), float(cached)]
    accelerator = _accelerator()
    if accelerator is not None:
        states["accelerator"] = accelerator.get_rng_state().cpu()
    tracked = _tracked()
    if tracked is not None:
        states["tracked"] = {name: value.cpu() for name, value in tracked.get_states().items()}
    return states


def _restore_random(states: dict[str, Any]) -> None:
    import torch

    version, words, gauss = states["python"]
    random.setstate((version, tuple(words), gauss))
    torch.set_rng_state(states["torch"])
    if "numpy" in states:
        import numpy as np

        name, keys, position, has_gauss, cached = states["numpy"]
        np.random.set_state((name, np.array(keys, dtype=np.uint32), position, has_gauss, cached))
    accelerator = _accelerator()
    if accelerator is not None and "accelerator" in states:
        accelerator.set_rng_state(states["accelerator"])
    tracked = _tracked()
    if tracked is not None and states.get("tracked"):
        tracked.set_states(states["tracked"])


def _accelerator() -> Any:
    """DeepSpeed's accelerator if it has random numbers of its own; None on CPU."""
    if "deepspeed" not in sys.modules:
        return None
    from deepspeed.accelerator import get_accelerator

    accelerator = get_accelerator()
    return None if accelerator.device_name() == "cpu" else accelerator


def _tracked() -> Any:
    """DeepSpeed's tracker of random numbers for activation checkpointing, where it is in use."""
    module = sys.modules.get("deepspeed.runtime.activation_checkpointing.checkpointing")
    tracker = module.get_cuda_rng_tracker() if module is not None else None
    return tracker if tracker is not None and tracker.get_states() else None
