"""Which instance types carry which GPUs: however a name is written, and whatever is no name."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from outlast.providers.market import catalogue
from outlast.providers.market.base import Want
from outlast.providers.market.catalogue import UnknownTypeError, carries, gpu_types, gpus_of, instance_types
from outlast.providers.market.gathering import is_instance_type, types_for
from outlast.providers.market.gcp_prices import MACHINES
from outlast.providers.market.registry import PROVIDERS


@pytest.mark.parametrize("gpu", gpu_types())
def test_every_type_of_a_gpu_says_that_it_carries_it(gpu: str) -> None:
    """What a GPU type is answered with, is answered with that GPU type; so too in capitals."""
    found = instance_types(gpu)
    assert found
    assert instance_types(gpu.upper()) == found
    for name, (who, n) in found.items():
        has = gpus_of(name)
        assert has is not None
        assert has[1] == n
        assert has[0] == gpu or has[0].startswith(f"{gpu}-")
        assert carries(name, gpu)
        assert name in catalogue.of_provider(who)


@pytest.mark.parametrize("who", PROVIDERS)
def test_every_listed_type_is_asked_of_its_own_provider_alone(who: str) -> None:
    """It is written as that provider writes types, found by its own name in any case, and under its GPU."""
    listed = catalogue.of_provider(who)
    assert len(listed) > 10
    for name in listed:
        assert is_instance_type(name)
        assert [other for other in PROVIDERS if types_for(other, Want((name,)))] == [who], name
        has = gpus_of(name)
        assert has is not None
        assert instance_types(name.lower()) == {name: (who, has[1])}
        assert instance_types(has[0])[name] == (who, has[1])
        assert catalogue.spelled(name.upper()) == name


def test_memory_tells_the_sizes_of_one_gpu_apart() -> None:
    """ "a100" is both sizes; each size is its own type, and no type has both."""
    both, small, large = (set(instance_types(gpu)) for gpu in ("a100", "a100-40g", "a100-80g"))
    assert both == small | large
    assert not small & large
    assert gpus_of("p4d.24xlarge") == ("a100-40g", 8)
    assert gpus_of("Standard_ND96amsr_A100_v4") == ("a100-80g", 8)
    assert carries("p4d.24xlarge", "A100")
    assert not carries("p4d.24xlarge", "a100-80g")


def test_gpus_of_like_names_are_not_mixed_up() -> None:
    """An A10G is no A10, an L40 no L4 or L40S, an H200 no H100."""
    for one, other in (("a10", "a10g"), ("l4", "l40"), ("l40", "l40s"), ("h100", "h200"), ("a10", "a100")):
        assert not set(instance_types(one)) & set(instance_types(other))
    assert not carries("g5.xlarge", "a10")


@pytest.mark.parametrize(
    "name", ["NVIDIA A100 80GB", "a100_80g", "A100-80GB", " a100 80 gb ", "Nvidia-A100.80G"]
)
def test_a_gpu_may_be_written_in_many_ways(name: str) -> None:
    """Case, separators, the maker and the B of GB make no difference."""
    assert instance_types(name) == instance_types("a100-80g")


@pytest.mark.parametrize(
    ("name", "gpu", "n"),
    [
        ("p5.48xlarge", "h100", 8),
        ("g6e.48xlarge", "l40s", 8),
        ("g4dn.12xlarge", "t4", 4),
        ("g4dn.metal", "t4", 8),
        ("Standard_NC80adis_H100_v5", "h100", 2),
        ("a2-megagpu-16g", "a100-40g", 16),
        ("g2-standard-48", "l4", 4),
        ("3xNVIDIA_L40S", "l40s", 3),
        ("16xRTX_4090", "rtx4090", 16),
    ],
)
def test_gpus_are_those_that_the_provider_documents(name: str, gpu: str, n: int) -> None:
    """At the markets any number of GPUs may be rented, listed or not."""
    assert gpus_of(name) == (gpu, n)


@pytest.mark.parametrize("name", ["", "x", "0xL4", "1000xL4", "-1xL4", "1x", "1xL5", "g4dn.48xlarge", "p4d"])
def test_what_is_no_type_has_no_gpus(name: str) -> None:
    """None, where nothing is documented: no guess."""
    assert gpus_of(name) is None
    assert not carries(name, "l4")


@pytest.mark.parametrize("name", MACHINES)
def test_googles_parts_and_the_catalogue_agree(name: str) -> None:
    """A price is put together of as many GPUs as the catalogue counts."""
    has = gpus_of(name)
    assert has is not None
    assert has[1] == MACHINES[name][2]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("a100-80", "a100-80g"),
        ("h10", "h100"),
        ("rtx 409", "rtx4090"),
        ("p4d.24xlage", "p4d.24xlarge"),
        ("Standard_ND96asr_v5", "Standard_ND96asr_v4"),
    ],
)
def test_an_unknown_name_is_answered_with_what_may_be_meant(name: str, meant: str) -> None:
    """In the spelling that can be asked for."""
    with pytest.raises(UnknownTypeError) as caught:
        instance_types(name)
    suggested = str(caught.value).partition("did you mean ")[2].rstrip("?").split(" or ")
    assert meant in suggested
    assert all(instance_types(one) for one in suggested)


def test_a_name_like_no_other_is_answered_with_all_gpu_types() -> None:
    """Whoever guesses wrongly sees what there is."""
    with pytest.raises(UnknownTypeError) as caught:
        instance_types("quantum")
    assert str(caught.value).endswith(", ".join(gpu_types()))


@given(st.text(max_size=200))
def test_no_text_is_more_than_unknown(name: str) -> None:
    """Any text is a known name or an error of one printable line; asking about it never raises."""
    try:
        assert instance_types(name)
    except UnknownTypeError as exc:
        text = str(exc)
        assert text.isprintable()
        assert len(text) < 600
    found = gpus_of(name)
    assert found is None or found[1] > 0
    assert carries(name, name) in {True, False}
    assert catalogue.spelled(name).lower() == name.lower()
