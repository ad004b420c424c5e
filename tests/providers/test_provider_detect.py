"""Where a node runs, told from files and the environment."""

from __future__ import annotations

from pathlib import Path

import pytest

from outlast.providers import registry
from outlast.providers.base import Options, SystemClock
from outlast.providers.detect import detect


@pytest.mark.parametrize(
    ("file", "text", "provider"),
    [
        ("product_name", "Google Compute Engine\n", "gcp"),
        ("product_serial", "GoogleCloud-0123456789", "gcp"),
        ("chassis_asset_tag", "7783-7084-3265-9085-8269-3286-77\n", "azure"),
        ("sys_vendor", "Amazon EC2\n", "aws"),
        ("product_uuid", "EC2E1916-9099-7CAF-FD21-012345ABCDEF", "aws"),
        ("product_serial", "ec2e1916-9099-7caf", "aws"),
        ("chassis_asset_tag", "OracleCloud.com", "oci"),
        ("product_name", "Standard PC (Q35 + ICH9, 2009)", None),
        ("product_name", "", None),
    ],
)
def test_firmware_tells_the_provider(tmp_path: Path, file: str, text: str, provider: str | None) -> None:
    """The firmware's tables name the provider, or nobody does."""
    (tmp_path / file).write_text(text)
    assert detect(tmp_path, {}) == provider


def test_no_firmware_tables(tmp_path: Path) -> None:
    """A machine without tables, or with unreadable ones, is on no provider."""
    assert detect(tmp_path / "absent", {}) is None
    (tmp_path / "product_name").mkdir()
    assert detect(tmp_path, {}) is None


def test_a_container_is_where_its_marker_says(tmp_path: Path) -> None:
    """A container's own marker counts more than the machine below it."""
    (tmp_path / "sys_vendor").write_text("Amazon EC2")
    assert detect(tmp_path, {"RUNPOD_POD_ID": "x"}) == "runpod"


def test_the_registry_knows_its_names() -> None:
    """Each known name makes a provider of that name; another is refused with the choices."""
    for name in registry.NAMES:
        assert registry.create(name, Options(), SystemClock()).name == name
    with pytest.raises(ValueError, match="aws, gcp, azure"):
        registry.create("nimbus", Options(), SystemClock())
