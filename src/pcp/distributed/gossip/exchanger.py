"""The worker's side of its exchanges: offers go to the partner, and the partner's is waited for, but not for long."""

import logging
import time
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from typing import Any, Protocol

from pcp.distributed.gossip.offer_box import Offer, OfferBox
from pcp.distributed.gossip.pairs import partner_of
from pcp.distributed.messages import Blob
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.wire.blobs import BlobStore
from pcp.errors import PCPError

log = logging.getLogger("pcp.distributed.gossip")

SHORTEST_WAIT_SECONDS, LONGEST_WAIT_SECONDS = 2.0, 300.0
"""Bounds of the wait for a partner, which is as long as the steps between two exchanges took."""

PASSED_OVER_SECONDS = 60.0
"""How long a partner is not waited for that let this worker wait in vain, unless it is heard of before."""

LARGEST_NUMBER = 1 << 62
"""Of an exchange, and one more. Who is hostile may bring everybody there at once."""


def number_after(number: int) -> int:
    """The number of the exchange after another; they begin anew after the largest."""
    return number + 1 if number + 1 < LARGEST_NUMBER else 1


@dataclass(frozen=True, slots=True)
class Exchanged:
    """What became of an exchange.

    Arguments:
        number: of the exchange; larger than asked for where others are further.
        partner: whose offer it was; empty where this worker goes on alone.
        theirs: the offer, in the store.
    """

    number: int
    partner: str = ""
    theirs: Blob | None = None


Meet = Callable[[int, Blob | None, float, Callable[[], bool]], Coroutine[Any, Any, Exchanged]]
"""What `Exchanger.meet` is."""


class Pushes(Protocol):
    """Brings offers to other workers: `PeerClients`."""

    async def push(self, peer: tuple[str, str], blob: Blob, store: Any) -> None:
        """Bring a blob of the store to another worker, in one attempt.

        Raises:
            PCPError, OSError: it did not get there.
        """

    def drop(self, peer: tuple[str, str]) -> None:
        """Close the connection of a peer; the next use makes a new one."""


class Exchanger:
    """Exchanges offers with one other worker at a time, whether there is a Shepherd or not.

    The partner follows from seed, number and members. A worker that heard from others that are further takes their number,
    so that workers of unlike speed, and newcomers, meet the others.

    Arguments:
        seed: of the run.
        book: the members.
        box: where offers of others arrive.
        store: where offers are.
        clients: connections to the others.
        told: of each exchange, and the mean loss since the last one.
        now: a clock, in seconds.
    """

    def __init__(
        self,
        seed: int,
        book: PeerBook,
        box: OfferBox,
        store: BlobStore,
        clients: Pushes,
        told: Callable[[Exchanged, float], None],
        now: Callable[[], float] = time.monotonic,
    ) -> None:
        self._seed, self._book, self._box, self._store, self._clients = seed, book, box, store, clients
        self._told, self._now = told, now
        self._ended = now()
        self._passed_over: dict[str, tuple[float, int]] = {}  # until when, and offers heard before, by name
        self._spent: list[Blob] = []

    async def meet(
        self, number: int, own: Blob | None, loss: float, given_up: Callable[[], bool]
    ) -> Exchanged:
        """Say which number an exchange has, where there is no offer yet; else exchange it and tell of it."""
        if own is None:
            return Exchanged(self.number_for(number))
        exchanged = await self.exchange(number, own, given_up)
        self._told(exchanged, loss)
        return exchanged

    def number_for(self, wanted: int) -> int:
        """The number of the next exchange: the wanted one, or a higher one at which another waits for this worker."""
        offer = self._box.newest(self._is_meant_for(wanted))
        return offer.number if offer is not None else wanted

    async def exchange(self, number: int, own: Blob, given_up: Callable[[], bool]) -> Exchanged:
        """Exchange offers. It takes no longer than sending one, and the wait.

        Arguments:
            number: of the exchange.
            own: this worker's offer, in the store; it is removed with the next exchange, as is the other's.
            given_up: asked while waiting whether to stop.
        """
        for blob in self._spent:
            self._store.remove(blob.digest)
        self._spent = [own]
        patience = min(max(self._now() - self._ended, SHORTEST_WAIT_SECONDS), LONGEST_WAIT_SECONDS)
        offer = await self._exchanged(number, own, patience, given_up)
        self._ended = self._now()
        if offer is None:
            return Exchanged(number)
        self._spent.append(offer.blob)
        self._box.remove(offer)
        return Exchanged(offer.number, offer.worker, offer.blob)

    async def _exchanged(
        self, number: int, own: Blob, patience: float, given_up: Callable[[], bool]
    ) -> Offer | None:
        listening = self._book.listening()
        partner = partner_of(self._book.own, self._seed, number, listening)
        if partner is None:
            return None
        is_wanted = self._is_meant_for(number)
        offer = self._box.newest(is_wanted)
        passed_over = offer is None and self._is_passed_over(partner)
        if passed_over or not await self._sent(partner, listening[partner], own):
            patience = 0.0
        offer = offer or await self._box.wait(is_wanted, patience, given_up)
        if offer is None and patience:
            log.warning("%s let exchange %d wait %.1f s in vain; going on alone", partner, number, patience)
            self._pass_over(partner)
        return offer

    def _pass_over(self, partner: str) -> None:
        self._passed_over[partner] = self._now() + PASSED_OVER_SECONDS, self._box.heard[partner]

    def _is_passed_over(self, partner: str) -> bool:
        until, heard = self._passed_over.get(partner, (0.0, 0))
        return until > self._now() and self._box.heard[partner] == heard

    def _is_meant_for(self, number: int) -> Callable[[Offer], bool]:
        """Whether an offer is for this exchange or a later one, and comes from whom it must come from there."""
        listening = self._book.listening()

        def is_meant(offer: Offer) -> bool:
            if not number <= offer.number < LARGEST_NUMBER:
                return False
            return offer.worker == partner_of(self._book.own, self._seed, offer.number, listening)

        return is_meant

    async def _sent(self, partner: str, address: str, own: Blob) -> bool:
        peer = (partner, address)
        try:
            await self._clients.push(peer, own, self._store)
        except (PCPError, OSError) as error:
            log.warning("%s cannot be reached: %s", partner, error)
            self._clients.drop(peer)
            self._pass_over(partner)
            return False
        return True
