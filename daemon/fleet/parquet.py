"""Spells, launches and prices as Parquet: plain columns, partitioned by provider and month, files added only.

``docs/fleet.md`` has the columns. A file holds a spell once; a later version of a spell is in another file of
the same partition, and readers take the newest (see ``newest``).
"""

from __future__ import annotations

import contextlib
import datetime as dt
import hashlib
import re
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import quote, unquote

import duckdb
import numpy as np
from numpy.typing import NDArray

from outlast.daemon.fleet.flat import CAUSE_NUMBER, Flat, derived, pick
from outlast.daemon.fleet.place import Place
from outlast.daemon.history.reading import UnreadableError
from outlast.daemon.history.rows import Pool
from outlast.daemon.rates.table import CAUSES, Columns, Origin

SPELLS, LAUNCHES, PRICES, LOSSES = "spells", "launches", "prices", "losses"
NOBODY = "__HIVE_DEFAULT_PARTITION__"
_NAME = re.compile(r"(?P<table>\w+)/provider=(?P<provider>[^/]+)/month=(?P<month>\d{4}-\d{2})/[^/]+\.parquet")
_MEMORY = "256MB"

# The number of a cause in this program; a cause that a newer one wrote says at least that the stay is over.
CAUSE_SQL = (
    "coalesce(CASE cause "
    + " ".join(f"WHEN '{cause}' THEN {number}" for cause, number in CAUSE_NUMBER.items())
    + f" END, {CAUSE_NUMBER['user-stop']})"
)


@dataclass(frozen=True, slots=True, order=True)
class Partition:
    """One provider's spells of one month, by when they were first seen to begin (UTC)."""

    provider: str
    month: str

    def folder(self, table: str) -> str:
        """Where its files lie."""
        provider = quote(self.provider, safe="") if self.provider else NOBODY
        return f"{table}/provider={provider}/month={self.month}"


@contextlib.contextmanager
def connection(place: Place | None = None, memory: str = _MEMORY) -> Iterator[duckdb.DuckDBPyConnection]:
    """A DuckDB of our own within bounds of memory; what does not fit is put into a temporary folder."""
    with tempfile.TemporaryDirectory(prefix="outlast-") as folder, duckdb.connect(":memory:") as db:
        db.execute(f"SET memory_limit = '{memory}'")
        db.execute(f"SET temp_directory = '{folder}'")
        db.execute("SET preserve_insertion_order = false")
        db.execute("SET enable_progress_bar = false")
        db.execute("SET TimeZone = 'UTC'")
        if place is not None:
            place.attach(db)
        yield db


def partitions(place: Place, table: str = SPELLS) -> dict[Partition, list[str]]:
    """The files of each partition. Files of other names are not ours and not looked at."""
    found: dict[Partition, list[str]] = {}
    for name in place.names(f"{table}/"):
        match = _NAME.fullmatch(name)
        if match and match["table"] == table:
            provider = "" if match["provider"] == NOBODY else unquote(match["provider"])
            found.setdefault(Partition(provider, match["month"]), []).append(name)
    return dict(sorted(found.items()))


def split(flat: Flat) -> dict[Partition, Flat]:
    """Spells by partition, all versions of one in the same, though the clock was set in between."""
    if not len(flat):
        return {}
    columns = flat.columns
    months = flat.first.astype("datetime64[s]").astype("datetime64[M]").astype(np.int64)
    providers = sorted({pool.provider for pool in columns.pools})
    of_pool = np.array([providers.index(pool.provider) for pool in columns.pools], dtype=np.int64)
    key = of_pool[columns.pool] * 100_000 + months
    order = np.argsort(key, kind="stable")
    keys, starts = np.unique(key[order], return_index=True)
    found = {}
    for number, rows in zip(keys.tolist(), np.split(order, starts[1:]), strict=True):
        month = str(np.datetime64(number % 100_000, "M"))
        found[Partition(providers[number // 100_000], month)] = pick(flat, rows)
    return found


def pool_key(pool: Pool, origin: Origin) -> int:
    """The number by which files know a pool."""
    return derived(pool, "pool", origin)


def write_spells(db: duckdb.DuckDBPyConnection, place: Place, partition: Partition, flat: Flat) -> str:
    """Add spells of one partition, each there once, as one file. Returns its name. Raises PlaceError."""
    columns = flat.columns
    held: Origin = "held"
    origins = columns.origin or (held,) * len(columns.pools)
    keys = np.array([pool_key(*pair) for pair in zip(columns.pools, origins, strict=True)], dtype=np.int64)
    order = np.lexsort((flat.id, columns.began, keys[columns.pool]))
    rows = {
        "id": flat.id[order],
        "i": columns.pool[order],
        "node": columns.node[order],
        "began": np.round(columns.began[order] * 1e6).astype(np.int64),
        "ended": np.round(columns.ended[order] * 1e6).astype(np.int64),
        "cause": columns.cause[order].astype(np.int16),
        "known": columns.known[order],
        "hinted": columns.hinted[order],
        "instance": flat.instance[order],
        "observed": np.round(flat.first[order] * 1e6).astype(np.int64),
    }
    with registered(db, rows=rows):
        _pools(db, columns.pools, origins, keys)
        db.execute("CREATE OR REPLACE TEMP TABLE causes (n SMALLINT, name VARCHAR)")
        db.executemany("INSERT INTO causes VALUES (?, ?)", list(enumerate(CAUSES)))
        return copied(db, place, partition.folder(SPELLS), _SPELL_ROWS)


_SPELL_ROWS = """
SELECT rows.id, pools.key AS pool, pools.region, pools.zone, pools.instance_type, rows.node,
    make_timestamptz(rows.began) AS began, make_timestamptz(rows.ended) AS ended, causes.name AS cause,
    rows.known AS age_known, rows.hinted AS left_on_hint, pools.origin, rows.instance,
    make_timestamptz(rows.observed) AS observed
FROM rows JOIN pools USING (i) JOIN causes ON causes.n = rows.cause
ORDER BY pools.key, rows.began, rows.id"""


def _pools(
    db: duckdb.DuckDBPyConnection, pools: Sequence[Pool], origins: Sequence[Origin], keys: Any
) -> None:
    db.execute(
        "CREATE OR REPLACE TEMP TABLE pools"
        " (i BIGINT, key BIGINT, region VARCHAR, zone VARCHAR, instance_type VARCHAR, origin VARCHAR)"
    )
    rows = [
        (i, int(key), pool.region, pool.zone, pool.instance_type, origin)
        for i, (pool, origin, key) in enumerate(zip(pools, origins, keys, strict=True))
    ]
    if rows:
        db.executemany("INSERT INTO pools VALUES (?, ?, ?, ?, ?, ?)", rows)


@contextlib.contextmanager
def registered(db: duckdb.DuckDBPyConnection, **tables: dict[str, Any]) -> Iterator[None]:
    """Arrays as tables of these names, for as long as it goes on."""
    for name, table in tables.items():
        db.register(name, table)
    try:
        yield
    finally:
        for name in tables:
            db.unregister(name)


def copied(db: duckdb.DuckDBPyConnection, place: Place, folder: str, select: str) -> str:
    """Write the rows to a file whose name says its contents, and put it there."""
    with tempfile.TemporaryDirectory(prefix="outlast-") as room:
        file = Path(room) / "rows.parquet"
        db.execute(f"COPY ({select}) TO '{file}' (FORMAT parquet, COMPRESSION zstd, ROW_GROUP_SIZE 122880)")
        with file.open("rb") as content:
            digest = hashlib.file_digest(content, "sha256").hexdigest()
        name = f"{folder}/{digest[:32]}.parquet"
        place.put(name, file)
    return name


def scan(place: Place, files: Sequence[str]) -> str:
    """The rows of these files, as SQL."""
    listed = ", ".join("'" + place.path(name).replace("'", "''") + "'" for name in files)
    return f"read_parquet([{listed}], hive_partitioning = true, union_by_name = true)"


def read_flat(
    db: duckdb.DuckDBPyConnection, place: Place, partition: Partition, files: Sequence[str], ids: Any = None
) -> Flat:
    """The spells of a partition's files, all versions; those of ``ids`` only if given. UnreadableError."""
    where = "" if ids is None else "WHERE id IN (SELECT id FROM wanted)"
    query = f"""
SELECT id, pool, node, epoch_us(began) AS began, epoch_us(ended) AS ended, {CAUSE_SQL} AS cause,
    age_known AS known, left_on_hint AS hinted, coalesce(instance, 0) AS instance,
    epoch_us(coalesce(observed, began)) AS observed FROM {_widened(place, files)} {where}"""  # noqa: S608 - quoted
    wanted = {} if ids is None else {"wanted": {"id": ids}}
    with reading(place.path(files[0])), registered(db, **wanted):
        rows = db.execute(query).fetchnumpy()
        pools, origins, keys = pools_of(db, place, partition, files)
    keys_at = np.searchsorted(keys, rows["pool"])
    columns = Columns(
        pools=pools,
        origin=origins,
        pool=keys_at.astype(np.int64),
        node=rows["node"],
        began=rows["began"] / 1e6,
        ended=rows["ended"] / 1e6,
        cause=rows["cause"].astype(np.int8),
        known=rows["known"],
        hinted=rows["hinted"],
    )
    return Flat(rows["id"], columns, rows["observed"] / 1e6, rows["instance"])


_LATEST = """WITH stays AS (SELECT id, node, instance, coalesce(observed, began) AS first FROM {rows}),
told AS (
    SELECT n, latest, id, first FROM stays JOIN names ON node = n AND epoch_us(first) <= latest
    UNION ALL
    SELECT n, latest, id, first FROM stays JOIN names ON instance = n AND epoch_us(first) <= latest
)
SELECT DISTINCT arg_max(id, (first, id)) AS id FROM told GROUP BY n, latest"""


def latest_of(
    db: duckdb.DuckDBPyConnection,
    place: Place,
    files: Sequence[str],
    names: NDArray[np.int64],
    latest: NDArray[np.float64],
) -> NDArray[np.int64]:
    """Of each node or instance that has one of these numbers the last spell that began up to then.

    Raises UnreadableError.
    """
    asked = {"n": names, "latest": np.round(latest * 1e6).astype(np.int64)}
    with reading(place.path(files[0])), registered(db, names=asked):
        rows = db.execute(_LATEST.format(rows=_widened(place, files))).fetchnumpy()
    found: NDArray[np.int64] = rows["id"]
    return found


def _widened(place: Place, files: Sequence[str]) -> str:
    """The rows of these files, with the columns that those of an earlier release do not have."""
    late = "SELECT NULL::BIGINT AS instance, NULL::TIMESTAMPTZ AS observed WHERE false"
    return f"(SELECT * FROM {scan(place, files)} UNION ALL BY NAME {late})"  # noqa: S608 - quoted


_POOLS = "SELECT pool, any_value(region), any_value(zone), any_value(instance_type), any_value(origin)"


def pools_of(
    db: duckdb.DuckDBPyConnection, place: Place, partition: Partition, files: Sequence[str]
) -> tuple[tuple[Pool, ...], tuple[Origin, ...], Any]:
    """The pools in these files, their origins and keys, in order of the keys."""
    rows = db.execute(f"{_POOLS} FROM {scan(place, files)} GROUP BY pool ORDER BY pool").fetchall()
    pools = tuple(Pool(partition.provider, *row[1:4]) for row in rows)
    origins: tuple[Origin, ...] = tuple("probe" if row[4] == "probe" else "held" for row in rows)
    return pools, origins, np.array([row[0] for row in rows], dtype=np.int64)


@contextlib.contextmanager
def reading(what: str) -> Iterator[None]:
    """Say what DuckDB cannot read, and what to do."""
    try:
        yield
    except duckdb.Error as exc:
        first = (str(exc).splitlines() or [""])[0][:300]
        raise UnreadableError(
            f"{what} cannot be read as Parquet of a fleet: {first}. Remove a damaged file and merge anew."
        ) from exc


def month_of(at: float) -> str:
    """The month of UTC seconds."""
    return dt.datetime.fromtimestamp(at, dt.UTC).strftime("%Y-%m")
