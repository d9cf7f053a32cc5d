"""What reaches a trainer while it trains: fragments to adopt, answers to pushes, and that it should stop waiting."""

import threading
from collections.abc import Callable

from pcp.distributed.gossip.exchanger import Exchanged
from pcp.distributed.messages import Outcome
from pcp.distributed.worker.effects import Adopt, Shorten

WAIT_SECONDS = 1.0
"""How often who waits asks by itself whether it still should."""


class Inbox:
    """Filled by one thread, emptied by another. How is waited is for `_wait` to say."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._adoptions: dict[tuple[int, int, int], Adopt] = {}
        self._outcomes: dict[int, Outcome] = {}
        self._met: Exchanged | None = None
        self._shorten: Shorten | None = None
        self._followed = 0

    def adopt(self, adoption: Adopt) -> None:
        """Put in a fragment that a lease adopts."""
        with self._changed:
            self._adoptions[adoption.lease_id, adoption.fragment, adoption.version] = adoption
        self.wake()

    def settle(self, lease_id: int, outcome: Outcome) -> None:
        """Put in the answer to a push."""
        with self._changed:
            self._outcomes[lease_id] = outcome

    def met(self, exchanged: Exchanged) -> None:
        """Put in what became of the exchange under way."""
        with self._changed:
            self._met = exchanged
        self.wake()

    async def wait_to_meet(self, given_up: Callable[[], bool]) -> Exchanged | None:
        """Take out what became of the exchange under way; None if waiting was given up."""
        with self._changed:
            while self._met is None:
                if given_up():
                    return None
                await self._wait()
            met, self._met = self._met, None
            return met

    def shorten(self, wanted: Shorten) -> None:
        """Put in that a lease should end sooner."""
        with self._changed:
            self._shorten = wanted

    def shortened(self, lease_id: int) -> Shorten | None:
        """Take out that a lease should end sooner."""
        with self._changed:
            wanted, self._shorten = self._shorten, None
        return wanted if wanted is not None and wanted.lease_id == lease_id else None

    def follow(self, lease_id: int) -> None:
        """Put in that another lease follows one."""
        with self._changed:
            self._followed = lease_id

    def is_followed(self, lease_id: int) -> bool:
        """Whether another lease follows one, so that training goes on when it ends."""
        with self._changed:
            return self._followed == lease_id

    def wake(self) -> None:
        """Have who waits ask whether it still should."""
        with self._changed:
            self._changed.notify_all()

    async def wait_for(
        self, lease_id: int, fragment: int, version: int, given_up: Callable[[], bool]
    ) -> Adopt | None:
        """Take a fragment out as soon as it is there; None if waiting was given up."""
        key = (lease_id, fragment, version)
        with self._changed:
            while key not in self._adoptions:
                if given_up():
                    return None
                await self._wait()
            return self._adoptions.pop(key)

    async def _wait(self) -> None:
        """Wait until `wake`, or not much longer, and let others in meanwhile."""
        self._changed.wait(WAIT_SECONDS)

    def outcomes(self) -> dict[int, Outcome]:
        """Take out all answers, by lease."""
        with self._changed:
            taken, self._outcomes = self._outcomes, {}
            return taken

    def forget_others(self, lease_id: int) -> None:
        """Take out the fragments of all leases but one."""
        with self._changed:
            self._adoptions = {key: each for key, each in self._adoptions.items() if key[0] == lease_id}
