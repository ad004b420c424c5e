"""What the page says first: the recommendation or what can be said without one, why, what is not known."""

from __future__ import annotations

from dataclasses import dataclass

from outlast.daemon.advice.values import Advice, Row
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import Observed
from outlast.daemon.rates.values import PoolRate, Range, Study
from outlast.daemon.report import findings, times, words
from outlast.daemon.report.text import clean

_SENTENCE = 500
_VERDICTS = {
    "run": "Recommendation",
    "tie": "A tie",
    "on-demand": "Recommendation: on-demand",
    "not enough data": "Not enough data for a recommendation",
}
# So many pools are named one by one in a sentence.
_NAMED = 5


@dataclass(frozen=True, slots=True)
class Answer:
    """The first box of the page. ``facts`` are pairs of what and how much."""

    heading: str
    sentence: str
    facts: tuple[tuple[str, str], ...]
    reasons: tuple[str, ...]
    not_known: tuple[str, ...]
    assumed: tuple[str, ...]


def answer(study: Study, advice: Advice | None, observed: Observed, zone: times.Zone) -> Answer:
    """The recommendation if there is one, else what the rates alone say."""
    if advice is None:
        return _without(study, observed)
    return Answer(
        _VERDICTS[advice.verdict],
        clean(advice.sentence, _SENTENCE),
        tuple(_facts(advice, zone)),
        _lines(advice.reasons),
        _lines(advice.not_known),
        _lines(advice.assumed),
    )


def _facts(advice: Advice, zone: times.Zone) -> list[tuple[str, str]]:
    named = words.names([*advice.order, *([advice.standby] if advice.standby else [])])
    first = _row(advice, advice.order[0]) if advice.order else None
    found = [("Start", clean(advice.window, 120))]
    if advice.order:
        found.append(("Pools, in order", _listed([named[pool] for pool in advice.order])))
    if advice.standby:
        found.append(("Standby", named[advice.standby]))
    if advice.cap:
        found.append(("Price cap or bid", clean(advice.cap, 120)))
    if advice.policy:
        found.append(("Policy", clean(advice.policy, 160)))
    if advice.interval_s is not None:
        steps = f", {words.counted(advice.interval_steps, 'step')}" if advice.interval_steps else ""
        found.append(("Checkpoint every", f"{advice.interval_s:,.0f} s{steps}"))
    if first is not None:
        found.append(("Cost of a useful hour (90 %)", money(first.per_useful_hour)))
        if first.p_deadline is not None:
            found.append(("Done by the deadline", f"{words.percent(first.p_deadline)} likely"))
    found.append(("Valid until", times.stamp(advice.valid_until, zone)))
    return found


def money(found: Range) -> str:
    """``$0.97 (0.93-1.04)``, with a dash."""
    mean, low, high = (words.dollars(value) for value in (found.mean, found.low, found.high))
    return f"{mean} ({low.removeprefix('$')}{words.DASH}{high.removeprefix('$')})"


def _row(advice: Advice, pool: Pool) -> Row | None:
    return next((row for row in advice.rows if row.pool == pool and row.market == "spot"), None)


def _without(study: Study, observed: Observed) -> Answer:
    ranked = [pool for pool in study.pools if pool.state == "ok"]
    if not study.pools:
        return Answer(
            "No history yet",
            "Not one instance-hour has been seen, so nothing can be said about any pool.",
            (),
            (),
            ("Everything: the record begins with the first spell.",),
            (),
        )
    heading, sentence = _calmest(ranked)
    reasons = [findings.weekend(found) for found in study.weekends if found.state == "pattern"]
    reasons += [
        found.sentence
        for found in findings.daily(study, observed.table, None)
        if found.pattern.state == "pattern"
    ]
    reasons += [told for curve in study.ages if (told := findings.age(curve))]
    unranked = len(study.pools) - len(ranked)
    lacks = (
        [f"{words.counted(unranked, 'pool')} cannot be ranked: see the column “data”."] if unranked else []
    )
    if not observed.prices:
        lacks.append("Prices: none are in this history, so calm is not weighed against cost.")
    lacks.append("The job: with its size and hours, “outlast advise” weighs cost, interval and deadline.")
    return Answer(heading, sentence, (("Data", findings.totals(study)),), tuple(reasons), tuple(lacks), ())


def _calmest(ranked: list[PoolRate]) -> tuple[str, str]:
    if not ranked:
        return "Not enough data to rank", "No pool has been seen long enough to be ranked."
    named = words.names([pool.pool for pool in ranked])
    best = ranked[0]
    rate, stay = words.typeset(words.rate(best)), words.hours(best.typical_stay_h)
    told = f"{named[best.pool]} lost {rate} nodes per 100 instance-hours, typical stay {stay}"
    if len(ranked) == 1:
        return "One pool can be ranked", f"{told}. There is nothing to compare it with."
    alike = [named[pool.pool] for pool in ranked[1:] if pool.hazard.low <= best.hazard.high]
    if alike:
        return "The calmest pools are a tie", f"{told}. Its range overlaps with that of {_listed(alike)}."
    return f"The calmest pool is {named[best.pool]}", f"{told}. Its range overlaps with that of no other."


def _listed(texts: list[str]) -> str:
    more = len(texts) - _NAMED
    return ", ".join(texts[:_NAMED]) + (f" and {more} more" if more > 0 else "")


def _lines(found: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(clean(line, _SENTENCE) for line in found)
