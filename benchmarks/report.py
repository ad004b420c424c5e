"""A year of a large fleet: merging a day's news into it, and the full report on it, in time and memory.

    python benchmarks/report.py [--nodes N] [--days N] [--json] [--keep DIR]

A made-up fleet is written as Parquet first (not counted). Then one process merges a day of new spells, and
another makes the whole report: Parquet to table, study, HTML page. ``query`` is all of that together. The
back-test that a report adds is no query: it is timed and printed beside. Plain Python adds up exposure and
losses by hour of the week over a sample, and its time for all spells is set against the table and the whole.
Exit status 1 if a goal is missed or if what is true of the fleet is not found.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections import defaultdict
from pathlib import Path
from typing import Any

from outlast.simulations.fleet.made_up import BEGINS, PATTERN, PEAK, Plan, by_provider

GOAL_S = 10.0
GOAL_BYTES = 1e9
SAMPLE = 100_000
HOUR_S = 3600.0


def one_merge(folder: str, plan: Plan) -> dict[str, Any]:
    """Merge a day's news into the fleet, as ``outlast history merge`` does: seconds, rows, memory."""
    from outlast.daemon.fleet.flat import Imported
    from outlast.daemon.fleet.merge import merge_parquet
    from outlast.daemon.fleet.place import place_of

    seconds: dict[str, float] = {}
    news = list(_news(plan))
    with _Stage(seconds, "merge"):
        added = sum(merge_parquet(place_of(folder), Imported(flat)) for flat in news)
    return {"seconds": seconds, "added": added, "peak_bytes": _peak()}


def one_report(folder: str, plan: Plan) -> dict[str, Any]:
    """Read, study and draw, as ``outlast report --html`` does: seconds of each, what was found, memory."""
    from zoneinfo import ZoneInfo

    from outlast.daemon.advice.backtest import backtest
    from outlast.daemon.advice.values import Request
    from outlast.daemon.fleet.load import observe
    from outlast.daemon.rates.study import study
    from outlast.daemon.report.html import page

    seconds: dict[str, float] = {}
    now = BEGINS + (plan.days + 1) * 86400.0
    with _Stage(seconds, "table"):
        seen = observe([folder], now)
    with _Stage(seconds, "study"):
        found = study(seen, now)
    with _Stage(seconds, "page"):
        text = page(found, None, seen, now, ZoneInfo("UTC"))
    peak, later = _peak(), dict[str, float]()
    with _Stage(later, "back-test"):
        test = backtest(seen, Request(hours=24.0))
    return {
        "seconds": seconds,
        "spells": int(seen.table.spells.sum()),
        "pools": len(seen.table.pools),
        "page_bytes": len(text),
        "patterns": {
            f"{one.provider} {one.region}": one.peak_hour for one in found.patterns if one.state == "pattern"
        },
        "judged": sum(one.state != "not enough" for one in found.patterns),
        "peak_bytes": peak,
        "backtest": {"seconds": later["back-test"], "weeks": test.weeks, "peak_bytes": _peak()},
    }


def _peak() -> int:
    """The most memory that this process held; getrusage would count what its parent had before it was one."""
    lines = Path("/proc/self/status").read_text(encoding="ascii", errors="replace").splitlines()
    return int(next(line for line in lines if line.startswith("VmHWM:")).split()[1]) * 1024


class _Stage:
    def __init__(self, seconds: dict[str, float], name: str) -> None:
        self._seconds, self._name = seconds, name

    def __enter__(self) -> None:
        self._began = time.perf_counter()

    def __exit__(self, *_: object) -> None:
        self._seconds[self._name] = time.perf_counter() - self._began


def _news(plan: Plan) -> Any:
    """What the nodes' segments of the day after bring: spells with ids of their own."""
    from dataclasses import replace

    from outlast.daemon.fleet.flat import Flat

    for _, flat in by_provider(Plan(plan.nodes, 1, plan.stay_h, plan.seed + 1)):
        columns = flat.columns
        later = replace(
            columns, began=columns.began + plan.days * 86400.0, ended=columns.ended + plan.days * 86400.0
        )
        yield Flat(flat.id + 500_000_000_000, later)


def plain_python(plan: Plan) -> tuple[float, int]:
    """Seconds that plain Python takes for the hours of the week of a sample, and the spells in it."""
    _, flat = next(iter(by_provider(Plan(min(plan.nodes, 400), plan.days, plan.stay_h, plan.seed))))
    columns = flat.columns
    spells = list(zip(columns.began.tolist(), columns.ended.tolist(), columns.cause.tolist(), strict=True))[
        :SAMPLE
    ]
    began = time.perf_counter()
    exposure: dict[int, float] = defaultdict(float)
    losses: dict[int, int] = defaultdict(int)
    for begin, end, cause in spells:
        at = begin
        while at < end:
            hour = int(at // HOUR_S)
            until = min(end, (hour + 1) * HOUR_S)
            exposure[(hour + 72) % 168] += until - at
            at = until
        losses[(int((end - 1e-6) // HOUR_S) + 72) % 168] += cause in (1, 2)
    return time.perf_counter() - began, len(spells)


def measure(plan: Plan, keep: Path | None) -> dict[str, Any]:
    """Write the fleet, report on it in a child process, and let plain Python try its part."""
    from outlast.daemon.fleet.place import place_of
    from outlast.simulations.fleet.writing import write

    with tempfile.TemporaryDirectory() as room:
        folder = str(keep or Path(room) / "fleet")
        began = time.perf_counter()
        written = write(plan, place_of(folder), lambda name, count: _say(f"  {name}: {count:,} spells"))
        _say(f"made up {written:,} spells in {time.perf_counter() - began:.1f} s (not counted)")
        merged, found = (_child(job, folder, plan) for job in ("merge", "report"))
    found["seconds"] = {**merged["seconds"], **found["seconds"]}
    found["added"] = merged["added"]
    found["peak_bytes"] = max(merged["peak_bytes"], found["peak_bytes"])
    seconds, count = plain_python(plan)
    query = sum(found["seconds"].values())
    found |= {
        "query_s": query,
        "plain_python_s": seconds,
        "plain_python_spells": count,
        "ratio": seconds / count * found["spells"] / query,
        "table_ratio": seconds / count * found["spells"] / found["seconds"]["table"],
    }
    return found


def _child(job: str, folder: str, plan: Plan) -> dict[str, Any]:
    """One command's work in a process of its own, so that its memory is its own."""
    words = [sys.executable, __file__, "--child", job, "--keep", folder]
    words += ["--nodes", str(plan.nodes), "--days", str(plan.days)]
    done = subprocess.run(words, capture_output=True, text=True, check=True)
    body: dict[str, Any] = json.loads(done.stdout)
    return body


def verdicts(found: dict[str, Any], plan: Plan) -> list[tuple[str, bool]]:
    """Each goal with whether it was met."""
    true = " ".join(PATTERN)
    peak = found["patterns"].get(true)
    right = peak is not None and abs(peak - PEAK) <= 1.0 and len(found["patterns"]) == 1
    goals = [(f"only {true} has a daily pattern, at {PEAK:.0f} ± 1 UTC: {found['patterns']}", right)]
    if plan.nodes >= 10_000 and plan.days >= 365:
        goals += [
            (f"query {found['query_s']:.1f} s, at most {GOAL_S:.0f} s", found["query_s"] <= GOAL_S),
            (f"memory {found['peak_bytes'] / 1e9:.2f} GB, at most 1 GB", found["peak_bytes"] <= GOAL_BYTES),
        ]
    return goals


def _say(text: str) -> None:
    print(text, file=sys.stderr)


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--nodes", type=int, default=10_000)
    parser.add_argument("--days", type=int, default=365)
    parser.add_argument("--keep", type=Path, metavar="DIR", help="leave the fleet's Parquet there")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    plan = Plan(args.nodes, args.days)
    if args.child:
        work = one_merge if args.child == "merge" else one_report
        print(json.dumps(work(str(args.keep), plan)))
        return 0
    found = measure(plan, args.keep)
    goals = verdicts(found, plan)
    if args.json:
        print(json.dumps({"format": 1, **found, "held": all(met for _, met in goals)}))
        return 0 if all(met for _, met in goals) else 1
    stages = ", ".join(f"{name} {seconds:.2f} s" for name, seconds in found["seconds"].items())
    print(f"{found['spells']:,} spells, {found['pools']} pools, {found['added']:,} merged: {stages}")
    print(f"peak memory {found['peak_bytes'] / 1e9:.2f} GB, page {found['page_bytes'] / 1e6:.1f} MB")
    later = found["backtest"]
    print(
        f"back-test of {later['weeks']} weeks {later['seconds']:.2f} s, to {later['peak_bytes'] / 1e9:.2f} GB"
    )
    print(
        f"plain Python: hours of the week of {found['plain_python_spells']:,} spells in"
        f" {found['plain_python_s']:.2f} s; over all of them {found['table_ratio']:.1f} times the table,"
        f" {found['ratio']:.1f} times the whole query"
    )
    for told, met in goals:
        print(f"{'held  ' if met else 'MISSED'}  {told}")
    return 0 if all(met for _, met in goals) else 1


if __name__ == "__main__":
    sys.exit(main())
