"""A bounded number of things at once; the first failure ends the others and is the one that is told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Iterator
from typing import TypeVar

T = TypeVar("T")


async def each(items: Iterable[T], at_once: int, work: Callable[[T], Awaitable[object]]) -> None:
    """Do ``work`` for every item, at most ``at_once`` side by side. Raises what the first one raised."""
    left = iter(items)
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(at_once):
                group.create_task(_worker(left, work))
    except BaseExceptionGroup as failed:
        raise _first(failed) from None


async def _worker(left: Iterator[T], work: Callable[[T], Awaitable[object]]) -> None:
    for item in left:
        await work(item)


def _first(failed: BaseExceptionGroup[BaseException]) -> BaseException:
    first = failed.exceptions[0]
    return _first(first) if isinstance(first, BaseExceptionGroup) else first
