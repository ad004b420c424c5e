"""What rates, gate and advice make of real traces, and what following the advice would have cost.

    python benchmarks/advice.py --data DIR [--json] [--copies N]

DIR holds public traces as they were published: ``skynomad/`` (AWS V100 availability in nine zones with
prices, GCP H100 launch probes) and ``goog-preemption/`` (GCP preemptible VMs of 2019). It is also taken from
the environment variable OUTLAST_DATA. Exit status 1: a promise does not hold; 2: the traces are not there.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from outlast.daemon.advice.backtest import backtest
from outlast.daemon.advice.values import Request
from outlast.daemon.fleet.traces import aws_v100, gcp_2019, gcp_h100
from outlast.daemon.rates.claim import claims
from outlast.daemon.rates.coverage import coverage
from outlast.daemon.rates.gate import false_positives, patterns
from outlast.daemon.rates.study import study
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import Pattern

CLAIMED = (0, 6, 12, 18)
PEAK, OFF = 16.0, 1.0
MOST_FALSE = 0.06
LEAST_HELD = 0.75
NEAR_BEST = 1.10


@dataclass(frozen=True)
class Promise:
    """One thing that has to come out, and what did."""

    promise: str
    held: bool
    found: str


def patterns_of(seen: Observed) -> dict[str, Pattern]:
    """Verdicts by region."""
    return {found.region: found for found in patterns(seen.table)}


def gate_on_aws(aws: Observed) -> Iterator[Promise]:
    """The one daily cycle that is there, and one that is not."""
    found = patterns_of(aws)
    east, other = found["us-east-1"], found["us-east-2"]
    peak = east.peak_hour if east.peak_hour is not None else -99.0
    yield Promise(
        "AWS us-east-1 has a daily pattern that peaks at 16 ± 1 UTC",
        east.state == "pattern" and abs(peak - PEAK) <= OFF,
        f"{east.state}, peak {peak:.2f} UTC, {east.peak_to_mean or 0:.2f}x, p {east.p}",
    )
    yield Promise("AWS us-east-2 has none", other.state == "no pattern", other.sentence)


def gate_on_gcp(gcp: Observed) -> Promise:
    """Most of what looks like one there is the age of the instances."""
    found = [one for one in patterns(gcp.table) if one.state != "not enough"]
    told = "; ".join(f"{one.region}: {one.state} (p {one.p})" for one in found)
    judged_none = bool(found) and all(one.state == "no pattern" for one in found)
    return Promise("GCP 2019 has none once age is taken out", judged_none, told)


def claim_on(name: str, seen: Observed) -> Promise:
    """The claimed hours, over all regions of the set."""
    row = next(one for one in claims(seen.table, CLAIMED) if not one.region)
    told = f"{row.verdict}: {row.ratio.mean:.2f} ({row.ratio.low:.2f}-{row.ratio.high:.2f}), p {row.p:.2g}"
    return Promise(f"00/06/12/18 UTC is refused on {name}", row.verdict == "refused", told)


def ranked(aws: Observed) -> Promise:
    """Place before everything else."""
    zones = [rate.pool.zone for rate in study(aws, aws.table.ends).pools]
    told = " < ".join(zones)
    return Promise(
        "us-west-2b is ranked first and us-east-1a last",
        (zones[0], zones[-1]) == ("us-west-2b", "us-east-1a"),
        told,
    )


def falsely(name: str, seen: Observed, copies: int) -> Promise:
    """Days rotated at random hold no pattern; the gate must not find one."""
    began = time.perf_counter()
    share = false_positives(seen.table, copies, seed=1)
    told = f"{share:.2%} of {copies} copies, {time.perf_counter() - began:.1f} s"
    return Promise(f"at most 6 % of rotated copies of {name} are called a pattern", share <= MOST_FALSE, told)


def ranges_held(aws: Observed) -> Promise:
    """90 % ranges, ten days of training, the week after them."""
    found = coverage(aws.table, 10.0, 7.0)
    if found is None or not found.asked:
        return Promise("90 % ranges of the nine zones hold at least 75 %", False, "could not be asked")
    share = found.held / found.asked
    told = f"{found.held} of {found.asked} = {share:.2f}. {found.sentence}"
    return Promise("90 % ranges of the nine zones hold at least 75 %", share >= LEAST_HELD, told)


def out_of_sample(aws: Observed) -> Promise:
    """What an hour of useful training would have cost."""
    found = backtest(aws, Request(hours=24.0))
    near = bool(
        found.advised is not None
        and found.hindsight is not None
        and found.advised <= NEAR_BEST * found.hindsight
    )
    return Promise("following the advice costs at most 10 % more than hindsight", near, found.sentence)


def measure(data: Path, copies: int) -> list[Promise]:
    """All promises, on all sets."""
    probes = data / "skynomad"
    aws = aws_v100(probes / "aws_v100_2023-02-15", probes / "v100_spot_prices.json")
    old, new = gcp_2019(data / "goog-preemption"), gcp_h100(probes)
    sets = {"AWS V100": aws, "GCP 2019": old, "GCP H100": new}
    return [
        *gate_on_aws(aws),
        gate_on_gcp(old),
        *(claim_on(name, seen) for name, seen in sets.items()),
        ranked(aws),
        *(falsely(name, seen, copies) for name, seen in sets.items()),
        ranges_held(aws),
        out_of_sample(aws),
    ]


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    where = os.environ.get("OUTLAST_DATA")
    parser.add_argument("--data", type=Path, default=Path(where) if where else None, metavar="DIR")
    parser.add_argument("--copies", type=int, default=2000, help="rotated copies a set (default 2000)")
    parser.add_argument("--json", action="store_true")
    args = parser.parse_args()
    if args.data is None or not (args.data / "skynomad").is_dir():
        print(f"The traces are not in {args.data}: name their folder with --data DIR.", file=sys.stderr)
        return 2
    found = measure(args.data, args.copies)
    if args.json:
        body: dict[str, Any] = {"format": 1, "promises": [asdict(one) for one in found]}
        print(json.dumps(body))
    else:
        for one in found:
            print(f"{'held  ' if one.held else 'BROKEN'}  {one.promise}\n        {one.found}")
    return 0 if all(one.held for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
