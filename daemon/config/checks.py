"""Rules that span several keys. They read the plain data, so that they speak even when a value is wrong."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable, Iterator, Mapping

from outlast.daemon.config.problem import Fault, Loc, shown

Data = Mapping[str, object]

# Which providers an option means something for; `auto` may turn out to be any of them.
_ONLY_FOR = {
    "acknowledge": ("azure",),
    "notice": ("gcp",),
    "own_name": ("azure",),
    "endpoint": ("aws", "gcp", "azure"),
    "poll": ("aws", "gcp", "azure"),
}
_WHY = {
    "acknowledge": "has no way to acknowledge a notice",
    "notice": "announces the deadline itself",
    "own_name": "does not filter by name",
    "endpoint": "asks nobody",
    "poll": "asks nobody",
}


def check(data: Data) -> Iterator[Fault]:
    """Every fault between keys of one document, in no particular order."""
    yield from _provider(_section(data, "provider"))
    jobs = data.get("jobs")
    if jobs == []:
        yield Fault(("jobs",), "must hold at least one job")
    items = enumerate(jobs) if isinstance(jobs, list) else ()
    named: list[tuple[Loc, Data]] = [(("jobs", i), job) for i, job in items if isinstance(job, dict)]
    for loc, job in named:
        yield from _job(loc, job)
        yield from _nodes(loc, job, _section(data, "node").get("name", socket.gethostname()))
    yield from _once(named, "name", lambda value: f"there are two jobs with the name {value}")
    yield from _once(named, "checkpoints", lambda value: f"two jobs share the checkpoint folder {value}")


def _section(data: Data, key: str) -> Data:
    value = data.get(key)
    return value if isinstance(value, dict) else {}


def _provider(section: Data) -> Iterator[Fault]:
    name = section.get("name", "auto")
    if name not in ("aws", "gcp", "azure", "none"):
        return
    for key, able in _ONLY_FOR.items():
        asked = section.get(key)
        if asked is None or asked is False or name in able:
            continue
        who = f"provider {name}" if name != "none" else "provider none"
        advice = f"; it is for {' and '.join(able)}" if len(able) == 1 else ""
        yield Fault(("provider", key), f"{who} {_WHY[key]}{advice}; remove it", at_key=True)


def _job(loc: Loc, job: Data) -> Iterator[Fault]:
    standby = job.get("role") == "standby"
    if not standby and "checkpoints" not in job:
        yield Fault((*loc, "checkpoints"), "required for a primary: the folder its trainer saves to")
    if standby and "replicas" not in job:
        yield Fault((*loc, "replicas"), "required for a standby: the folder that receives checkpoints")
    if standby and "start" not in job:
        yield Fault((*loc, "start"), "required for a standby: the command or the unit of its trainer")
    yield from _start((*loc, "start"), job.get("start"))
    yield from _destinations(loc, job)


def _nodes(loc: Loc, job: Data, name: object) -> Iterator[Fault]:
    """A job on several nodes: what it needs, and what their daemons cannot do together."""
    nodes = job.get("nodes")
    if not isinstance(nodes, list) or not nodes:
        return
    place = (*loc, "nodes")
    if name not in nodes:
        yield Fault(
            place, f"does not name this node, {shown(name)}: set node.name to one of them", at_key=True
        )
    if job.get("role") == "standby":
        yield Fault(place, "is for a primary; a standby has whole checkpoints", at_key=True)
    elif "peer" not in job:
        yield Fault(place, "needs a peer, where the parts of all nodes come together", at_key=True)
    if job.get("stores"):
        yield Fault(
            (*loc, "stores"), "does not go with nodes: a store cannot put parts together", at_key=True
        )


def _start(loc: Loc, start: object) -> Iterator[Fault]:
    if not isinstance(start, dict):
        return
    if "command" not in start and "unit" not in start:
        yield Fault(loc, "needs a command or a unit")
    if "unit" not in start:
        return
    for key in ("command", "folder", "env"):
        if key in start:
            yield Fault((*loc, key), "does not go with unit; it belongs in the unit's own file", at_key=True)


def _destinations(loc: Loc, job: Data) -> Iterator[Fault]:
    stores = job.get("stores")
    given = stores if isinstance(stores, list) else []
    count = len(given) + ("peer" in job)
    require = job.get("require")
    if "require" in job and not count:
        yield Fault((*loc, "require"), "speaks of a peer and stores; there is none", at_key=True)
    elif isinstance(require, int) and require > count:
        yield Fault((*loc, "require"), f"asks for {require} destinations, and there are {count}")
    named: list[tuple[Loc, Data]] = [
        ((*loc, "stores", i), store) for i, store in enumerate(given) if isinstance(store, dict)
    ]
    yield from _once(named, "url", lambda value: f"{value} is given twice")
    for place, store in named:
        yield from _store(place, store)


def _store(loc: Loc, store: Data) -> Iterator[Fault]:
    """Which option means something for which kind of store."""
    url = store.get("url")
    scheme = url.partition("://")[0] if isinstance(url, str) and "://" in url else "file"
    for key, able in {"region": ("s3",), "account": ("az",), "endpoint": ("s3", "gs", "az")}.items():
        if store.get(key) is not None and scheme not in able:
            yield Fault((*loc, key), f"means nothing for {shown(url)}; remove it", at_key=True)


def _once(jobs: list[tuple[Loc, Data]], key: str, message: Callable[[str], str]) -> Iterator[Fault]:
    seen: set[str] = set()
    for loc, job in jobs:
        value = job.get(key)
        if not isinstance(value, str):
            continue
        same = os.path.normpath(value) if value.startswith("/") else value.rstrip("/")
        if same in seen:
            yield Fault((*loc, key), message(shown(value, 120)))
        seen.add(same)
