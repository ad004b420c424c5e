"""A claim put to the test: "in these hours of the day nodes are taken more often"."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from outlast.daemon.rates.harmonic import held_out
from outlast.daemon.rates.ratio import Ratio, clustered
from outlast.daemon.rates.rayleigh import FLOOR, holm
from outlast.daemon.rates.residuals import Residuals, by_provider, residuals
from outlast.daemon.rates.table import Table
from outlast.daemon.rates.values import Claim
from outlast.daemon.rates.weekend import factor

ALPHA = 0.01
# A claimed peak of less than half as many losses again is not worth waiting for.
MATTERS = 1.5
# With an interval that still allows this, data are too few for a failed prediction to speak against a claim.
TELLING = 2.0

Verdict = Literal["supported", "refused", "open"]


def claims(table: Table, hours: Sequence[int]) -> tuple[Claim, ...]:
    """Test claimed UTC hours: a row for each region, and one with region "" over all of a provider's.

    The ratio compares the rate of bursts in these hours with that in all others; age, pool and, where it is
    established, the weekend are held alike; its 90 % interval and p are day-clustered, p Holm-adjusted over
    the regions (and over the providers). The verdict is

    - "supported" if p < 0.01, the interval lies above 1 and the hours predict held-out days better;
    - "refused" if the interval lies below 1.5, so that a peak worth waiting for is excluded; or if the rate
      there does not differ significantly, the interval lies below 2 and the hours make the prediction of
      held-out days worse;
    - "open" otherwise: the data do not tell.

    Raises ValueError unless ``hours`` are some but not all of 0..23.
    """
    claimed = checked(hours)
    regions = residuals(table, weekend=factor(table))
    return (*_family(regions, claimed), *_family(by_provider(regions), claimed))


def checked(hours: Sequence[int]) -> tuple[int, ...]:
    """Give claimed hours in order, each once; ValueError unless they are some but not all of 0..23."""
    claimed = tuple(sorted(set(hours)))
    if not claimed or claimed[0] < 0 or claimed[-1] > 23:
        raise ValueError(f"claimed hours must be UTC hours from 0 to 23, not {list(hours)}")
    if len(claimed) == 24:
        raise ValueError("a claim of all 24 hours leaves none to compare with")
    return claimed


def _family(rows: tuple[Residuals, ...], hours: tuple[int, ...]) -> tuple[Claim, ...]:
    ratios = [compare(row, hours) for row in rows]
    adjusted = holm([ratio.p for ratio in ratios])
    return tuple(_claim(row, hours, ratio, p) for row, ratio, p in zip(rows, ratios, adjusted, strict=True))


def compare(row: Residuals, hours: tuple[int, ...]) -> Ratio:
    """Give the rate ratio of the claimed hours to the others, with errors clustered by day."""
    inside = np.isin(np.arange(24), hours)
    counts, due = (
        (part[:, inside].sum(axis=1), part[:, ~inside].sum(axis=1)) for part in (row.counts, row.expected)
    )
    days = int((row.exposure.sum(axis=1) > 0).sum())
    return clustered(*counts, *due, days - 1)


def gain(row: Residuals, hours: tuple[int, ...]) -> tuple[float, int]:
    """Say how many nats the claimed hours gain on days held out, and on how many blocks that was asked."""
    seen = row.exposure.sum(axis=1) > 0
    column = np.isin(np.arange(24), hours).astype(np.float64)[:, None]
    gains = held_out(row.counts[seen], row.expected[seen], column)
    return float(gains.sum()), len(gains) if len(gains) > 1 else 0


def _claim(row: Residuals, hours: tuple[int, ...], ratio: Ratio, p: float) -> Claim:
    share = row.expected[:, list(hours)].sum()
    events = round(float(row.counts[:, list(hours)].sum()))
    verdict, why = _judge(ratio, p, *gain(row, hours))
    p = max(p, FLOOR)
    figures = f"{ratio.ratio:.2f}x ({ratio.low:.2f}-{ratio.high:.2f}) the rate of the other hours, p {p:.2g}"
    sentence = f"{verdict}: {', '.join(f'{hour:02d}' for hour in hours)} UTC have {figures}; {why}"
    return Claim(row.provider, row.region, hours, ratio.range, p, events, float(share), verdict, sentence)


def _judge(ratio: Ratio, p: float, gained: float, blocks: int) -> tuple[Verdict, str]:
    if p < ALPHA and ratio.low > 1 and gained > 0:
        return "supported", "they also predict days held out better"
    if ratio.high < MATTERS:
        return "refused", f"{MATTERS:g}x or more is excluded"
    if p >= ALPHA and ratio.high < TELLING and blocks and gained < 0:
        return "refused", "not significant, and with them days held out are predicted worse"
    return "open", "the data do not tell"
