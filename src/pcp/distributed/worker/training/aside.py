"""Pushes that are made while the next lease is trained."""

import threading
from collections.abc import Awaitable, Callable
from typing import Protocol

from pcp.distributed.round_arithmetic.replica import Encoded, Replica

Work = Callable[[], None]


class Aside(Protocol):
    """Where work is done beside training."""

    def begin(self, work: Work) -> Callable[[], Awaitable[None]]:
        """Begin a piece of work; returns what waits until it is done."""


class Threads:
    """A thread for each piece of work."""

    def begin(self, work: Work) -> Callable[[], Awaitable[None]]:
        """See `Aside`."""
        thread = threading.Thread(target=work, name="push", daemon=True)
        thread.start()

        async def done() -> None:
            thread.join()

        return done


class PushAside:
    """One push under way.

    Arguments:
        fragment: of it.
        aside: where it is made.
        make: makes it, stores it and tells of it.
        failed: told of an error instead.
    """

    def __init__(
        self, fragment: int, aside: Aside, make: Callable[[], Encoded], failed: Callable[[Exception], None]
    ) -> None:
        self._fragment, self._make, self._failed = fragment, make, failed
        self._made: Encoded | None = None
        self._error: Exception | None = None
        self._done = aside.begin(self._work)

    async def end(self, replica: Replica) -> None:
        """Wait for it, and let the worker's inner state know of it.

        Raises:
            Exception: what kept it from being made.
        """
        await self._done()
        if self._error is not None:
            raise self._error
        assert self._made is not None, "it was made, or failed"
        replica.end_push(self._fragment, self._made)

    async def forget(self) -> None:
        """Wait for it, for nobody needs it any more."""
        await self._done()

    def _work(self) -> None:
        try:
            self._made = self._make()
        except Exception as error:
            self._error = error
            self._failed(error)
