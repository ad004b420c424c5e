"""The stand-in's own paths, under `/_standin/`, by which another process scripts it.

POST a JSON object to `notice` {"action", "in_s" or "at_wall"}, `withdraw`, `hint` {"kind"},
`misbehave` {"kind", "count" or "for_s", "path"} or `behave`; GET `log` answers requests and changes.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from aiohttp import web

if TYPE_CHECKING:
    from outlast.simulations.standins.server import StandIn

PREFIX = "/_standin/"
Body = dict[str, Any]


def add_routes(app: web.Application, standin: StandIn) -> None:
    """Add the admin paths for ``standin``."""

    async def post(request: web.Request) -> web.Response:
        try:
            _apply(standin, request.match_info["what"], _object(await request.read()))
        except (ValueError, TypeError) as exc:
            return web.json_response({"ok": False, "because": str(exc)}, status=400)
        return web.json_response({"ok": True, **_now(standin)})

    async def log(_request: web.Request) -> web.Response:
        requests = [asdict(seen) for seen in standin.requests]
        changes = [asdict(change) for change in standin.changes]
        return web.json_response({"requests": requests, "changes": changes, **_now(standin)})

    app.router.add_get(PREFIX + "log", log)
    app.router.add_post(PREFIX + "{what}", post)


def _now(standin: StandIn) -> dict[str, float]:
    return {"wall": standin.clock.wall(), "monotonic": standin.clock.monotonic()}


def _apply(standin: StandIn, what: str, body: Body) -> None:
    known: dict[str, Callable[[Body], None]] = {
        "notice": lambda b: _notice(standin, b),
        "withdraw": lambda _b: standin.withdraw(),
        "hint": lambda b: standin.hint(_text(b, "kind")),
        "misbehave": lambda b: _misbehave(standin, b),
        "behave": lambda _b: standin.behave(),
    }
    if what in known:
        known[what](body)
    else:
        standin.tell(what, body)


def _notice(standin: StandIn, body: Body) -> None:
    in_s = number(body, "in_s")
    standin.notice(
        _text(body, "action") or "terminate",
        120.0 if in_s is None else in_s,
        at_wall=number(body, "at_wall"),
    )


def _misbehave(standin: StandIn, body: Body) -> None:
    count = number(body, "count")
    standin.misbehave(
        _text(body, "kind") or "503",
        count=None if count is None else int(count),
        for_s=number(body, "for_s"),
        path=_text(body, "path") or "",
    )


def _object(content: bytes) -> Body:
    body = json.loads(content or b"{}")
    if not isinstance(body, dict):
        raise ValueError("the body is not a JSON object")
    return body


def _text(body: Body, key: str) -> str | None:
    value = body.get(key)
    if value is not None and not isinstance(value, str):
        raise ValueError(f"{key} is not text")
    return value


def number(body: Body, key: str) -> float | None:
    """The number at ``key``, or None. Raises ValueError."""
    value = body.get(key)
    if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
        raise ValueError(f"{key} is not a number")
    return value
