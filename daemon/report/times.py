"""Times in UTC with the reader's zone beside. A zone of None is the machine's own, with its summer time."""

from __future__ import annotations

import datetime as dt

Zone = dt.tzinfo | None


def utc(at: float) -> dt.datetime:
    """The instant in UTC."""
    return dt.datetime.fromtimestamp(at, dt.UTC)


def is_utc(zone: Zone, at: float) -> bool:
    """Whether the reader's clock shows UTC at ``at``, so that nothing need stand beside."""
    return not utc(at).astimezone(zone).utcoffset()


def abbreviation(zone: Zone, at: float) -> str:
    """What the reader's zone is called at ``at``: ``CEST``, ``+0530``."""
    local = utc(at).astimezone(zone)
    name = local.tzname() or ""
    return name if name.isascii() and name.isalnum() else local.strftime("%z")


def stamp(at: float, zone: Zone) -> str:
    """``2026-03-01 12:00 UTC (13:00 CET)``; with the date in the brackets where it is another."""
    there = utc(at)
    text = f"{there:%Y-%m-%d %H:%M} UTC"
    if is_utc(zone, at):
        return text
    local = there.astimezone(zone)
    day = "" if local.date() == there.date() else f"{local:%m-%d} "
    return f"{text} ({day}{local:%H:%M} {abbreviation(zone, at)})"


def period(begins: float, ends: float) -> str:
    """``2023-02-15 to 04-02 (46 days, UTC)``: the year once where it is the same."""
    first, last = utc(begins), utc(max(begins, ends - 1.0))
    days = max(1, round((ends - begins) / 86400.0))
    to = f"{last:%m-%d}" if first.year == last.year else f"{last:%Y-%m-%d}"
    return f"{first:%Y-%m-%d} to {to} ({days} day{'s' if days != 1 else ''}, UTC)"


def clock(hour: float, zone: Zone, at: float) -> str:
    """The UTC hour of the day ``hour`` on the reader's clock, at the offset of ``at``: ``17:30``."""
    offset = utc(at).astimezone(zone).utcoffset() or dt.timedelta()
    minutes = round(hour * 60 + offset.total_seconds() / 60) % (24 * 60)
    return f"{minutes // 60:02d}:{minutes % 60:02d}"


def hour(of_day: float, zone: Zone, at: float) -> str:
    """``16 UTC (17:00 CET)``, an hour of the day in UTC and for the reader."""
    text = f"{round(of_day) % 24:02d} UTC"
    if is_utc(zone, at):
        return text
    return f"{text} ({clock(round(of_day) % 24, zone, at)} {abbreviation(zone, at)})"
