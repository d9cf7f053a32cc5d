"""The wire between a Shepherd and its Workers: messages and blobs over TCP with TLS 1.3 and certificates.

Everything that decides is a pure state machine (`frames`, `connection`, `transfer`, `responder`, `fairness`); everything
that touches a socket is thin. The Shepherd opens one port for control and bulk connections, whose peers are strangers
(`doorway`) until they have proved who they are.

    authority = Authority.create("run/authority")               # once per run; Authority.load afterwards
    authority.issue("ada").save_bundle("ada.pem")               # the file for `pcp worker --key ada.pem`

    # Shepherd (asyncio)
    async def on_worker(connection: ControlConnection, hello: Hello) -> None:
        await connection.send(Welcome(...))                     # or: await connection.refuse(code, reason)
        async for message in connection:                        # ends after Goodbye, else ConnectionLost
            connection.post(HeartbeatReply(...))                # never waits; `send` waits for the socket

    store, permissions = BlobStore("run/blobs"), Announcements()
    parameters = store.put(content)                             # -> Blob(digest, size)
    permissions.announce([parameters])                          # workers may fetch it
    permissions.allow_push("ada", 200_000_000)                  # bytes of new blobs that ada may push
    server = await WireServer.start(
        "0.0.0.0", 7070, authority.issue("shepherd", "shepherd"), on_worker, store, permissions,
        revocations=authority.revocations)
    await server.close()                                        # after Goodbye to the workers

    # Worker (control on asyncio, bulk in any thread)
    own = Credentials.load_bundle("ada.pem")
    async with await connect("10.0.0.1:7070", own, Hello(PROTOCOL_VERSION, own.name, ...)) as control:
        bulk = BulkClient("10.0.0.1:7070", own)                 # resumes, reconnects, checks digests
        await asyncio.to_thread(bulk.fetch, parameters, cache)
        await asyncio.to_thread(bulk.push, cache.put(update), cache)
        await control.send(Update(...))
"""

from pcp.distributed.messages import PROTOCOL_VERSION
from pcp.distributed.wire.backoff import Backoff
from pcp.distributed.wire.blob_files import (
    BlobMissing,
    BlobTooLarge,
    DigestMismatch,
    StoreError,
    StoreFull,
    blob_of,
)
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.wire.bulk.chunks import TransferError, TransferRefused, TransferViolation
from pcp.distributed.wire.bulk.client import BulkClient, TransferCancelled, TransferFailed
from pcp.distributed.wire.bulk.permissions import Announcements, Permissions
from pcp.distributed.wire.bulk.striped import StripedFetcher
from pcp.distributed.wire.bulk.striped_push import StripedPusher
from pcp.distributed.wire.bulk.transfer import BadTransferSettings, TransferSettings
from pcp.distributed.wire.codec import MessageError, PeerIsNewer
from pcp.distributed.wire.connection import MessageNotAllowed, TooMuchInFlight
from pcp.distributed.wire.connection_errors import ConnectionLost, PeerNotAcceptable, RefusedByPeer
from pcp.distributed.wire.control import ControlConnection
from pcp.distributed.wire.control_client import connect
from pcp.distributed.wire.frames import FrameError, FrameKind
from pcp.distributed.wire.identity.certificates import Authority
from pcp.distributed.wire.identity.credentials import CertificateProblem, Credentials
from pcp.distributed.wire.identity.revocations import RevocationListProblem, Revocations
from pcp.distributed.wire.identity.tls import CertificateRefused, Peer, TlsFailure
from pcp.distributed.wire.limits import BadWireLimits, WireLimits
from pcp.distributed.wire.refusal import Refusal, RefusalCode
from pcp.distributed.wire.refusal_log import Refused
from pcp.distributed.wire.server import WireServer
from pcp.distributed.wire.sockets import BadAddress, CannotListen, PortInUse, Unreachable
from pcp.distributed.wire.traffic import Statistics, Traffic

__all__ = [
    "PROTOCOL_VERSION",
    "Announcements",
    "Authority",
    "Backoff",
    "BadAddress",
    "BadTransferSettings",
    "BadWireLimits",
    "BlobMissing",
    "BlobStore",
    "BlobTooLarge",
    "BulkClient",
    "CannotListen",
    "CertificateProblem",
    "CertificateRefused",
    "ConnectionLost",
    "ControlConnection",
    "Credentials",
    "DigestMismatch",
    "FrameError",
    "FrameKind",
    "MessageError",
    "MessageNotAllowed",
    "Peer",
    "PeerIsNewer",
    "PeerNotAcceptable",
    "Permissions",
    "PortInUse",
    "Refusal",
    "RefusalCode",
    "Refused",
    "RefusedByPeer",
    "RevocationListProblem",
    "Revocations",
    "Statistics",
    "StoreError",
    "StoreFull",
    "StripedFetcher",
    "StripedPusher",
    "TlsFailure",
    "TooMuchInFlight",
    "Traffic",
    "TransferCancelled",
    "TransferError",
    "TransferFailed",
    "TransferRefused",
    "TransferSettings",
    "TransferViolation",
    "Unreachable",
    "WireLimits",
    "WireServer",
    "blob_of",
    "connect",
]
