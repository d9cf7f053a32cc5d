"""A blob comes from whoever holds it, and is whole and right whatever holders do."""

import asyncio
import random
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.messages import Blob, PeerAddress
from pcp.distributed.peers import clients, fetching
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.clients import PeerClients
from pcp.distributed.peers.fetching import HolderFetcher
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.peers.listening import listen
from pcp.distributed.wire import (
    BlobStore,
    BulkClient,
    FrameKind,
    RefusalCode,
    StripedFetcher,
    TransferRefused,
    WireServer,
    blob_of,
)
from pcp.distributed.wire.bulk.responder import Storage
from tests.distributed.wire.loopback import LIMITS, Proxy, Run, play

CONTENT = random.Random(4).randbytes(3_000_000)
BLOB = blob_of(CONTENT)


class Lying:
    """A store that gives other bytes than it has."""

    def __init__(self, store: BlobStore) -> None:
        self._store = store
        self.begin, self.has = store.begin, store.has

    def open(self, blob: Blob) -> "Lying":
        self._reader = self._store.open(blob)
        return self

    def read_into(self, offset: int, space: memoryview) -> None:
        self._reader.read_into(offset, space)
        if offset == 0:
            space[:] = bytes(len(space))

    def close(self) -> None:
        self._reader.close()


class Slow(Lying):
    """A store that gives a little, and then takes its time."""

    def __init__(self, store: BlobStore, ended: threading.Event) -> None:
        super().__init__(store)
        self._ended = ended

    def read_into(self, offset: int, space: memoryview) -> None:
        if offset:
            self._ended.wait(20.0)
        self._reader.read_into(offset, space)


class Fleet:
    """A Shepherd that has the blob, one that fetches, and holders."""

    def __init__(self, run: Run, folder: Path) -> None:
        self.run, self.folder = run, folder
        self.members: dict[str, str] = {"ada": ""}
        self.books: list[PeerBook] = []
        self.servers: list[WireServer] = []
        self.store = BlobStore(folder / "ada")
        self.book = self._book("ada")
        self.holdings = Holdings(self.book)
        run.permissions.announce([run.store.put(CONTENT)])

    async def holder(
        self,
        name: str,
        storage: Callable[[BlobStore], Storage] = lambda store: store,
        *,
        holds: bool = True,
        listed_as: str = "",
    ) -> tuple[WireServer, Holdings]:
        store, book = BlobStore(self.folder / name), self._book(name)
        holdings = Holdings(book)
        if holds:
            holdings.hold_out(store.put(CONTENT))
        server, address = await listen(
            "127.0.0.1:0", self.run.authority.issue(name), storage(store), holdings
        )
        self.servers.append(server)
        self.place(listed_as or name, address)
        return server, holdings

    def place(self, name: str, address: str) -> None:
        self.members[name] = address
        for book in self.books:
            book.replace(PeerAddress(*each) for each in self.members.items())

    def fetcher(self, shepherd: str) -> HolderFetcher:
        credentials = self.run.authority.issue("ada")
        striped = StripedFetcher([BulkClient(shepherd, credentials, limits=LIMITS)])
        return HolderFetcher(striped, self.book, self.holdings, PeerClients(credentials))

    def _book(self, name: str) -> PeerBook:
        self.books.append(PeerBook(name))
        return self.books[-1]


@pytest.fixture
def fleet(tmp_path: Path) -> Fleet:
    return Fleet(Run(tmp_path), tmp_path)


@asynccontextmanager
async def served(fleet: Fleet) -> AsyncIterator[tuple[WireServer, HolderFetcher]]:
    server = await fleet.run.serve()
    fetcher = fleet.fetcher(f"127.0.0.1:{server.port}")
    try:
        yield server, fetcher
    finally:
        await asyncio.to_thread(fetcher.close)
        for each in (server, *fleet.servers):
            await each.close()


def sent(server: WireServer) -> int:
    """Bytes of blobs that a server gave."""
    return server.statistics.traffic.sent.get(FrameKind.CHUNK, 0)


async def fetch(fleet: Fleet, fetcher: HolderFetcher) -> None:
    await asyncio.to_thread(fetcher.fetch, BLOB, fleet.store)
    assert fleet.store.get(BLOB) == CONTENT


def test_a_holder_gives_all_of_it_and_the_shepherd_nothing(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, _ = await fleet.holder("bob")
            await fetch(fleet, fetcher)
            assert sent(shepherd) == 0
            assert sent(holder) >= BLOB.size
            fleet.holdings.check_fetch("bob", BLOB)  # and now it holds the blob itself

    play(story())


def test_who_holds_nothing_is_passed_by_and_asked_again_the_next_time(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, holdings = await fleet.holder("bob", holds=False)
            await fetch(fleet, fetcher)
            assert sent(holder) == 0
            given = sent(shepherd)
            assert given >= BLOB.size
            other = BlobStore(fleet.folder / "bob").put(CONTENT[:1000])
            holdings.hold_out(other)
            await asyncio.to_thread(fetcher.fetch, other, fleet.store)
            assert sent(shepherd) == given
            assert sent(holder) >= 1000

    play(story())


def test_a_holder_that_lies_is_found_out_and_not_asked_again(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, _ = await fleet.holder("bob", Lying)
            await fetch(fleet, fetcher)
            assert sent(shepherd) >= BLOB.size
            lied = sent(holder)
            assert lied >= BLOB.size
            fleet.store.remove(BLOB.digest)
            await fetch(fleet, fetcher)
            assert sent(holder) == lied

    play(story())


def test_a_holder_that_breaks_in_the_middle_costs_only_the_rest(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, _ = await fleet.holder("bob")
            with Proxy(holder.port, [1_500_000]) as proxy:
                fleet.place("bob", proxy.address)
                await fetch(fleet, fetcher)
            assert 0 < sent(shepherd) < BLOB.size * 2 // 3

    play(story())


def test_a_holder_that_is_slow_is_given_up_and_what_it_brought_is_kept(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clients, "SLOW_SECONDS", 0.3)
    monkeypatch.setattr(clients, "SLOWEST_BYTES_PER_SECOND", 1 << 40)
    ended = threading.Event()

    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            await fleet.holder("bob", lambda store: Slow(store, ended))
            try:
                await fetch(fleet, fetcher)
                assert 0 < sent(shepherd) < BLOB.size
            finally:
                ended.set()

    play(story())


class Trickling(Lying):
    """A store that gives what a slow holder may, and no less: above the least rate, and far below what is usual."""

    def __init__(self, store: BlobStore, ended: threading.Event) -> None:
        super().__init__(store)
        self._ended = ended

    def read_into(self, offset: int, space: memoryview) -> None:
        self._ended.wait(len(space) / 300_000)
        self._reader.read_into(offset, space)


def test_holders_just_above_the_least_rate_cost_seconds_and_not_a_lease(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Each of them could take 17 s. What they brought is kept, the Shepherd gives the rest, and nobody asks them again."""
    monkeypatch.setattr(fetching, "PATIENCE_SECONDS", 0.4)
    ended = threading.Event()

    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holders = [
                (await fleet.holder(name, lambda store: Trickling(store, ended)))[0]
                for name in ("bob", "carol", "dora", "eve")
            ]
            try:
                began = time.monotonic()
                await fetch(fleet, fetcher)
                assert time.monotonic() - began < 10
                assert sent(shepherd) > 0
                given = [sent(holder) for holder in holders]
                other = BlobStore(fleet.folder / "bob").put(CONTENT[:1000])
                fleet.run.permissions.announce([fleet.run.store.put(CONTENT[:1000])])
                await asyncio.to_thread(fetcher.fetch, other, fleet.store)
                asked = [each for each, holder in zip(given, holders, strict=True) if sent(holder) != each]
                assert asked == [], "a minute has not passed, and the fourth does not hold it"
            finally:
                ended.set()

    caplog.set_level("WARNING", "pcp.distributed.peers")
    play(story())
    assert "negative" not in caplog.text
    assert sum("it was given up after" in line for line in caplog.messages) == 3


def test_a_holder_that_is_always_just_fast_enough_does_not_become_what_is_usual(fleet: Fleet) -> None:
    """In virtual time: every blob takes it as long as it may. Honest fetches between keep what is usual."""
    clock, asked = [0.0], list[float]()
    blob = Blob(bytes(32), 32 << 20)

    class Clients(PeerClients):
        def __init__(self) -> None:
            pass

        def use(self, *arguments: Any) -> None:
            asked.append(arguments[-1])
            clock[0] += asked[-1] * 0.9

    class Shepherd(StripedFetcher):
        def __init__(self) -> None:
            pass

        def fetch(self, *_: object) -> None:
            clock[0] += blob.size / (32 << 20)

    fleet.book.replace([PeerAddress("bob", "127.0.0.1:1")])
    fetcher = HolderFetcher(Shepherd(), fleet.book, fleet.holdings, Clients(), lambda: clock[0])
    for _ in range(200):
        fetcher.fetch(blob, fleet.store)
        clock[0] += 10.0
    assert max(asked) <= 3.0
    assert len(asked) < 60, "after each it is passed over for a minute"


def test_a_holder_that_is_gone_costs_nothing_but_the_attempt(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, _ = await fleet.holder("bob")
            await holder.close()
            await fetch(fleet, fetcher)
            assert sent(shepherd) >= BLOB.size

    play(story())


@pytest.mark.parametrize("address", ["a..b:7434", f"{'x' * 64}:7434", "[%%]:7434", "a b:1", "nowhere", ":1"])
def test_a_holder_at_what_is_no_address_costs_nothing(fleet: Fleet, address: str) -> None:
    """A Shepherd that was taken over may say so; looking some of them up raises what is no error of a system."""

    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            fleet.place("bob", address)
            await fetch(fleet, fetcher)
            assert sent(shepherd) >= BLOB.size

    play(story())


def many_addresses(*_: Any, **__: Any) -> list[Any]:
    return [(socket.AF_INET, socket.SOCK_STREAM, 0, "", ("192.0.2.1", 7434))] * 50


@pytest.mark.parametrize("looked_up", [True, False])
def test_a_holder_whose_name_is_slow_or_has_many_addresses_is_given_up_in_time(
    fleet: Fleet, monkeypatch: pytest.MonkeyPatch, looked_up: bool
) -> None:
    """Who listens says under which name; what that is comes from a server of his own."""
    ended, real = threading.Event(), socket.getaddrinfo
    slow: Any = many_addresses if looked_up else lambda *_, **__: ended.wait(20.0) and []
    monkeypatch.setattr(
        socket,
        "getaddrinfo",
        lambda host, *rest, **more: (slow if host == "bob.test" else real)(host, *rest, **more),
    )
    connect = socket.socket.connect

    def connected(each: socket.socket, address: Any) -> None:
        if address[0] != "192.0.2.1":
            return connect(each, address)
        ended.wait(each.gettimeout())
        raise TimeoutError

    monkeypatch.setattr(socket.socket, "connect", connected)
    monkeypatch.setattr(fetching, "PATIENCE_SECONDS", 0.4)

    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            fleet.place("bob", "bob.test:7434")
            began = time.monotonic()
            await fetch(fleet, fetcher)
            assert time.monotonic() - began < 10
            assert sent(shepherd) >= BLOB.size
            ended.set()

    play(story())


def test_another_worker_at_the_address_is_not_taken_for_the_one_that_was_meant(fleet: Fleet) -> None:
    async def story() -> None:
        async with served(fleet) as (shepherd, fetcher):
            holder, _ = await fleet.holder("bob", listed_as="carol")
            await fetch(fleet, fetcher)
            assert sent(holder) == 0
            assert sent(shepherd) >= BLOB.size

    play(story())


@pytest.mark.parametrize(
    ("stranger", "pushes", "words"),
    [
        (True, False, "eve is no member of the run as far as bob knows"),
        (False, False, "bob does not hold blob"),
        (False, True, "bob takes no blob of 8 bytes, and eve offers"),
    ],
)
def test_a_holder_serves_members_and_only_what_all_may_have(
    fleet: Fleet, stranger: bool, pushes: bool, words: str
) -> None:
    async def story() -> None:
        async with served(fleet):
            holder, _ = await fleet.holder("bob", holds=stranger)
            state = BlobStore(fleet.folder / "bob").put(b"an inner state")  # in the store, and not held out
            if not stranger:
                fleet.place("eve", "")
            store = BlobStore(fleet.folder / "eve")
            address = f"127.0.0.1:{holder.port}"
            eve = BulkClient(address, fleet.run.authority.issue("eve"), worker="bob", limits=LIMITS)
            blob = store.put(b"anything") if pushes else BLOB if stranger else state
            with eve, pytest.raises(TransferRefused, match=words) as refused:
                await asyncio.to_thread(eve.push if pushes else eve.fetch, blob, store)
            assert refused.value.refusal.kind is RefusalCode.NOT_ANNOUNCED

    play(story())
