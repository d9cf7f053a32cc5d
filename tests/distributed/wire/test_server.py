"""Control connections on loopback: every message, every way to end, and nothing left behind."""

import asyncio
import logging
import random
import socket
import struct
import sys
from pathlib import Path

import pytest

from pcp.distributed.messages import (
    PROTOCOL_VERSION,
    Adoption,
    Assign,
    Blob,
    DataRange,
    Failure,
    Goodbye,
    Heartbeat,
    HeartbeatReply,
    Hello,
    Lease,
    Message,
    Outcome,
    Ready,
    Revoke,
    Update,
    UpdateReply,
)
from pcp.distributed.wire import (
    BadAddress,
    CannotListen,
    CertificateRefused,
    ConnectionLost,
    ControlConnection,
    Credentials,
    FrameKind,
    PeerNotAcceptable,
    PortInUse,
    RefusalCode,
    RefusedByPeer,
    TooMuchInFlight,
    Unreachable,
    WireServer,
    connect,
)
from pcp.distributed.wire.codec import encode_control
from pcp.distributed.wire.sockets import parse_address, tune

from .loopback import WELCOME, Run, eventually, hello, play, welcome_and_listen

BLOB = Blob(random.Random(5).randbytes(32), 77)
LEASE = Lease(1, 2, 3, DataRange(10, 20), 5, 1, (0, 2), False, (Adoption(1, 4, 2, BLOB, None),), 60.0)
FROM_WORKER: list[Message] = [
    Ready(2),
    Heartbeat(1, 2, 1, 7, 0.25),
    Update(1, 2, 3, BLOB, 20, 15_360, (3.5, 3.25), 5.0),
    Failure(2, 1, "out of memory"),
]
FROM_SHEPHERD: list[Message] = [
    HeartbeatReply(1),
    Assign(LEASE),
    Revoke(1, "too late"),
    UpdateReply(1, Outcome.REFUSED, "stale"),
]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path)


def test_every_message_passes_both_ways(run: Run) -> None:
    heard: list[Message] = []

    async def on_worker(connection: ControlConnection, said: Hello) -> None:
        assert said == connection.hello == hello()
        assert connection.peer.name == "ada"
        await connection.send(WELCOME)
        for message in FROM_SHEPHERD:
            connection.post(message)
        async for message in connection:
            heard.append(message)

    async def story() -> None:
        server = await run.serve(on_worker)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()) as connection:
            assert connection.welcome == WELCOME
            assert connection.peer.name == "shepherd"
            for message in FROM_WORKER:
                await connection.send(message)
            assert [await connection.receive() for _ in FROM_SHEPHERD] == FROM_SHEPHERD
            await connection.close(Goodbye(True, "done"))
            with pytest.raises(ConnectionLost, match="is closed"):
                connection.post(Ready(1))
        await eventually(lambda: server.open_connections == 0)
        assert heard == [*FROM_WORKER, Goodbye(True, "done")]
        assert server.statistics.accepted == {"control": 1}
        assert server.statistics.refused == {}
        assert server.statistics.traffic.received == connection.traffic.sent
        assert server.statistics.traffic.sent == connection.traffic.received
        assert connection.traffic.sent[FrameKind.CONTROL] > 500
        await server.close()

    play(story())


def test_a_shepherd_says_goodbye(run: Run) -> None:
    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(WELCOME)
        await connection.close(Goodbye(True, "the run is complete"))

    async def story() -> None:
        server = await run.serve(on_worker)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()) as connection:
            assert [message async for message in connection] == [Goodbye(True, "the run is complete")]
            assert await connection.receive() is None
        await server.close()

    play(story())


def test_a_connection_that_just_ends_is_lost(run: Run) -> None:
    seen: list[Exception] = []

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(WELCOME)
        try:
            await connection.receive()
        except ConnectionLost as error:
            seen.append(error)
            raise

    async def story() -> None:
        server = await run.serve(on_worker)
        for reset in (False, True):
            connection = await connect(f"127.0.0.1:{server.port}", run.worker(), hello())
            if reset:
                connection._socket.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                connection._socket.close()
            await connection.close()
        await eventually(lambda: len(seen) == 2)
        assert "closed the connection without a Goodbye" in str(seen[0])
        assert "broke: Connection reset by peer" in str(seen[1]) or "without a Goodbye" in str(seen[1])
        await server.close()

    play(story())


def test_a_defect_in_a_handler_ends_its_connection_only(run: Run, caplog: pytest.LogCaptureFixture) -> None:
    async def on_worker(connection: ControlConnection, said: Hello) -> None:
        await connection.send(WELCOME)
        if said.worker == "ada":
            raise ZeroDivisionError("a defect")
        await connection.receive()

    async def story() -> None:
        server = await run.serve(on_worker)
        address = f"127.0.0.1:{server.port}"
        async with (
            await connect(address, run.worker("grace"), hello("grace")) as good,
            await connect(address, run.worker(), hello()) as bad,
        ):
            with pytest.raises(ConnectionLost, match="without a Goodbye"):
                await bad.receive()
            await good.send(Ready(1))
        await server.close()

    play(story())
    assert "serving worker ada" in caplog.text
    assert "a defect" in caplog.text


def test_a_port_in_use(run: Run) -> None:
    async def story() -> None:
        server = await run.serve()
        for host, port, kind, text in [
            (
                "127.0.0.1",
                server.port,
                PortInUse,
                f"port {server.port} on 127.0.0.1 is in use by another program",
            ),
            (
                "192.0.2.1",
                0,
                CannotListen,
                r"cannot listen on 192\.0\.2\.1:0: .*give an address of this machine",
            ),
            ("no.such.host.invalid", 0, CannotListen, r"cannot listen on no\.such\.host\.invalid"),
            ("a..b", 0, CannotListen, r"cannot listen on a\.\.b"),
        ]:
            with pytest.raises(kind, match=text):
                await WireServer.start(
                    host, port, run.shepherd, welcome_and_listen, run.store, run.permissions
                )
        await server.close()

    play(story())


def test_nobody_at_the_address(run: Run) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]

    async def story() -> None:
        with pytest.raises(
            Unreachable,
            match=f"cannot reach a Shepherd at 127.0.0.1:{port}: Connection refused; check that it runs",
        ):
            await connect(f"127.0.0.1:{port}", run.worker(), hello())
        with pytest.raises(Unreachable, match=r"cannot find no\.such\.host\.invalid"):
            await connect("no.such.host.invalid:1", run.worker(), hello())

    play(story())


@pytest.mark.parametrize(
    "text",
    [
        "",
        "host",
        "host:",
        ":70",
        "host:x",
        "host:0",
        "host:65536",
        "::1:70",
        "h:٣",
        "a..b:70",
        f"{chr(120) * 64}:70",
        "a\nb:70",
    ],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(BadAddress, match="is not an address; give HOST:PORT"):
        parse_address(text)


def test_addresses() -> None:
    assert parse_address("10.0.0.1:7070") == ("10.0.0.1", 7070)
    assert parse_address("[::1]:7070") == ("::1", 7070)


def test_a_line_that_was_down_is_tried_each_second() -> None:
    with socket.socket() as connection:
        tune(connection)
        if sys.platform != "linux" or not (pause := _rto_max(connection)):
            pytest.skip("this system has no such option")
        assert pause == 1000


def _rto_max(connection: socket.socket) -> int:
    """TCP_RTO_MAX_MS; 0 where Linux is too old to know it."""
    try:
        return connection.getsockopt(socket.IPPROTO_TCP, 44)
    except OSError:
        return 0


def test_workers_that_are_not_let_in(run: Run, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG)

    async def story() -> None:
        server = await run.serve()
        address = f"127.0.0.1:{server.port}"
        other = Run(tmp_path / "other")
        stranger = other.worker()
        half = Credentials(stranger.certificate, stranger.key, run.shepherd.authority)
        with pytest.raises(CertificateRefused, match=f"{address} does not accept this side's cert.*pcp keys"):
            await connect(address, half, hello())
        with pytest.raises(
            CertificateRefused, match=f"certificate of {address} is not acceptable: .*another"
        ):
            await connect(address, stranger, hello())
        revoked = run.worker("mallory")
        run.authority.revoke("mallory")
        with pytest.raises(
            CertificateRefused, match=r"refused this certificate: .* of mallory .* was revoked"
        ):
            await connect(address, revoked, hello("mallory"))
        with pytest.raises(RefusedByPeer, match="itself 'grace', but its certificate was issued to 'ada'"):
            await connect(address, run.worker(), hello("grace"))
        with pytest.raises(
            RefusedByPeer, match=f"speaks protocol version {PROTOCOL_VERSION} and the worker version 9"
        ) as caught:
            await connect(address, run.worker(), hello(version=9))
        assert caught.value.refusal.kind is RefusalCode.VERSION
        await eventually(lambda: server.open_connections == 0)
        assert server.statistics.refused == {"CertificateRefused": 3, "IDENTITY": 1, "VERSION": 1}
        assert server.statistics.accepted == {}
        async with await connect(address, run.worker(), hello()):
            pass
        await server.close()

    play(story())
    assert "its key file was made by another authority" in caplog.text
    assert "was revoked; ask for a new key file" in caplog.text


def test_a_missing_revocation_list_lets_nobody_in(run: Run) -> None:
    async def story() -> None:
        server = await run.serve()
        run.authority.revocations.path.unlink()
        with pytest.raises((ConnectionLost, RefusedByPeer)):
            await connect(f"127.0.0.1:{server.port}", run.worker(), hello())
        assert server.statistics.refused == {"RevocationListProblem": 1}
        await server.close()

    play(story())


def test_a_handler_that_refuses(run: Run) -> None:
    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.refuse(RefusalCode.CAPACITY, "eight workers are enough")

    async def story() -> None:
        server = await run.serve(on_worker)
        with pytest.raises(
            RefusedByPeer, match=r"refused the connection \(CAPACITY\): eight workers are enough"
        ):
            await connect(f"127.0.0.1:{server.port}", run.worker(), hello())
        await server.close()

    play(story())


def test_a_worker_that_breaks_the_protocol_is_told(run: Run) -> None:
    caught: list[PeerNotAcceptable] = []

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(WELCOME)
        try:
            await connection.receive()
        except PeerNotAcceptable as error:
            caught.append(error)
            raise

    async def story() -> None:
        server = await run.serve(on_worker)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()) as connection:
            assert connection._machine is not None
            connection._machine._to_send += encode_control(HeartbeatReply(1))
            connection._wake_writer()
            with pytest.raises(RefusedByPeer, match="HeartbeatReply is not acceptable: it is not"):
                await connection.receive()
        assert "broke the protocol: HeartbeatReply is not acceptable" in str(caught[0])
        await eventually(lambda: server.statistics.refused == {"PROTOCOL": 1})
        await server.close()

    play(story())


def test_a_worker_that_does_not_read_is_cut_off(run: Run) -> None:
    outcome: list[Exception] = []

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(WELCOME)
        try:
            for number in range(100_000):
                connection.post(Revoke(number, "x" * 10_000))
                if number % 50 == 0:
                    await asyncio.sleep(0)
        except TooMuchInFlight as error:
            outcome.append(error)
        with pytest.raises(TooMuchInFlight):
            connection.post(Revoke(0, ""))
        with pytest.raises(TooMuchInFlight):
            await connection.receive()

    async def story() -> None:
        server = await run.serve(on_worker)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()):
            await eventually(lambda: bool(outcome))
        assert "more exceed the limit of 4194304" in str(outcome[0])
        await eventually(lambda: server.open_connections == 0)
        await server.close()

    play(story())


@pytest.mark.parametrize("peer_reads", [True, False])
def test_another_task_may_close_a_connection_that_is_received_from(run: Run, peer_reads: bool) -> None:
    connections: list[ControlConnection] = []
    heard: list[Message | None] = []

    async def on_worker(connection: ControlConnection, _: Hello) -> None:
        await connection.send(WELCOME)
        connections.append(connection)
        heard.append(await connection.receive())

    async def story() -> None:
        server = await run.serve(on_worker)
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()) as worker:
            await eventually(lambda: bool(connections))
            closing = [asyncio.create_task(connections[0].close(Goodbye(True, "done"))) for _ in range(2)]
            if peer_reads:
                assert await worker.receive() == Goodbye(True, "done")
                await worker.close()
            await asyncio.gather(*closing)
            await eventually(lambda: heard == [None])
        await eventually(lambda: server.open_connections == 0)
        await server.close()

    play(story())


def test_closing_the_server_ends_its_connections(run: Run) -> None:
    async def story() -> None:
        server = await run.serve()
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()) as connection:
            await server.close()
            assert server.open_connections == 0
            with pytest.raises(ConnectionLost):
                await connection.receive()

    play(story())


def test_a_task_that_is_cancelled_again_while_it_closes_is_counted_out(
    run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def cancelled(_: ControlConnection) -> None:
        raise asyncio.CancelledError

    async def story() -> None:
        server = await run.serve()
        async with await connect(f"127.0.0.1:{server.port}", run.worker(), hello()):
            with monkeypatch.context() as patch:
                patch.setattr(ControlConnection, "_say_the_last", cancelled)
                await server.close()
            assert server.open_connections == 0

    play(story())
