"""A worker's port: who may open one, who is turned away, and what the Shepherd tells of it."""

from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import ExtendedKeyUsageOID

from pcp.distributed.bounds import PEERS
from pcp.distributed.messages import Peers
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.peers.listening import listen, listening_address
from pcp.distributed.shepherd.peers import PAUSE_SECONDS, Neighbours
from pcp.distributed.wire import CertificateProblem, CertificateRefused, Credentials, connect
from pcp.distributed.wire.identity import certificates
from pcp.distributed.wire.sockets import BadAddress
from tests.distributed.wire.loopback import LIMITS, Run, hello, play


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("0.0.0.0:7434", ("0.0.0.0", 7434)),
        ("[::]:1", ("::", 1)),
        ("lab-7.example:0", ("lab-7.example", 0)),
        ("[fe80::1%eth0]:7", ("fe80::1%eth0", 7)),
    ],
)
def test_an_address_to_listen_on(text: str, expected: tuple[str, int]) -> None:
    assert listening_address(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "7434",
        ":7434",
        "host",
        "host:70000",
        "::1:7434",
        "host:port",
        "a..b:7434",
        f"{'x' * 64}:7434",
        "a b:7434",
        "a\x1b[2J:1",
    ],
)
def test_what_is_no_address_to_listen_on(text: str) -> None:
    with pytest.raises(
        BadAddress, match=r"is not an address to listen on; give HOST:PORT, for example 0\.0\.0\.0:7434"
    ):
        listening_address(text)


def test_a_worker_s_port_is_not_a_shepherd(tmp_path: Path) -> None:
    async def story() -> None:
        run = Run(tmp_path)
        holdings = Holdings(PeerBook("bob"))
        server, address = await listen("127.0.0.1:0", run.worker("bob"), run.worker_store, holdings)
        try:
            with pytest.raises(CertificateRefused, match="shepherd"):
                await connect(address, run.worker("ada"), hello(), limits=LIMITS)
        finally:
            await server.close()

    play(story())


def test_a_key_file_for_connecting_only_cannot_listen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = x509.ExtendedKeyUsage
    monkeypatch.setattr(
        certificates.x509, "ExtendedKeyUsage", lambda _: usage([ExtendedKeyUsageOID.CLIENT_AUTH])
    )
    run = Run(tmp_path)
    old = run.worker("bob")
    monkeypatch.undo()
    with pytest.raises(
        CertificateProblem, match=r"the certificate of bob is for connecting only.*pcp keys worker bob"
    ):
        play(_listen_once(run, old))


async def _listen_once(run: Run, credentials: Credentials) -> None:
    await listen("127.0.0.1:0", credentials, run.worker_store, Holdings(PeerBook("bob")))


class Told:
    """What connections were told."""

    def __init__(self) -> None:
        self._said: list[tuple[int, Peers]] = []
        self._known: dict[int, dict[str, str]] = {}
        self.entries = 0
        self.neighbours = Neighbours(lambda connection, peers: self._said.append((connection, peers)))

    def join(self, connection: int, worker: str, listens: str, now: float) -> None:
        self.neighbours.called(connection, worker, listens, f"192.0.2.{connection}:5000")
        self.neighbours.welcomed(connection, now)

    def new(self) -> dict[int, dict[str, str]]:
        """By connection: addresses by name as they stand now, of those that were told something since the last call."""
        said, self._said = self._said, []
        for number, peers in said:
            known = self._known.get(number, {}) if peers.changes else {}
            known |= {each.worker: each.address for each in peers.members}
            self._known[number] = {name: known[name] for name in known if name not in peers.left}
        self.entries += sum(len(peers.members) + len(peers.left) for _, peers in said)
        return {number: self._known[number] for number, _ in said}


def test_all_are_told_of_all_once_somebody_listens() -> None:
    told = Told()
    told.join(1, "ada", "", 0.0)
    told.neighbours.tell(0.0)
    assert told.new() == {}, "nobody listens"
    told.neighbours.called(2, "bob", "0.0.0.0:7434", "192.0.2.2:5000")
    told.neighbours.tell(1.0)
    assert told.new() == {}, "it is no member yet"
    told.neighbours.welcomed(2, 1.0)
    both = {"ada": "", "bob": "192.0.2.2:7434"}
    assert told.new() == {1: both, 2: both}
    now = 1.0 + PAUSE_SECONDS / 2
    told.join(3, "carol", "[::]:7", now)
    three = both | {"carol": "192.0.2.3:7"}
    assert told.new() == {3: three}, "the others were told a moment ago"
    now = 1.0 + PAUSE_SECONDS
    told.neighbours.tell(now)
    assert told.new() == {1: three, 2: three, 3: three}
    told.neighbours.tell(now + 5)
    assert told.new() == {}, "nothing is new"
    told.neighbours.left(2)
    told.neighbours.left(3)
    told.neighbours.tell(now + 6)
    assert told.new() == {1: {"ada": ""}}


def test_who_was_told_hears_only_of_changes() -> None:
    told, count = Told(), 2 * PEERS
    for number in range(1, count + 1):
        told.join(number, f"w{number}", f"192.0.2.9:{number}", 0.0)
    told.neighbours.tell(10.0)
    known = told.new()
    assert all(len(each) == count for each in known.values()), "in more messages than one"
    told.entries = 0
    told.neighbours.left(7)
    told.join(count + 1, "new", "192.0.2.9:1", 20.0)
    now = told.new()
    assert len(now) == count
    assert {len(each) for each in now.values()} == {count}
    assert "w7" not in now[1]
    assert now[1]["new"] == now[count + 1]["new"] == "192.0.2.9:1"
    assert told.entries == 2 * (count - 1) + count, "two lines for each; all only for who came"


def test_a_worker_that_came_back_is_one_member() -> None:
    told = Told()
    told.join(1, "ada", "192.0.2.9:7434", 0.0)
    told.new()
    told.join(2, "ada", "192.0.2.9:7434", 10.0)
    assert told.new() == {2: {"ada": "192.0.2.9:7434"}}


@pytest.mark.parametrize("listens", ["nowhere", "192.0.2.1:0", "a b:99999", "a..b:7434", f"{'x' * 64}:7434"])
def test_nobody_is_told_of_what_is_no_address(listens: str, caplog: pytest.LogCaptureFixture) -> None:
    told = Told()
    told.join(1, "ada", listens, 0.0)
    assert told.new() == {}
    assert "ada listens, but nobody is told" in caplog.text
