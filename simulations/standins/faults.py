"""How a stand-in misbehaves: every way of not answering properly that endpoints have shown."""

from __future__ import annotations

from aiohttp import web

from outlast.simulations.standins.script import Fault, Script

HTML = (
    "<!DOCTYPE html><html><head><title>Error</title></head><body><h1>Something went wrong</h1></body></html>"
)
HUGE_BYTES = 8 * 1024 * 1024
# A hang is looked at this often for whether its time is over.
LOOK_S = 0.05


async def perform(fault: Fault, request: web.Request, script: Script) -> web.StreamResponse:
    """Answer ``request`` as ``fault`` says."""
    if fault.kind == "hang":
        while script.holds(fault):
            await script.change(LOOK_S)
        return _drop(request)
    if fault.kind == "drop":
        return _drop(request)
    if fault.kind == "half":
        return await _stream(request, b'{"action": "term', promised=200)
    if fault.kind == "huge":
        return await _stream(request, b"A" * HUGE_BYTES, promised=HUGE_BYTES)
    return _plain(fault.kind)


def _plain(kind: str) -> web.Response:
    if kind == "html":
        return web.Response(text=HTML, content_type="text/html")
    if kind == "empty":
        return web.Response(body=b"")
    if kind == "garbage":
        return web.Response(body=b"\xff\xfe{]\x00" * 9, content_type="application/octet-stream")
    if kind == "redirect":
        return web.Response(status=302, headers={"Location": "/trap"})
    return web.Response(status=int(kind), text=HTML, content_type="text/html")


def _drop(request: web.Request) -> web.Response:
    if request.transport is not None:
        request.transport.abort()
    return web.Response(status=500)


async def _stream(request: web.Request, body: bytes, promised: int) -> web.StreamResponse:
    answer = web.StreamResponse(headers={"Content-Length": str(promised)})
    try:
        await answer.prepare(request)
        await answer.write(body)
    except ConnectionError:
        return answer
    if len(body) < promised and request.transport is not None:
        request.transport.close()
    return answer
