"""TLS 1.3 with certificates on both sides, and TLS as a state machine without I/O.

Connections use `TlsMachine` rather than TLS sockets. Asyncio's close without sending the alert when they refuse a
certificate: the other side would never learn why. Those of the standard library make two system calls for every 16 KiB
that they receive and one for every 16 KiB that they send; a machine takes and gives many records at once.
"""

import contextlib
import os
import ssl
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from pcp.distributed.wire.identity.certificates import SHEPHERD_NAME
from pcp.distributed.wire.identity.credentials import Credentials, write_private
from pcp.distributed.wire.identity.revocations import Revocations
from pcp.errors import PCPError
from pcp.temporary import HOLDING_KEYS, TemporaryFolder

CONTROL_PROTOCOL = "pcp-control/1"
BULK_PROTOCOL = "pcp-bulk/1"

_READ_BYTES = 1 << 14
_NOT_YET_VALID, _EXPIRED = 9, 10  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and X509_V_ERR_CERT_HAS_EXPIRED


class CertificateRefused(PCPError):
    """One side did not accept the certificate of the other."""


class TlsFailure(PCPError):
    """The encrypted channel could not be made, or broke."""


@dataclass(frozen=True, slots=True)
class Peer:
    """Who the other side has proved to be.

    Arguments:
        name: the common name in its certificate.
        serial: the certificate's serial number.
    """

    name: str
    serial: int


def server_context(credentials: Credentials) -> ssl.SSLContext:
    """TLS 1.3 for a Shepherd: only clients with a certificate of the same authority get through."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    _configure(context, credentials)
    context.set_alpn_protocols([CONTROL_PROTOCOL, BULK_PROTOCOL])
    context.num_tickets = 0  # a resumed session would skip the certificate
    return context


def client_context(credentials: Credentials, protocol: str) -> ssl.SSLContext:
    """TLS 1.3 for a worker that speaks one of the two protocols; the server must prove to be the Shepherd."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    _configure(context, credentials)
    context.check_hostname = True
    context.set_alpn_protocols([protocol])
    return context


def _configure(context: ssl.SSLContext, credentials: Credentials) -> None:
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.load_verify_locations(cadata=credentials.authority.decode())
    with _as_file(credentials.certificate + credentials.key) as path:
        context.load_cert_chain(path)


@contextlib.contextmanager
def _as_file(content: bytes) -> Iterator[str]:
    """A path of some bytes, as OpenSSL reads keys from files only. They are on no disk, and end with this process.


    Where the system has no files in memory, they are in a folder of this user's that the next process removes if this one is
    killed.
    """
    if hasattr(os, "memfd_create"):
        with contextlib.suppress(OSError), open(os.memfd_create("key", os.MFD_CLOEXEC), "wb") as file:
            file.write(content)
            file.flush()
            if os.path.exists(path := f"/proc/self/fd/{file.fileno()}"):
                yield path
                return
    with TemporaryFolder(HOLDING_KEYS) as folder:
        write_private(place := folder.path / "key.pem", content)
        yield str(place)


def peer_of(certificate: dict[str, Any] | None) -> Peer:
    """Who a verified certificate belongs to.

    Arguments:
        certificate: what `getpeercert` of the standard library gives.

    Raises:
        CertificateRefused: it does not name exactly one participant.
    """
    subject = [pair for part in (certificate or {}).get("subject", ()) for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    if certificate is None or len(names) != 1:
        raise CertificateRefused(f"the certificate names {len(names)} participants; expected one")
    return Peer(names[0], int(certificate["serialNumber"], 16))


def check_not_revoked(peer: Peer, revocations: Revocations | None) -> None:
    """Raises `CertificateRefused` where the peer's certificate was taken back."""
    if revocations is not None and peer.serial in revocations:
        raise CertificateRefused(
            f"the certificate of {peer.name} (serial number {peer.serial:x}) was revoked; "
            "ask for a new key file"
        )


def check_protocol(selected: str | None, expected: str) -> None:
    """Raises `TlsFailure` where the two sides do not mean the same protocol by this connection."""
    if selected != expected:
        raise TlsFailure(f"expected a connection for {expected}, the other side meant {selected}")


def explain(error: Exception, address: str, *, server_side: bool = False) -> PCPError:
    """What an error of a TLS handshake or of the first read after it means, for a person.

    With TLS 1.3 a client learns that its certificate was refused only when it first reads.

    Arguments:
        error: what the standard library raised.
        address: of the other side.
        server_side: whether this is the Shepherd.

    Returns:
        A `CertificateRefused` or a `TlsFailure`.
    """
    text = (error.reason or "") if isinstance(error, ssl.SSLError) else ""
    readable = text.lower().replace("_", " ")
    if isinstance(error, ssl.SSLCertVerificationError):
        advice = _advice_on_theirs(error.verify_code, server_side)
        return CertificateRefused(
            f"the certificate of {address} is not acceptable: {error.verify_message}; {advice}"
        )
    if "ALERT" in text and ("CERTIFICATE" in text or "UNKNOWN_CA" in text):
        advice = _advice_on_ours(expired="EXPIRED" in text, server_side=server_side)
        return CertificateRefused(f"{address} does not accept this side's certificate ({readable}); {advice}")
    return TlsFailure(f"cannot make an encrypted channel with {address}: {readable or error}")


def _advice_on_theirs(code: int, server_side: bool) -> str:
    if code == _NOT_YET_VALID:
        return "set the clocks of both machines right"
    if code == _EXPIRED and server_side:
        return "make it a new key file (`pcp keys worker`), unless the clock of this machine is wrong"
    if code == _EXPIRED:
        return "start the Shepherd again, which renews it, unless the clock of this machine is wrong"
    if server_side:
        return "its key file was made by another authority"
    return "the key file belongs to another run, or this is not its Shepherd"


def _advice_on_ours(*, expired: bool, server_side: bool) -> str:
    if expired and server_side:
        return "start the Shepherd again, which renews it, unless the clock of the other machine is wrong"
    if expired:
        return "ask for a new key file (`pcp keys worker`), unless the clock of the other machine is wrong"
    if server_side:
        return "it may belong to another run"
    return "use a key file made by the authority of that run (`pcp keys`)"


class TlsMachine:
    """One end of a TLS connection: bytes of the network in, plain bytes out, and the reverse.

    Arguments:
        context: made by `server_context` or `client_context`.
        server_side: whether this end accepts.
        server_name: what the certificate of the other end must be for, where that accepts.
    """

    def __init__(
        self, context: ssl.SSLContext, *, server_side: bool, server_name: str = SHEPHERD_NAME
    ) -> None:
        self._incoming = ssl.MemoryBIO()
        self._outgoing = ssl.MemoryBIO()
        self._object = context.wrap_bio(
            self._incoming,
            self._outgoing,
            server_side=server_side,
            server_hostname=None if server_side else server_name,
        )
        self.established = False
        self.closed_by_peer = False

    @property
    def peer(self) -> Peer:
        """Who the other side has proved to be; only once `established`."""
        return peer_of(self._object.getpeercert())

    @property
    def protocol(self) -> str | None:
        """What both sides mean this connection for; only once `established`."""
        return self._object.selected_alpn_protocol()

    def bytes_to_send(self) -> bytes:
        """Takes the bytes that belong on the network now."""
        return self._outgoing.read()

    def start(self) -> None:
        """Begins the handshake; a client has bytes to send afterwards."""
        self.shake_hands(b"")

    def shake_hands(self, data: bytes | memoryview) -> None:
        """Takes bytes of the network until `established`; what follows the handshake in them is kept for `read_into`.

        Raises:
            ssl.SSLError: the handshake failed. `bytes_to_send` then holds the alert that tells the other side.
        """
        self.feed(data)
        with contextlib.suppress(ssl.SSLWantReadError):
            self._object.do_handshake()
            self.established = True

    def receive(self, data: bytes) -> bytes:
        """Takes bytes of the network.

        Arguments:
            data: any number of bytes, cut anywhere.

        Returns:
            The plain bytes that they complete.

        Raises:
            ssl.SSLError: the handshake failed or the stream was tampered with. `bytes_to_send` then holds
                the alert that tells the other side.
        """
        if not self.established:
            self.shake_hands(data)
        else:
            self.feed(data)
        plain = bytearray()
        if self.established:
            space = memoryview(bytearray(_READ_BYTES))
            while count := self.read_into(space):
                plain += space[:count]
        return bytes(plain)

    def feed(self, data: bytes | memoryview) -> None:
        """Takes bytes of the network for `read_into`."""
        self._incoming.write(data)

    @property
    def something_to_read(self) -> bool:
        """Whether bytes of the network wait for `read_into`; they need not hold a whole record."""
        return self._incoming.pending > 0 or self._object.pending() > 0

    def read_into(self, space: memoryview) -> int:
        """Decrypts what was fed into a buffer.

        Returns:
            How many plain bytes there were: 0 where more has to be fed, or the other side has closed.

        Raises:
            ssl.SSLError: the stream was tampered with, or the other side refuses this one.
        """
        filled = 0
        try:
            while filled < len(space):
                count: int = self._object.read(len(space) - filled, space[filled:])  # type: ignore[assignment]  # with a buffer
                if not count:
                    self.closed_by_peer = True
                    break
                filled += count
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLZeroReturnError:
            self.closed_by_peer = True
        return filled

    def send(self, plain: bytes | memoryview) -> None:
        """Encrypts bytes for the other side."""
        rest = memoryview(plain)
        while rest:
            rest = rest[self._object.write(rest) :]

    def close(self) -> None:
        """Tells the other side that nothing more will be sent."""
        with contextlib.suppress(ssl.SSLError):  # raised where it has not said the same yet
            self._object.unwrap()
