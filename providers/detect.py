"""Which provider this node runs on, from files and the environment; no address is ever probed.

Several providers share one metadata address, and asking Azure's switches a service on.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

DMI = Path("/sys/class/dmi/id")

# A container's marker comes first: the machine below it may belong to any cloud.
_ENVIRONMENT = (
    ("RUNPOD_POD_ID", "runpod"),
    ("VAST_CONTAINERLABEL", "vast"),
    ("MODAL_TASK_ID", "modal"),
)
# File of the firmware's tables, the start of its text in lower case, provider.
_FIRMWARE = (
    ("product_name", "google compute engine", "gcp"),
    ("product_serial", "googlecloud-", "gcp"),
    ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77", "azure"),
    ("sys_vendor", "amazon ec2", "aws"),
    ("bios_vendor", "amazon ec2", "aws"),
    ("product_uuid", "ec2", "aws"),
    ("product_serial", "ec2", "aws"),
    ("product_name", "alibaba cloud ecs", "alibaba"),
    ("chassis_asset_tag", "oraclecloud.com", "oci"),
    ("chassis_asset_tag", "huaweicloud", "huawei"),
    ("sys_vendor", "scaleway", "scaleway"),
)


def detect(root: Path = DMI, environ: Mapping[str, str] | None = None) -> str | None:
    """The provider's name, also of one that has no watcher here; None where nothing tells. Reads files."""
    environ = os.environ if environ is None else environ
    for variable, provider in _ENVIRONMENT:
        if environ.get(variable):
            return provider
    for file, start, provider in _FIRMWARE:
        if _read(root / file).lower().startswith(start):
            return provider
    return None


def _read(file: Path) -> str:
    try:
        with file.open("rb") as opened:
            return opened.read(256).decode("utf-8", "replace").strip()
    except OSError:
        return ""
