"""Exchanges over real sockets: who is dead, slow, late or hostile costs a bounded wait, and the worker goes on alone."""

import asyncio
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from pcp.distributed.gossip import exchanger
from pcp.distributed.gossip.exchanger import Exchanged, Exchanger
from pcp.distributed.gossip.offer_box import KEPT, Offer, OfferBox
from pcp.distributed.gossip.offers import load_offer, number_of, offer_bytes, store_offer
from pcp.distributed.gossip.pairs import partner_of
from pcp.distributed.messages import Blob, PeerAddress
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import PeerClients
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.peers.listening import listen
from pcp.distributed.round_arithmetic.array_blobs import ArraysRefused
from pcp.distributed.runtime import finished
from pcp.distributed.wire import BlobStore, WireServer
from tests.distributed.wire.loopback import Run

SIZE, SEED = 1000, 5


class Peer:
    """A worker that exchanges, with a server of its own."""

    def __init__(self, name: str, run: Run, folder: Path) -> None:
        self.name = name
        self.store, self.book = BlobStore(folder / name), PeerBook(name)
        self.box, self.holdings = OfferBox(self.store), Holdings(self.book)
        self.holdings.offer_bytes = offer_bytes(SIZE)
        self.credentials = run.authority.issue(name)
        self.clients = PeerClients(self.credentials)
        self.told: list[tuple[Exchanged, float]] = []
        self.exchanger = Exchanger(
            SEED, self.book, self.box, self.store, self.clients, lambda *said: self.told.append(said)
        )
        self.address = ""
        self.server: WireServer | None = None

    def offer(self, number: int, value: float = 0.0) -> Blob:
        theta = np.full(SIZE, value, np.float32)
        return store_offer(self.store, number, theta, theta + 1)

    def meet(self, number: int, value: float = 0.0) -> Exchanged:
        number = finished(self.exchanger.meet(number, None, 0.0, lambda: False)).number
        return finished(self.exchanger.meet(number, self.offer(number, value), 2.5, lambda: False))


class Peers:
    """Workers that know each other, on loopback, served by a thread."""

    def __init__(self, folder: Path) -> None:
        self.run, self.folder = Run(folder), folder
        self.loop = asyncio.new_event_loop()
        self.thread = threading.Thread(target=self.loop.run_forever)
        self.thread.start()
        self.all: dict[str, Peer] = {}

    def call(self, coroutine: object) -> object:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(20)  # type: ignore[arg-type]  # of any kind

    def add(self, name: str) -> Peer:
        peer = self.all[name] = Peer(name, self.run, self.folder)
        peer.server, peer.address = self.call(  # type: ignore[misc]  # what `listen` returns
            listen("127.0.0.1:0", peer.credentials, peer.box, peer.holdings)
        )
        for each in self.all.values():
            each.book.replace(PeerAddress(one.name, one.address) for one in self.all.values())
        return peer

    def kill(self, peer: Peer) -> None:
        assert peer.server is not None
        self.call(peer.server.close())

    def close(self) -> None:
        for each in self.all.values():
            each.clients.close()
            self.kill(each)
        self.loop.call_soon_threadsafe(self.loop.stop)
        self.thread.join()
        self.loop.close()


@pytest.fixture
def peers(tmp_path: Path) -> Iterator[Peers]:
    made = Peers(tmp_path)
    try:
        yield made
    finally:
        made.close()


@pytest.fixture(autouse=True)
def _short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanger, "SHORTEST_WAIT_SECONDS", 0.5)


def together(*work: Callable[[], Exchanged]) -> list[Exchanged]:
    """What comes of work that is done at the same time."""
    found: dict[int, Exchanged] = {}

    def do(place: int, one: Callable[[], Exchanged]) -> None:
        found[place] = one()

    threads = [threading.Thread(target=do, args=each) for each in enumerate(work)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [found[place] for place in range(len(work))]


def test_two_workers_swap_what_they_have(peers: Peers) -> None:
    ada, bob = peers.add("ada"), peers.add("bob")
    for number in (1, 2):
        found = together(partial(ada.meet, number, 3.0), partial(bob.meet, number, 4.0))
        assert [(each.number, each.partner) for each in found] == [(number, "bob"), (number, "ada")]
        for own, exchanged, value in zip((ada, bob), found, (4.0, 3.0), strict=True):
            assert exchanged.theirs is not None
            theta, slow = load_offer(own.store, exchanged.theirs, SIZE)
            np.testing.assert_array_equal(theta, np.full(SIZE, value, np.float32))
            np.testing.assert_array_equal(slow, np.full(SIZE, value + 1, np.float32))
    assert together(partial(ada.meet, 3), partial(bob.meet, 3))[0].partner == "bob", "of equal content, too"
    assert len(list(ada.store.folder.iterdir())) <= 2, "what earlier exchanges left is removed"
    assert [(said.number, loss) for said, loss in ada.told] == [(1, 2.5), (2, 2.5), (3, 2.5)]


def test_a_dead_partner_costs_an_attempt_and_then_nothing(peers: Peers) -> None:
    ada, bob = peers.add("ada"), peers.add("bob")
    peers.kill(bob)
    assert ada.meet(1) == Exchanged(1)
    began = time.monotonic()
    assert [ada.meet(number) for number in range(2, 30)] == [Exchanged(number) for number in range(2, 30)]
    assert time.monotonic() - began < 28 * 0.5, "it is not waited for again and again"


def test_a_partner_that_says_nothing_is_waited_for_once_and_welcome_when_it_is_back(peers: Peers) -> None:
    ada, bob = peers.add("ada"), peers.add("bob")
    began = time.monotonic()
    assert ada.meet(1) == Exchanged(1)
    assert time.monotonic() - began >= 0.5
    assert ada.meet(2) == Exchanged(2)
    assert bob.exchanger.number_for(1) == 1, "what ada sent first; then it sent nothing"
    bob.clients.use(("ada", ada.address), 1, lambda client: client.push(bob.offer(3), bob.store))
    assert ada.meet(3).partner == "bob"
    assert together(lambda: ada.meet(4), lambda: bob.meet(4))[0].partner == "bob"


def test_who_fell_behind_takes_the_number_of_who_waits_for_it(peers: Peers) -> None:
    ada, bob = peers.add("ada"), peers.add("bob")
    fast, slow = together(lambda: ada.meet(40), lambda: _after(0.2, lambda: bob.meet(7)))
    assert (fast.number, fast.partner) == (40, "bob")
    assert (slow.number, slow.partner) == (40, "ada")


def _after(seconds: float, work: Callable[[], Exchanged]) -> Exchanged:
    threading.Event().wait(seconds)
    return work()


def test_a_worker_that_was_dead_and_begins_anew_is_heard_and_catches_up(peers: Peers) -> None:
    ada, bob = peers.add("ada"), peers.add("bob")
    assert ada.meet(40) == Exchanged(40), "bob is dead, and passed over from now on"
    lost = bob.box.newest(lambda _: True)
    assert lost is not None
    bob.box.remove(lost)  # with its process
    assert bob.meet(1) == Exchanged(1), "ada sends nothing; but now it has heard of bob"
    found = together(lambda: ada.meet(41), lambda: _after(0.2, lambda: bob.meet(2)))
    assert [(each.number, each.partner) for each in found] == [(41, "bob"), (41, "ada")]


def test_only_the_partner_of_an_exchange_is_heard(peers: Peers) -> None:
    ada = peers.add("ada")
    others = [peers.add(name) for name in ("bob", "carol", "dan")]
    names = list(peers.all)
    partner = partner_of("ada", SEED, 1, names)
    wrong = next(each for each in others if each.name != partner)
    wrong.clients.use(("ada", ada.address), 1, lambda client: client.push(wrong.offer(1), wrong.store))
    assert ada.meet(1) == Exchanged(1)
    huge = next(n for n in range(2**62, 2**62 + 99) if partner_of("ada", SEED, n, names) == wrong.name)
    wrong.clients.use(("ada", ada.address), 1, lambda client: client.push(wrong.offer(huge), wrong.store))
    assert ada.exchanger.number_for(2) == 2, "a number that nobody reaches is no number"


def test_a_worker_alone_exchanges_with_nobody(peers: Peers) -> None:
    ada = peers.add("ada")
    began = time.monotonic()
    assert ada.meet(1) == Exchanged(1)
    assert time.monotonic() - began < 0.5


def test_waiting_ends_when_it_is_given_up(peers: Peers, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exchanger, "SHORTEST_WAIT_SECONDS", 60.0)
    ada, _ = peers.add("ada"), peers.add("bob")
    given_up = threading.Event()
    threading.Timer(0.1, given_up.set).start()
    assert finished(ada.exchanger.exchange(1, ada.offer(1), given_up.is_set)) == Exchanged(1)


def test_a_box_keeps_the_last_of_each_and_few_of_all(store: BlobStore) -> None:
    box = OfferBox(store)
    blobs = []
    for number, worker in enumerate(["a", "a", "b", "c", "d", "e"]):
        theta = np.full(4, number, np.float32)
        made = store_offer(store, number, theta, theta)
        content = store.get(made)
        store.remove(made.digest)
        with_sink = box.begin(made, worker)
        with_sink.write(content)
        with_sink.finish()
        with_sink.close()
        blobs.append(made)
    assert [store.has(blob) for blob in blobs] == [False, False, True, True, True, True]
    assert KEPT == 4
    assert box.newest(lambda _: True) == Offer("e", 5, blobs[5])
    assert box.newest(lambda offer: offer.worker == "a") is None


def test_a_worker_that_begins_and_never_ends_fills_nobody_s_disk(store: BlobStore) -> None:
    box = OfferBox(store)
    for number in range(20):
        arriving = box.begin(Blob(bytes([number]) * 32, 1000), "eve")
        arriving.write(bytes(900))
        arriving.close()
    assert len(list(store.folder.iterdir())) == 1


def test_an_offer_is_what_it_says(store: BlobStore) -> None:
    random = np.random.default_rng(1)
    theta, slow = (random.standard_normal(9).astype(np.float32) for _ in range(2))
    blob = store_offer(store, 12, theta, slow)
    assert blob.size == offer_bytes(9)
    assert number_of(store, blob) == 12
    for found, given in zip(load_offer(store, blob, 9), (theta, slow), strict=True):
        np.testing.assert_array_equal(found, given)
    with pytest.raises(ArraysRefused, match=r"an offer of 80 bytes came; expected 88"):
        load_offer(store, blob, 10)
    bad = store_offer(store, 1, theta, np.full(9, np.inf))
    with pytest.raises(ArraysRefused, match="an offer holds infinities or NaN"):
        load_offer(store, bad, 9)
