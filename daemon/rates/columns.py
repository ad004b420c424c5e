"""From the history's rows to spells as columns."""

from __future__ import annotations

import hashlib
from functools import lru_cache

import numpy as np

from outlast.daemon.history.counting import merge, settled, strays
from outlast.daemon.history.rows import LossRow, Rows, Spell
from outlast.daemon.rates.table import CAUSES, Columns

# A stay first observed this soon after the machine was up is observed from its beginning: within the first
# band of age, so that no band gets what belongs to another.
FRESH_S = 900.0

_NUMBER = {cause: number for number, cause in enumerate(CAUSES)}


def columns_of(rows: Rows, now: float) -> Columns:
    """Say which stays the rows tell of, as seen at UTC ``now``. Rows of several files may be joined in one.

    Drills are left out. Spells that could not tell their own end get it from notices and peers; a node found
    gone of which no spell is known is a row of no length. A stay's length is what the monotonic clock
    measured, and its last heartbeat (the wall clock as it was set last) places it: a wall clock that was set
    in between changes no length.
    """
    rows = settled(merge(rows), now)
    spells = [spell for spell in rows.spells if not spell.drill]
    gone = strays(rows)
    every: list[Spell | LossRow] = [*spells, *gone]
    hinted = {hint.spell for hint in rows.hints}
    pools = sorted({row.pool for row in every})
    place = {pool: index for index, pool in enumerate(pools)}
    nodes = [_node(spell.node or spell.instance_id) for spell in spells] + [
        _node(loss.victim) for loss in gone
    ]
    return Columns(
        pools=tuple(pools),
        pool=np.array([place[row.pool] for row in every], dtype=np.int64),
        node=np.array(nodes, dtype=np.int64),
        began=np.array([_end(s) - s.alive_s for s in spells] + [loss.at for loss in gone], dtype=np.float64),
        ended=np.array([_end(s) for s in spells] + [loss.at for loss in gone], dtype=np.float64),
        cause=np.array([_cause(row) for row in every], dtype=np.int8),
        known=np.array([_known(s) for s in spells] + [False] * len(gone), dtype=np.bool_),
        hinted=np.array(
            [s.cause == "failover" and s.id in hinted for s in spells] + [False] * len(gone), dtype=np.bool_
        ),
    )


def _end(spell: Spell) -> float:
    return spell.heartbeat if spell.ended is None else spell.ended


def _known(spell: Spell) -> bool:
    return spell.up_s is not None and spell.up_s <= FRESH_S


def _cause(row: Spell | LossRow) -> int:
    """A cause that a newer version wrote and this one does not know says at least that the stay is over."""
    if isinstance(row, LossRow):
        return _NUMBER["silent-loss"]
    return _NUMBER.get(row.cause, _NUMBER["user-stop"])


@lru_cache(maxsize=65536)
def _node(name: str) -> int:
    """Make of a name a number that tells nodes apart, the same in every process."""
    return int.from_bytes(hashlib.sha256(name.encode("utf-8", "replace")).digest()[:7], "big")
