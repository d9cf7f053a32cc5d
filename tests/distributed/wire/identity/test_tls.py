"""TLS as a state machine: who gets through, who does not, and what each side is told."""

import datetime
import ssl
from pathlib import Path

import pytest

from pcp.distributed.wire.identity import certificates
from pcp.distributed.wire.identity.certificates import Authority
from pcp.distributed.wire.identity.credentials import Credentials
from pcp.distributed.wire.identity.tls import (
    BULK_PROTOCOL,
    CONTROL_PROTOCOL,
    CertificateRefused,
    Peer,
    TlsFailure,
    TlsMachine,
    check_not_revoked,
    check_protocol,
    client_context,
    explain,
    peer_of,
    server_context,
)


class Run:
    """An authority, a Shepherd's and a worker's credentials."""

    def __init__(self, folder: Path) -> None:
        self.authority = Authority.create(folder)
        self.shepherd = self.authority.issue("shepherd", "shepherd")
        self.worker = self.authority.issue("ada")


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run")


def converse(
    client: TlsMachine, server: TlsMachine
) -> tuple[bytes, bytes, Exception | None, Exception | None]:
    """Carries bytes both ways until all is quiet: plain bytes each side received, and how each failed."""
    plain = [b"", b""]
    failure: list[Exception | None] = [None, None]
    machines = (client, server)
    client.start()
    for _ in range(20):
        for side in (0, 1):
            data = machines[side].bytes_to_send()
            if data and failure[1 - side] is None:
                try:
                    plain[1 - side] += machines[1 - side].receive(data)
                except ssl.SSLError as error:
                    failure[1 - side] = error
    return plain[0], plain[1], failure[0], failure[1]


def machines(shepherd: Credentials, worker: Credentials) -> tuple[TlsMachine, TlsMachine]:
    client = TlsMachine(client_context(worker, CONTROL_PROTOCOL), server_side=False)
    return client, TlsMachine(server_context(shepherd), server_side=True)


def test_two_participants_of_one_run(run: Run) -> None:
    client, server = machines(run.shepherd, run.worker)
    assert converse(client, server) == (b"", b"", None, None)
    assert client.established
    assert server.established
    assert server.peer == Peer("ada", run.worker.serial)
    assert client.peer == Peer("shepherd", run.shepherd.serial)
    assert client.protocol == server.protocol == CONTROL_PROTOCOL
    client.send(b"x" * 1_000_000)
    server.send(b"hello")
    assert converse(client, server) == (b"hello", b"x" * 1_000_000, None, None)
    client.close()
    converse(client, server)
    assert server.closed_by_peer
    assert not client.closed_by_peer


def test_it_is_tls_1_3_or_nothing(run: Run) -> None:
    context = client_context(run.worker, CONTROL_PROTOCOL)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.maximum_version = ssl.TLSVersion.TLSv1_2
    client = TlsMachine(context, server_side=False)
    *_, failure = converse(client, TlsMachine(server_context(run.shepherd), server_side=True))
    assert isinstance(failure, ssl.SSLError)
    assert "UNSUPPORTED_PROTOCOL" in str(failure)


def test_a_worker_of_another_run_is_told_why(run: Run, tmp_path: Path) -> None:
    stranger = Run(tmp_path / "other")
    ours = Credentials(stranger.worker.certificate, stranger.worker.key, run.worker.authority)
    client, server = machines(run.shepherd, ours)
    _, _, told, failure = converse(client, server)
    assert isinstance(failure, ssl.SSLCertVerificationError)
    assert isinstance(told, ssl.SSLError)
    error = explain(told, "shepherd:7070")
    assert isinstance(error, CertificateRefused)
    assert str(error).startswith("shepherd:7070 does not accept this side's certificate (")
    assert str(error).endswith("use a key file made by the authority of that run (`pcp keys`)")


def test_a_worker_without_a_certificate_is_told_why(run: Run) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(cadata=run.worker.authority.decode())
    client = TlsMachine(context, server_side=False)
    _, _, told, failure = converse(client, TlsMachine(server_context(run.shepherd), server_side=True))
    assert isinstance(failure, ssl.SSLError)
    assert isinstance(told, ssl.SSLError)
    assert isinstance(explain(told, "s"), CertificateRefused)
    assert "certificate required" in str(explain(told, "s"))


def test_a_shepherd_of_another_run_is_not_believed(run: Run, tmp_path: Path) -> None:
    stranger = Run(tmp_path / "other")
    _, _, failure, _ = converse(*machines(stranger.shepherd, run.worker))
    assert isinstance(failure, ssl.SSLCertVerificationError)
    error = explain(failure, "shepherd:7070")
    assert isinstance(error, CertificateRefused)
    assert "the certificate of shepherd:7070 is not acceptable" in str(error)
    assert "the key file belongs to another run, or this is not its Shepherd" in str(error)


def test_a_worker_cannot_play_the_shepherd(run: Run) -> None:
    _, _, failure, _ = converse(*machines(run.authority.issue("mallory"), run.worker))
    assert isinstance(failure, ssl.SSLCertVerificationError)


def test_a_shepherds_certificate_cannot_join_as_a_worker(run: Run) -> None:
    *_, failure = converse(*machines(run.shepherd, run.authority.issue("x", "shepherd")))
    assert isinstance(failure, ssl.SSLCertVerificationError)


def test_an_expired_key_file_is_not_taken_for_one_of_another_run(run: Run) -> None:
    _, _, told, failure = converse(*machines(run.shepherd, run.authority.issue("old", days=0)))
    assert isinstance(failure, ssl.SSLCertVerificationError)
    assert str(explain(failure, "10.0.0.1:9", server_side=True)) == (
        "the certificate of 10.0.0.1:9 is not acceptable: certificate has expired; "
        "make it a new key file (`pcp keys worker`), unless the clock of this machine is wrong"
    )
    assert isinstance(told, ssl.SSLError)
    assert str(explain(told, "shepherd:7070")) == (
        "shepherd:7070 does not accept this side's certificate (sslv3 alert certificate expired); "
        "ask for a new key file (`pcp keys worker`), unless the clock of the other machine is wrong"
    )


def test_an_expired_shepherd_is_told_apart_from_another(run: Run) -> None:
    _, _, failure, told = converse(*machines(run.authority.issue("s", "shepherd", days=0), run.worker))
    assert isinstance(failure, ssl.SSLCertVerificationError)
    assert str(explain(failure, "s:1")).endswith(
        "has expired; start the Shepherd again, which renews it, unless the clock of this machine is wrong"
    )
    assert isinstance(told, ssl.SSLError)
    assert "start the Shepherd again, which renews it" in str(explain(told, "w:1", server_side=True))


def test_an_authority_of_a_clock_that_is_ahead(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(certificates, "_CLOCK_SKEW", -datetime.timedelta(hours=1))
    early = Run(tmp_path)
    _, _, failure, _ = converse(*machines(early.shepherd, early.worker))
    assert isinstance(failure, ssl.SSLCertVerificationError)
    assert str(explain(failure, "s:1")).endswith("is not yet valid; set the clocks of both machines right")


def test_revocation_and_protocol_are_checked(run: Run) -> None:
    peer = Peer("ada", run.worker.serial)
    check_not_revoked(peer, None)
    check_not_revoked(peer, run.authority.revocations)
    run.authority.revoke("ada")
    with pytest.raises(CertificateRefused, match=f"of ada \\(serial number {peer.serial:x}\\) was revoked"):
        check_not_revoked(peer, run.authority.revocations)
    check_protocol(BULK_PROTOCOL, BULK_PROTOCOL)
    with pytest.raises(TlsFailure, match="expected a connection for pcp-bulk/1, the other side meant None"):
        check_protocol(None, BULK_PROTOCOL)


def test_a_certificate_without_a_name() -> None:
    with pytest.raises(CertificateRefused, match="names 0 participants; expected one"):
        peer_of(None)


def test_garbage_instead_of_tls(run: Run) -> None:
    server = TlsMachine(server_context(run.shepherd), server_side=True)
    with pytest.raises(ssl.SSLError) as caught:
        server.receive(b"GET / HTTP/1.1\r\n\r\n")
    error = explain(caught.value, "10.0.0.1")
    assert isinstance(error, TlsFailure)
    assert str(error) == "cannot make an encrypted channel with 10.0.0.1: http request"
