"""What to do in the time that a notice leaves: ``decide(outlook) -> Verdict``. Pure; seconds and bytes.

A notice can move ``(window - detect - step - save - commit) x bandwidth`` bytes and no more, so what to do
follows from what was measured. A need that is not known is taken to fit: trying a flush costs nothing that
the node's end would not cost anyway.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

# After these actions the disk is there again. A disk inside the host is not; only a peer helps there.
SURVIVED = frozenset({"stop", "hibernate", "pause"})
# Kept free for the last words and the handover: so much, or a quarter of the time left if that is less.
MARGIN_S = 2.0
# What DeepSpeed writes for one parameter trained in bf16 with Adam, by ZeRO stage, as measured.
_BYTES_A_PARAMETER = {0: 14.0, 1: 14.0, 2: 14.0, 3: 12.0}


class Choice(StrEnum):
    """The four things that can be done, the best first."""

    FLUSH_AND_SHIP = "flush and ship"
    SHIP_UNDER_WAY = "ship what is under way"
    FLUSH_HERE = "flush to a disk that survives"
    KEEP = "keep to the last committed"

    @property
    def rank(self) -> int:
        """0 for the best."""
        return list(Choice).index(self)


@dataclass(frozen=True, slots=True)
class Outlook:
    """What bears on the choice. None is *not known*, for every number.

    ``left_s``: until the deadline. ``flush_s``: from the request until every rank has saved, the wait for the
    step's end included; ``commit_s``: until the manifest is there. ``bytes_s``: to the peer. ``flush_bytes``:
    what a flush has to send once it is committed, given what lies at the peer; ``unsent``: what the
    checkpoint ``under_way`` still has to (0: there is none). ``margin_s``: kept free for detection and the
    handover.
    ``survives``: the disk is there after the notice's action. ``reachable``: None before the first try.
    """

    left_s: float | None
    flush_s: float | None = None
    commit_s: float | None = None
    bytes_s: float | None = None
    flush_bytes: float | None = None
    unsent: float | None = 0
    under_way: str = "what is under way"
    margin_s: float = 0.0
    survives: bool = False
    peer: bool = True
    reachable: bool | None = True


@dataclass(frozen=True, slots=True)
class Sending:
    """What the next checkpoint is reckoned to send, at which rate, from its first byte until the peer has
    verified it. None is not known."""

    size: int | None
    bytes_s: float | None

    @property
    def seconds(self) -> float | None:
        """How long that takes."""
        return _seconds(self.size, self.bytes_s)


def sending(last: int | None, newest: int, bytes_s: float | None) -> Sending:
    """By what the ``last`` whole transfer sent, else by the ``newest`` checkpoint's size; 0 is none."""
    return Sending(last if last is not None else newest or None, bytes_s)


@dataclass(frozen=True, slots=True)
class Verdict:
    """The choice. ``needed_s`` is what it takes, or would take where it does not fit; None is not known.

    ``flushes``: a flush is asked for. It is so for ``KEEP`` too where nothing better is held up by it.
    """

    choice: Choice
    needed_s: float | None
    left_s: float | None
    sentence: str
    flushes: bool = True


def decide(outlook: Outlook) -> Verdict:
    """The best choice that fits. More time or more bandwidth never makes it a worse one."""
    both = _whole_s(outlook)
    if outlook.peer and outlook.reachable is not False and _fits(outlook, *both):
        return Verdict(Choice.FLUSH_AND_SHIP, _sum(both), outlook.left_s, _flush_and_ship(outlook))
    rest = _seconds(outlook.unsent, outlook.bytes_s)
    if outlook.peer and outlook.reachable and outlook.unsent != 0 and _fits(outlook, rest):
        why = _ship_instead(outlook)
        return Verdict(Choice.SHIP_UNDER_WAY, rest, outlook.left_s, why, flushes=False)
    here = (outlook.flush_s, outlook.commit_s)
    if outlook.survives and _fits(outlook, *here):
        return Verdict(Choice.FLUSH_HERE, _sum(here), outlook.left_s, _flush_here(outlook))
    return _keep(outlook)


def margin(left_s: float) -> float:
    """Seconds to keep free before a deadline that is ``left_s`` away."""
    return max(0.0, min(MARGIN_S, left_s / 4))


def checkpoint_bytes(parameters: float, zero: int) -> float:
    """The size of a checkpoint of so many trained parameters.

    Measured on DeepSpeed with bf16 and Adam: ZeRO 1 and 2 write 14.0 bytes a parameter (half-precision
    weights, fp32 master, two moments), ZeRO 3 12.0, as its weights are the master copy alone. Frozen weights
    are not counted: a LoRA is its trained parameters. Raises KeyError for another stage than 0 to 3.
    """
    return parameters * _BYTES_A_PARAMETER[zero]


def movable_bytes(
    window_s: float, bytes_s: float, *, detect_s: float, step_s: float, save_s: float, commit_s: float
) -> float:
    """What a notice of ``window_s`` can move once all is done that comes before the first byte."""
    return max(0.0, window_s - detect_s - step_s - save_s - commit_s) * bytes_s


# ---- what things take


def _fits(outlook: Outlook, *needs: float | None) -> bool:
    """The needs that are known, with the margin, are over before the deadline."""
    if outlook.left_s is None or all(need is None for need in needs):
        return True
    return _known(needs) + outlook.margin_s <= outlook.left_s


def _whole_s(outlook: Outlook) -> tuple[float | None, ...]:
    return (outlook.flush_s, outlook.commit_s, _seconds(outlook.flush_bytes, outlook.bytes_s))


def _seconds(size: float | None, bytes_s: float | None) -> float | None:
    if size == 0:
        return 0.0
    return None if size is None or not bytes_s else size / bytes_s


def _sum(needs: tuple[float | None, ...]) -> float | None:
    """Together; None where the flush itself, or the way to the peer, was never measured."""
    flush_s, _commit_s, *way = needs
    return None if flush_s is None or None in way else _known(needs)


def _known(needs: tuple[float | None, ...]) -> float:
    """What is known of them: they take at least so long."""
    return sum(need for need in needs if need is not None)


# ---- the sentences


def _figures(needed_s: float | None, left_s: float | None) -> str:
    needed = "" if needed_s is None else f"{needed_s:.1f} s needed"
    left = "no deadline" if left_s is None else f"{max(left_s, 0.0):.1f} s left"
    return f"{needed}, {left}" if needed else left


def _flush_and_ship(outlook: Outlook) -> str:
    needed = _sum(_whole_s(outlook))
    known = "not measured yet how long that takes" if needed is None else _figures(needed, outlook.left_s)
    return f"flush, then ship it and hand over ({known})"


def _ship_instead(outlook: Outlook) -> str:
    rest = _seconds(outlook.unsent, outlook.bytes_s)
    takes = "" if rest is None else f" ({rest:.1f} s needed)"
    return f"{_too_short(outlook)}: ship {outlook.under_way} instead{takes}"


def _too_short(outlook: Outlook) -> str:
    assert outlook.left_s is not None
    left = max(outlook.left_s, 0.0)
    if not _fits(outlook, outlook.flush_s, outlook.commit_s) and outlook.flush_s is not None:
        return (
            f"{left:.1f} s are too short for a flush of {_known((outlook.flush_s, outlook.commit_s)):.1f} s"
        )
    needed = _known(_whole_s(outlook))
    return f"{left:.1f} s are too short to flush and ship ({needed:.1f} s needed)"


def _flush_here(outlook: Outlook) -> str:
    if not outlook.peer:
        return "flush, then keep it here (no peer is configured)"
    figures = _figures(_sum((outlook.flush_s, outlook.commit_s)), outlook.left_s)
    if outlook.reachable is False:
        return f"flush to this disk, which survives ({figures}); the peer is not reachable"
    longer = _known(_whole_s(outlook))
    return f"flush to this disk, which survives ({figures}); to ship it as well would take {longer:.1f} s"


def _keep(outlook: Outlook) -> Verdict:
    """Nothing fits. A flush is tried all the same, unless it cannot end and would slow a transfer down."""
    over = outlook.left_s is not None and outlook.left_s <= 0
    under_way = outlook.peer and outlook.reachable and outlook.unsent != 0
    tries = bool(over or not under_way or _fits(outlook, outlook.flush_s, outlook.commit_s))
    shipping = outlook.peer and outlook.reachable is not False
    needs = _whole_s(outlook) if shipping else (outlook.flush_s, outlook.commit_s)
    needed = None if all(need is None for need in needs) else _known(needs)
    words = _keep_words(outlook, needed, tries=tries)
    return Verdict(Choice.KEEP, needed, outlook.left_s, words, tries)


def _keep_words(outlook: Outlook, needed: float | None, *, tries: bool) -> str:
    figures = _figures(needed, outlook.left_s)
    if not outlook.peer:
        return f"keep to the last committed; flush if the time lasts ({figures}; no peer is configured)"
    if outlook.reachable is False:
        return f"keep to the last committed; flush, and ship it if the peer comes back ({figures})"
    if tries:
        what = "flush and ship what fits"
        return f"keep to the last committed; {what}: {figures}; else the peer's newest counts"
    rest = _seconds(outlook.unsent, outlook.bytes_s)
    takes = "" if rest is None else f" ({rest:.1f} s needed)"
    return (
        f"{_too_short(outlook)}: ship what fits of {outlook.under_way}{takes}; else the peer's newest counts"
    )
