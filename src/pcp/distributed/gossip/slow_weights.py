"""The slow weights and the momentum of a worker that exchanges, in the process that runs its programs."""

import logging
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np

from pcp.distributed.gossip.exchanger import Exchanged, number_after
from pcp.distributed.gossip.offers import load_offer, store_offer
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.round_arithmetic.replica import Replica, Runs
from pcp.distributed.wire.blob_files import StoreError
from pcp.distributed.wire.blobs import BlobStore

Swap = Callable[[int, Blob | None], Awaitable[Exchanged]]
"""From a number to the one that an exchange has, and from that and an offer to what came of it."""

log = logging.getLogger("pcp.distributed.gossip")


class SlowWeights:
    """What a worker exchanges every H steps, and the outer step that it then takes by itself.

    Arguments:
        program: the run's `gossip.0`, compiled.
        replica: the worker's inner state, of one fragment.
        store: where offers are.
    """

    def __init__(self, program: Runs, replica: Replica, store: BlobStore) -> None:
        self._program, self._replica, self._store = program, replica, store
        self._slow: Any = None
        self._momentum: Any = None
        self._number = 0
        self._met_nobody = True

    def begin(self, fresh: bool) -> None:
        """Begin a lease from the replica's parameters.

        Arguments:
            fresh: whether nothing of an earlier lease counts.
        """
        self._slow = self._replica.weights(0)
        if fresh or self._momentum is None:
            self._momentum, self._met_nobody = np.zeros_like(np.asarray(self._slow)), True
            self._number = 0

    async def exchange(self, swap: Swap) -> None:
        """Offer what was trained, and take the outer step with what comes back; alone where nothing does.

        Who comes late takes the other's slow weights over, rather than drawing them to its own, which hardly anybody trained.

        Arguments:
            swap: see `Swap`.
        """
        theta = self._replica.weights(0)
        wanted = number_after(self._number)
        number = (await swap(wanted, None)).number
        offer = store_offer(self._store, number, np.asarray(theta), np.asarray(self._slow))
        exchanged = await swap(number, offer)
        self._number = exchanged.number
        theirs = None
        if exchanged.theirs is not None:
            try:
                theirs = load_offer(self._store, exchanged.theirs, np.asarray(self._slow).size)
            except (ArraysRefused, StoreError) as error:
                log.warning("the offer of %s is not used: %s", exchanged.partner, error)
        if theirs is None:
            self.step(theta, theta, self._slow)
        elif self._met_nobody and exchanged.number > wanted:
            self._slow = theirs[1]
        else:
            self.step(theta, *theirs)
        self._met_nobody &= theirs is None
        self._replica.place(0, self._slow)

    def step(self, theta: Any, their_theta: Any, their_slow: Any) -> None:
        """Take the outer step with another worker's weights and slow weights, or with one's own, alone."""
        self._slow, self._momentum = self._program.run(
            theta, self._slow, self._momentum, their_theta, their_slow
        )
