"""Work that may never come back, as a look at a mount whose server is gone: on a thread nobody waits for."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

T = TypeVar("T")


def apart(work: Callable[[], T]) -> asyncio.Future[T]:
    """Do blocking ``work`` on a thread of its own; what it gives or raises, once it ends.

    The loop's own threads are few, and the process waits for them when it ends: none may hang.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[T] = loop.create_future()
    # Those who asked may have gone by then.
    future.add_done_callback(lambda done: done.cancelled() or done.exception())
    threading.Thread(target=_do, args=(work, future, loop), name="outlast-apart", daemon=True).start()
    return future


def _do(work: Callable[[], T], future: asyncio.Future[T], loop: asyncio.AbstractEventLoop) -> None:
    def settle(method: Callable[..., None], what: object) -> None:
        if not future.done():
            method(what)

    try:
        outcome: tuple[Callable[..., None], object] = (future.set_result, work())
    except Exception as exc:  # noqa: BLE001 - raised again where it is awaited
        outcome = (future.set_exception, exc)
    with suppress(RuntimeError):  # the loop is closed: nobody asks any more
        loop.call_soon_threadsafe(settle, *outcome)
