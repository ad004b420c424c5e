"""How long before the end each provider says so, and what it does then: as documented, or as seen."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class NoticeLength:
    """One kind of end: ``seconds`` from the word to the ``action``."""

    provider: str
    seconds: float
    action: str


# Azure documents 30 s; in practice less than 10 are left. Google can be set up for 120 s more.
NOTICES = (
    NoticeLength("vast", 0.0, "pause"),
    NoticeLength("aws", 0.0, "hibernate"),
    NoticeLength("runpod", 5.0, "stop"),
    NoticeLength("azure", 8.0, "stop"),
    NoticeLength("gcp", 30.0, "stop"),
    NoticeLength("aws", 120.0, "stop"),
    NoticeLength("aws", 120.0, "terminate"),
    NoticeLength("volcengine", 300.0, "terminate"),
    NoticeLength("coreweave", 420.0, "terminate"),
)


def usual_s(provider: str) -> float:
    """Seconds of notice to count on; 0 for a provider that is not known.

    The longest of its kinds: a shorter one, as AWS's hibernation, is for those who have asked for it.
    """
    return max((one.seconds for one in NOTICES if one.provider == provider), default=0.0)
