"""Pools from the words of a file: constants, columns, and the region that a zone's name tells."""

from __future__ import annotations

import re

from outlast.daemon.history.rows import Pool

MOST_NAME = 128


def region_of(provider: str, zone: str) -> str:
    """The region of a zone as the provider names zones, or "" where the name does not tell it."""
    if provider == "aws" and re.fullmatch(r"[a-z]{2}(-[a-z]+)+-\d[a-z]", zone):
        return zone[:-1]
    if provider == "gcp" and re.fullmatch(r"[a-z]+-[a-z]+\d+-[a-z]", zone):
        return zone[:-2]
    return ""


def pool_of(provider: str, region: str, zone: str, instance_type: str) -> Pool:
    """A pool from outside. Raises ValueError with what to do."""
    parts = {"provider": provider, "region": region, "zone": zone, "instance_type": instance_type}
    for name, text in parts.items():
        if len(text) > MOST_NAME:
            raise ValueError(f"the {name} has {len(text)} characters, over {MOST_NAME}; shorten it")
        if not text.isprintable():
            raise ValueError(f"the {name} has control characters in it; take them out")
    if not provider:
        raise ValueError("the provider is empty; give one, for all lines with --set provider=NAME")
    return Pool(provider, region or region_of(provider, zone), zone, instance_type)
