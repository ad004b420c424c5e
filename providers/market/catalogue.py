"""Which instance types carry which GPUs, and how many of them; only what the providers document.

Not listed: machines whose GPUs are chosen apart from the type (GCP's N1) and fractions of a GPU. On RunPod
and Vast.ai an instance type is written ``<n>x<name of the GPU there>``, with ``_`` for each space.
"""

from __future__ import annotations

import difflib
import re
from functools import cache

# GPU type, provider, {instance type: GPUs}. A type with a memory size is also one of the type without.
_TABLE: tuple[tuple[str, str, dict[str, int]], ...] = (
    ("k80", "aws", {"p2.xlarge": 1, "p2.8xlarge": 8, "p2.16xlarge": 16}),
    ("v100-16g", "aws", {"p3.2xlarge": 1, "p3.8xlarge": 4, "p3.16xlarge": 8}),
    ("v100-32g", "aws", {"p3dn.24xlarge": 8}),
    ("a100-40g", "aws", {"p4d.24xlarge": 8}),
    ("a100-80g", "aws", {"p4de.24xlarge": 8}),
    ("h100", "aws", {"p5.4xlarge": 1, "p5.48xlarge": 8}),
    ("h200", "aws", {"p5e.48xlarge": 8, "p5en.48xlarge": 8}),
    ("b200", "aws", {"p6-b200.48xlarge": 8}),
    ("v100-16g", "azure", {f"Standard_{name}_v3": n for name, n in (("NC6s", 1), ("NC12s", 2))}),
    ("v100-16g", "azure", {"Standard_NC24s_v3": 4, "Standard_NC24rs_v3": 4}),
    ("v100-32g", "azure", {"Standard_ND40rs_v2": 8}),
    ("a100-40g", "azure", {"Standard_ND96asr_v4": 8}),
    ("a100-80g", "azure", {"Standard_ND96amsr_A100_v4": 8}),
    ("a100-80g", "azure", {f"Standard_NC{24 * n}ads_A100_v4": n for n in (1, 2, 4)}),
    ("h100", "azure", {"Standard_NC40ads_H100_v5": 1, "Standard_NC80adis_H100_v5": 2}),
    ("h100", "azure", {"Standard_ND96isr_H100_v5": 8}),
    ("h200", "azure", {"Standard_ND96isr_H200_v5": 8}),
    ("mi300x", "azure", {"Standard_ND96isr_MI300X_v5": 8}),
    ("t4", "azure", {f"Standard_NC{cores}as_T4_v3": 1 for cores in (4, 8, 16)}),
    ("t4", "azure", {"Standard_NC64as_T4_v3": 4}),
    ("a10", "azure", {"Standard_NV36ads_A10_v5": 1, "Standard_NV36adms_A10_v5": 1}),
    ("a10", "azure", {"Standard_NV72ads_A10_v5": 2}),
    ("a100-40g", "gcp", {f"a2-highgpu-{n}g": n for n in (1, 2, 4, 8)} | {"a2-megagpu-16g": 16}),
    ("a100-80g", "gcp", {f"a2-ultragpu-{n}g": n for n in (1, 2, 4, 8)}),
    ("h100", "gcp", {f"a3-highgpu-{n}g": n for n in (1, 2, 4, 8)}),
    ("h100", "gcp", {"a3-megagpu-8g": 8, "a3-edgegpu-8g": 8}),
    ("h200", "gcp", {"a3-ultragpu-8g": 8}),
    ("b200", "gcp", {"a4-highgpu-8g": 8}),
    ("l4", "gcp", {f"g2-standard-{cores}": 1 for cores in (4, 8, 12, 16, 32)}),
    ("l4", "gcp", {"g2-standard-24": 2, "g2-standard-48": 4, "g2-standard-96": 8}),
)
# AWS families that share the sizes below: one GPU but for the sizes with four or eight.
_G_FAMILIES = {"g5": "a10g", "g6": "l4", "g6e": "l40s"}
_G_SIZES = {"xlarge": 1, "2xlarge": 1, "4xlarge": 1, "8xlarge": 1, "16xlarge": 1} | {
    "12xlarge": 4,
    "24xlarge": 4,
    "48xlarge": 8,
}
_G4DN = {**_G_SIZES, "metal": 8}
# GPU type to the GPU's name at the markets that rent machines out by it.
_RUNPOD = {
    "a100-80g": ("NVIDIA_A100_80GB_PCIe", "NVIDIA_A100-SXM4-80GB"),
    "h100": ("NVIDIA_H100_80GB_HBM3", "NVIDIA_H100_PCIe", "NVIDIA_H100_NVL"),
    "h200": ("NVIDIA_H200",),
    "b200": ("NVIDIA_B200",),
    "l4": ("NVIDIA_L4",),
    "l40": ("NVIDIA_L40",),
    "l40s": ("NVIDIA_L40S",),
    "a40": ("NVIDIA_A40",),
    "a6000": ("NVIDIA_RTX_A6000",),
    "rtx4090": ("NVIDIA_GeForce_RTX_4090",),
    "rtx3090": ("NVIDIA_GeForce_RTX_3090",),
    "mi300x": ("AMD_Instinct_MI300X_OAM",),
}
_VAST = {
    "a100-40g": ("A100_SXM4_40GB", "A100_PCIE_40GB"),
    "a100-80g": ("A100_SXM4_80GB", "A100_PCIE_80GB"),
    "h100": ("H100_SXM", "H100_PCIE", "H100_NVL"),
    "h200": ("H200",),
    "b200": ("B200",),
    "l4": ("L4",),
    "l40": ("L40",),
    "l40s": ("L40S",),
    "a40": ("A40",),
    "a10": ("A10",),
    "a6000": ("RTX_A6000",),
    "t4": ("Tesla_T4",),
    "v100-16g": ("Tesla_V100_16GB",),
    "v100-32g": ("Tesla_V100_32GB",),
    "rtx4090": ("RTX_4090",),
    "rtx3090": ("RTX_3090",),
}
_COUNTS = (1, 2, 4, 8)
_COUNTED = re.compile(r"([1-9][0-9]{0,2})x(.+)", re.DOTALL)


class UnknownTypeError(ValueError):
    """No GPU type or instance type of that name is known; the text says which are close."""


@cache
def _known() -> dict[str, tuple[str, str, int]]:
    """Instance type to (GPU type, provider, GPUs)."""
    known = {name: (gpu, who, n) for gpu, who, types in _TABLE for name, n in types.items()}
    for family, gpu in _G_FAMILIES.items():
        known |= {f"{family}.{size}": (gpu, "aws", n) for size, n in _G_SIZES.items()}
    sizes = {size: n for size, n in _G4DN.items() if size not in {"24xlarge", "48xlarge"}}
    known |= {f"g4dn.{size}": ("t4", "aws", n) for size, n in sizes.items()}
    for who, names in (("runpod", _RUNPOD), ("vast", _VAST)):
        pairs = [(gpu, name) for gpu, those in names.items() for name in those]
        known |= {f"{n}x{name}": (gpu, who, n) for gpu, name in pairs for n in _COUNTS}
    return known


@cache
def _spellings() -> dict[str, str]:
    return {name.lower(): name for name in _known()}


@cache
def _by_gpu_name() -> dict[str, str]:
    return {name: gpu for table in (_RUNPOD, _VAST) for gpu, names in table.items() for name in names}


@cache
def gpu_types() -> tuple[str, ...]:
    """Every GPU type that can be asked for: with a memory size where there are several, and without."""
    exact = {gpu for gpu, _who, _n in _known().values()}
    return tuple(sorted(exact | {_bare(gpu) for gpu in exact}))


def instance_types(gpu_type: str) -> dict[str, tuple[str, int]]:
    """Instance type to (provider, GPUs) for a GPU type, or for one instance type given by its own name.

    "a100" is every A100, "a100-80g" those of 80 GB. Case, separators, "NVIDIA" and "GB" make no
    difference. Raises UnknownTypeError, which names the types that are close.
    """
    exact = _same_instance(gpu_type)
    if exact is not None:
        return exact
    asked = _plain(gpu_type)
    matching = [gpu for gpu in gpu_types() if _plain(gpu) == asked]
    if not matching:
        raise UnknownTypeError(_unknown(gpu_type))
    (gpu,) = matching
    return {name: (who, n) for name, (has, who, n) in _known().items() if gpu in {has, _bare(has)}}


def of_provider(provider: str) -> tuple[str, ...]:
    """All instance types known of a provider, sorted."""
    return tuple(sorted(name for name, (_gpu, who, _n) in _known().items() if who == provider))


def spelled(instance_type: str) -> str:
    """An instance type as its provider writes it, where only the case differs; else as it is."""
    return _spellings().get(instance_type.lower(), instance_type)


def gpus_of(instance_type: str) -> tuple[str, int] | None:
    """(GPU type, GPUs) of an instance type; None where it is not known. "a100-40g", not "a100"."""
    found = _known().get(instance_type)
    if found is not None:
        return found[0], found[2]
    counted = _COUNTED.fullmatch(instance_type)
    gpu = _by_gpu_name().get(counted[2]) if counted else None
    return (gpu, int(counted[1])) if counted and gpu else None


def carries(instance_type: str, gpu_type: str) -> bool:
    """Whether an instance type has GPUs of ``gpu_type``; "a100" is true of both sizes. Never raises."""
    found = gpus_of(instance_type)
    return found is not None and _plain(gpu_type) in {_plain(found[0]), _plain(_bare(found[0]))}


def _same_instance(name: str) -> dict[str, tuple[str, int]] | None:
    known = spelled(name.strip())
    found = _known().get(known)
    return {known: (found[1], found[2])} if found else None


def _bare(gpu: str) -> str:
    return re.sub(r"-\d+g$", "", gpu)


def _plain(name: str) -> str:
    """One spelling of a name: "NVIDIA A100 80GB", "a100_80g" and "A100-80GB" are all "a10080g"."""
    text = name.lower().replace("nvidia", "").replace("tesla", "").replace("geforce", "")
    return re.sub(r"[^a-z0-9]", "", text).replace("gb", "g")


def _unknown(name: str) -> str:
    shown = "".join(c if c.isprintable() else " " for c in name[:60])
    plain = {_plain(gpu): gpu for gpu in gpu_types()}
    close = [plain[near] for near in difflib.get_close_matches(_plain(shown), plain, 3, 0.5)]
    close += [spelled(near) for near in difflib.get_close_matches(shown.lower(), list(_spellings()), 3, 0.75)]
    if close:
        return f"no GPU or instance type {shown!r} is known; did you mean {' or '.join(close[:4])}?"
    return f"no GPU or instance type {shown!r} is known; GPU types are {', '.join(gpu_types())}"
