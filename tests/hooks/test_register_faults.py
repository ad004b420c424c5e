"""The register of several nodes fails for a moment: nothing that was called or promised is lost by it."""

from __future__ import annotations

from outlast.hooks.agreement import Agreement
from outlast.hooks.ballot import BallotError, LocalBallot
from outlast.wire.messages import At, Flush


class Shaky(LocalBallot):
    """Fails once for each key in ``fails``."""

    def __init__(self, rank: int, shared: dict[str, str], fails: set[str]) -> None:
        super().__init__(rank, 2, shared)
        self._fails = fails

    def read(self, key: str) -> str | None:
        """What was posted."""
        self._maybe_fail(key)
        return super().read(key)

    def post(self, key: str, value: str) -> None:
        """Write ``value``."""
        self._maybe_fail(key)
        super().post(key, value)

    def _maybe_fail(self, key: str) -> None:
        if key in self._fails:
            self._fails.remove(key)
            raise BallotError(f"timeout at {key}")


class Two:
    """Two nodes of one rank; the register fails the second one."""

    def __init__(self, *fails: str) -> None:
        self.now, self.shared = 0.0, dict[str, str]()
        ballots = [LocalBallot(0, 2, self.shared), Shaky(1, self.shared, set(fails))]
        self.ranks = [Agreement(ballot, lambda: self.now, several=True) for ballot in ballots]

    def looks(self, times: int) -> None:
        """What a link does ten times a second."""
        for _ in range(times):
            self.now += 0.2
            self.ranks[1].look()


def test_a_flush_is_heard_though_the_register_fails_after_its_slot() -> None:
    """Its slot was read, the next one was not."""
    two = Two("call/1")
    two.ranks[0].hear(Flush("f", "test"))
    two.looks(3)
    assert [word.id for word in two.ranks[1].outbox if isinstance(word, At)] == ["f"]


def test_a_promise_is_written_though_the_register_fails_at_first() -> None:
    """All ranks would wait for it as long as they are patient."""
    two = Two("at/f/1")
    two.ranks[0].hear(Flush("f", "test"))
    two.looks(3)
    assert two.shared["at/f/1"] == "1"
