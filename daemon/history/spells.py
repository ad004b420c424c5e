"""Spells, and the nodes found gone: the exposure half of the history."""

from __future__ import annotations

import hashlib
import sqlite3
from dataclasses import dataclass

from outlast.daemon.history.rows import Cause, Moment, Seer
from outlast.daemon.history.store import Store
from outlast.providers.base import Identity

# Sightings of one victim's death this close together are one loss.
SAME_LOSS_S = 180.0

_CLOSE = """
UPDATE spells SET ended = heartbeat, cause = CASE
    WHEN EXISTS (SELECT 1 FROM notices WHERE spell = spells.id AND withdrawn IS NULL AND drill = spells.drill)
    THEN 'interruption' ELSE 'silent-loss' END
WHERE node = ? AND ended IS NULL AND id <> ?"""

# What a later look at the provider tells is taken over; what was known is not forgotten.
_LEARN = """
UPDATE spells SET provider = coalesce(nullif(:provider, ''), provider),
    region = coalesce(nullif(:region, ''), region), zone = coalesce(nullif(:zone, ''), zone),
    zone_id = coalesce(nullif(:zone_id, ''), zone_id), spot = coalesce(:spot, spot),
    instance_type = coalesce(nullif(:instance_type, ''), instance_type),
    instance_id = coalesce(nullif(:instance_id, ''), instance_id), heartbeat = max(began, :wall),
    alive_s = max(alive_s, :mono - began_mono)
WHERE id = :id AND ended IS NULL"""


@dataclass(frozen=True, slots=True)
class _Open:
    spell: int
    fresh: bool


class Spells(Store):
    """One open spell a node. A spell is of one boot, so its length is measured on the monotonic clock."""

    def begin_spell(self, identity: Identity, node: str, boot_id: str, drill: bool = False) -> int:
        """The id of this stay: the open one after a restart of the daemon, else a new one.

        An open spell that this node left behind in another boot or instance ends at its last heartbeat.
        """
        self.boot_id = boot_id
        now = self._now()
        found = self._read(lambda db: _find(db, identity, node, boot_id), None)
        spell = found.spell if found else _spell_id(identity, node, boot_id, 0)
        values = _values(identity, node, boot_id, drill, spell, now)
        fresh = found is None or found.fresh
        self._write(lambda db: _begin(db, values, fresh))
        return spell

    def heartbeat(self, spell: int) -> None:
        """The node lives: its time at risk is counted up to now."""
        now = self._now()
        self._write(lambda db: _beat(db, spell, now))

    def end_spell(self, spell: int, cause: Cause) -> None:
        """The stay is over now, for ``cause``. The first end counts; later ones change nothing."""
        now = self._now()

        def end(db: sqlite3.Connection) -> None:
            _beat(db, spell, now)
            db.execute(
                "UPDATE spells SET ended = heartbeat, cause = ? WHERE id = ? AND ended IS NULL",
                (cause, spell),
            )

        self._write(end)

    def loss(
        self,
        identity: Identity,
        seen_by: Seer,
        at: float | None = None,
        node: str = "",
        drill: bool = False,
    ) -> None:
        """An instance is gone. ``at`` is UTC seconds, now if left out; repeated sightings are one loss."""
        when = self._now().wall if at is None else at
        victim = identity.instance_id or node or identity.name

        def write(db: sqlite3.Connection) -> None:
            near = "SELECT 1 FROM losses WHERE victim = ? AND abs(at - ?) <= ?"
            if db.execute(near, (victim, when, SAME_LOSS_S)).fetchone():
                return
            db.execute(
                "INSERT INTO losses (provider, region, zone, zone_id, instance_type, victim, seen_by, at,"
                " drill) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
                (*_place(identity), victim, seen_by, when, int(drill)),
            )

        self._write(write)


def _place(identity: Identity) -> tuple[str, ...]:
    return (identity.provider, identity.region, identity.zone, identity.zone_id, identity.instance_type)


def _find(db: sqlite3.Connection, identity: Identity, node: str, boot_id: str) -> _Open:
    """The open spell of this node's boot, whose instance may not have been known yet; else a free id."""
    row = db.execute(
        "SELECT id FROM spells WHERE node = ? AND boot_id = ? AND ended IS NULL"
        " AND (instance_id = ? OR instance_id = '' OR ? = '') ORDER BY began DESC LIMIT 1",
        (node, boot_id, identity.instance_id, identity.instance_id),
    ).fetchone()
    if row:
        return _Open(int(row[0]), fresh=False)
    number = 0
    while db.execute(
        "SELECT 1 FROM spells WHERE id = ?", (_spell_id(identity, node, boot_id, number),)
    ).fetchone():
        number += 1
    return _Open(_spell_id(identity, node, boot_id, number), fresh=True)


def _spell_id(identity: Identity, node: str, boot_id: str, number: int) -> int:
    """The same stay has the same id in whatever file it is recorded, so that files can be merged."""
    key = "\0".join((identity.provider, identity.instance_id or node, boot_id, str(number)))
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:6], "big")


def _values(
    identity: Identity, node: str, boot_id: str, drill: bool, spell: int, now: Moment
) -> dict[str, object]:
    return {
        "id": spell,
        "provider": identity.provider,
        "region": identity.region,
        "zone": identity.zone,
        "zone_id": identity.zone_id,
        "instance_type": identity.instance_type,
        "instance_id": identity.instance_id,
        "spot": None if identity.spot is None else int(identity.spot),
        "node": node,
        "boot_id": boot_id,
        "drill": int(drill),
        "wall": now.wall,
        "mono": now.mono,
    }


def _begin(db: sqlite3.Connection, values: dict[str, object], fresh: bool) -> None:
    db.execute(_CLOSE, (values["node"], values["id"]))
    if not fresh:
        db.execute(_LEARN, values)
        return
    db.execute(
        "INSERT OR IGNORE INTO spells (id, provider, region, zone, zone_id, instance_type, instance_id,"
        " spot, node, boot_id, drill, began, began_mono, heartbeat) VALUES (:id, :provider, :region, :zone,"
        " :zone_id, :instance_type, :instance_id, :spot, :node, :boot_id, :drill, :wall, :mono, :wall)",
        values,
    )


def _beat(db: sqlite3.Connection, spell: int, now: Moment) -> None:
    # A wall clock set back must not let a spell end before it began.
    db.execute(
        "UPDATE spells SET heartbeat = max(began, ?), alive_s = max(alive_s, ? - began_mono)"
        " WHERE id = ? AND ended IS NULL",
        (now.wall, now.mono, spell),
    )
