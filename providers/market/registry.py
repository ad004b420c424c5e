"""Price sources by name, each imported only when it is asked for."""

from __future__ import annotations

from collections.abc import Iterable
from importlib import import_module

from outlast.providers.market.base import Access, Source

# Name to module and class; a provider's name stands for all of its sources.
_CLASSES = {
    "aws-prices": ("aws_prices", "AwsPrices"),
    "aws-scores": ("aws_scores", "AwsScores"),
    "aws-advisor": ("aws_advisor", "AwsAdvisor"),
    "azure-prices": ("azure_prices", "AzurePrices"),
    "azure-evictions": ("azure_graph", "AzureGraph"),
    "azure-scores": ("azure_scores", "AzureScores"),
    "gcp-prices": ("gcp_prices", "GcpPrices"),
    "gcp-advice": ("gcp_advice", "GcpAdvice"),
    "runpod": ("runpod", "RunPod"),
    "vast": ("vast", "Vast"),
}
NAMES = tuple(_CLASSES)
PROVIDERS = tuple(dict.fromkeys(name.partition("-")[0] for name in NAMES))


def chosen(names: Iterable[str]) -> tuple[str, ...]:
    """Source names for names of sources or providers, in the order of NAMES. Raises ValueError."""
    wanted: set[str] = set()
    for name in names:
        some = {known for known in NAMES if name in {known, known.partition("-")[0]}}
        if not some:
            known = ", ".join(dict.fromkeys((*PROVIDERS, *NAMES)))
            raise ValueError(f"source {name!r} is not known; choose from {known}")
        wanted |= some
    return tuple(name for name in NAMES if name in wanted)


def create(name: str, access: Access) -> Source:
    """The source called ``name``, one of NAMES. Raises ValueError for any other name.

    It never fails for a missing cloud SDK: such a source lacks everything and says what to install.
    """
    if name not in _CLASSES:
        raise ValueError(f"source {name!r} is not known; choose one of {', '.join(NAMES)}")
    module, kind = _CLASSES[name]
    made: Source = getattr(import_module(f"outlast.providers.market.{module}"), kind)(access)
    return made


def of_provider(provider: str, access: Access) -> Source:
    """The source of a provider's own prices. Raises LookupError where there is none."""
    name = next((name for name in (f"{provider}-prices", provider) if name in _CLASSES), "")
    if not name:
        raise LookupError(f"no prices of {provider} are known of; {', '.join(PROVIDERS)} have some")
    return create(name, access)
