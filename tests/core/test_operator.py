"""What the command line asks of the jobs, and what it is told where that cannot be."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from outlast.daemon.core.control import RequestError
from outlast.daemon.core.facts import Role
from outlast.daemon.core.operator import Operator

if TYPE_CHECKING:
    from tests.core.conftest import Ground


async def test_a_standby_refuses_a_checkpoint_at_once(ground: Ground) -> None:
    """Parked ranks are connected and save nothing: nobody waits for them."""
    async with ground.life() as life:
        life.job.state = replace(life.job.state, role=Role.STANDBY)
        async with ground.trainer(ground.script()):
            async with asyncio.timeout(5.0):
                while not len(life.job.ranks):  # noqa: ASYNC110 - a rank that joins has no event here
                    await asyncio.sleep(0.01)
                with pytest.raises(RequestError, match="this node is standby of job tune"):
                    await Operator(life.desks).checkpoint({"job": "tune"})


@pytest.mark.parametrize(("job", "told"), [(None, "which job?"), ("nope", "there is no job nope here")])
async def test_a_job_that_is_not_here_is_named(ground: Ground, job: str | None, told: str) -> None:
    """And so are those that are."""
    async with ground.life() as life:
        request = {} if job is None else {"job": job}
        with pytest.raises(RequestError, match=told) as refused:
            await Operator(life.desks).checkpoint(request)
        assert "This node has: other, tune" in str(refused.value)
