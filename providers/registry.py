"""Providers by name, each imported only when it is asked for."""

from __future__ import annotations

from importlib import import_module

from outlast.providers.base import Clock, Options, Provider

_CLASSES = {"aws": "Aws", "gcp": "Gcp", "azure": "Azure"}
NAMES = tuple(_CLASSES)


def create(name: str, options: Options, clock: Clock) -> Provider:
    """The provider called ``name``, one of NAMES. Raises ValueError for any other name."""
    if name not in _CLASSES:
        raise ValueError(f"provider {name!r} is not known; choose one of {', '.join(NAMES)}")
    made: Provider = getattr(import_module(f"outlast.providers.{name}"), _CLASSES[name])(options, clock)
    return made
