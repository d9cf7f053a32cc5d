"""Workers that exchange in pairs while others offer anything: they meet once those are gone, and nothing piles up."""

import hashlib
import struct
from collections.abc import Hashable
from pathlib import Path
from typing import Any

from pcp.distributed.gossip.exchanger import LARGEST_NUMBER, PASSED_OVER_SECONDS, Exchanger, number_after
from pcp.distributed.gossip.offer_box import KEPT, OfferBox
from pcp.distributed.gossip.pairs import pairs
from pcp.distributed.messages import Blob, PeerAddress
from pcp.distributed.peers.book import MISSED_SECONDS, PeerBook
from pcp.distributed.runtime import finished
from pcp.distributed.simulator.arrays.store import temporary_folder
from pcp.distributed.simulator.fuzz.corpus import Choices, Plan
from pcp.distributed.simulator.fuzz.witness import Broken
from pcp.distributed.wire import BlobStore, ConnectionLost

HONEST, HOSTILE = ("ada", "bob", "carol", "dan"), ("eve", "mallory")
NUMBERS = (0, 1, 2, 3, 7, 2**31, 2**62 - 1, 2**62, 2**63, 2**64 - 1)
BLOBS_KEPT = KEPT + 2
"""Offers of others, and what the last exchange is still to remove."""


class Lines:
    """The connections of one worker to the others; a `PeerClients` without sockets."""

    def __init__(self, life: "GossipLife", own: str) -> None:
        self._life, self._own = life, own

    async def push(self, peer: tuple[str, str], blob: Blob, store: BlobStore) -> None:
        """Give an offer to another."""
        if self._life.random.random() < self._life.loss or peer[0] not in self._life.boxes:
            raise ConnectionLost("the line broke")
        self._life.give(peer[0], self._own, blob, store.get(blob))

    def drop(self, peer: tuple[str, str]) -> None:
        """Nothing stays."""


class GossipLife:
    """The life of some workers.

    Arguments:
        plan: the seed of all that is random; see `corpus.py`.
        wild: how many things happen before the hostile ones are gone.
    """

    def __init__(self, plan: Plan | int, wild: int = 60) -> None:
        self.choices, self.wild = Choices("gossip", plan), wild
        self.random = self.choices.random
        self.seed = self.random.randrange(10**6)
        self.happened: dict[Hashable, int] = {}
        self.now, self.events, self.loss = 0.0, 0, 0.1
        self.boxes: dict[str, OfferBox] = {}
        self.numbers = dict.fromkeys(HONEST, 0)

    def run(self) -> None:
        """Live.

        Raises:
            Broken: something that must hold did not.
        """
        with temporary_folder() as folder:
            self.stores = {name: BlobStore(Path(folder) / name) for name in HONEST}
            self.boxes = {name: OfferBox(store) for name, store in self.stores.items()}
            self.books = {name: PeerBook(name, lambda: self.now) for name in HONEST}
            self._list((*HONEST, *HOSTILE))
            self.exchangers = {name: self._exchanger(name) for name in HONEST}
            for _ in range(self.wild):
                self.choices.act()
                self._anything()
            self._calm()

    def _exchanger(self, name: str) -> Exchanger:
        lines: Any = Lines(self, name)
        return Exchanger(
            self.seed,
            self.books[name],
            self.boxes[name],
            self.stores[name],
            lines,
            lambda _met, _loss: None,
            lambda: self.now,
        )

    def _list(self, members: tuple[str, ...]) -> None:
        for book in self.books.values():
            book.replace(PeerAddress(name, f"192.0.2.1:{place + 1}") for place, name in enumerate(members))

    def give(self, to: str, of: str, blob: Blob, content: bytes, cut: int | None = None) -> None:
        """Let an offer arrive, or the beginning of it."""
        sink = self.boxes[to].begin(blob, of)
        sink.write(content[sink.offset : cut])
        if cut is None:
            sink.finish()
        sink.close()

    def _anything(self) -> None:
        random = self.random
        self.events += 1
        self.now += random.choice((0.0, 1.0, 61.0))
        if random.random() < 0.5:
            content = struct.pack("<Q", random.choice(NUMBERS)) + random.randbytes(32)
            blob = Blob(hashlib.sha256(content).digest(), len(content))
            cut = random.randrange(1, 40) if random.random() < 0.3 else None
            self.give(random.choice(HONEST), random.choice(HOSTILE), blob, content, cut)
        else:
            self._exchange(random.choice(HONEST))
        if random.random() < 0.1:
            self._list(tuple(random.sample((*HONEST, *HOSTILE), random.randrange(1, 7))))

    def _exchange(self, name: str) -> str:
        """Let a worker do its next exchange; returns with whom."""
        exchanger, store = self.exchangers[name], self.stores[name]
        wanted = number_after(self.numbers[name])
        number = finished(exchanger.meet(wanted, None, 0.0, lambda: True)).number
        if not wanted <= number < LARGEST_NUMBER:
            raise Broken(f"exchange {number} follows {self.numbers[name]}")
        own = store.put(struct.pack("<Q", number) + self.random.randbytes(32))
        met = finished(exchanger.meet(number, own, 0.0, lambda: True))
        self.numbers[name] = met.number
        kept = sum(1 for each in store.folder.iterdir() if each.is_file() and len(each.name) == 64)
        if kept > BLOBS_KEPT:
            raise Broken(f"{kept} offers lie with {name}")
        return met.partner

    def _calm(self) -> None:
        """Let everybody behave: whoever comes to an exchange second finds the offer of the first."""
        self.loss = 0.0
        self._list(HONEST)
        self.now += 2 * max(MISSED_SECONDS, PASSED_OVER_SECONDS)
        for each in HONEST:  # who is behind takes the number of those that wait for it
            self.numbers[each] = max(self.numbers.values())
        for box in self.boxes.values():
            while (offer := box.newest(lambda _: True)) is not None:
                box.remove(offer)
        for first, second in pairs(self.seed, number_after(self.numbers[HONEST[0]]), HONEST):
            self._exchange(first)
            if self._exchange(second) != first:
                raise Broken(f"{second} does not meet {first}")
