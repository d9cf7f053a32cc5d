"""The port of a worker that listens: the Shepherd's server, with the worker's key and what it holds out."""

import re

from pcp.distributed.messages import Hello
from pcp.distributed.wire import (
    ControlConnection,
    Credentials,
    Permissions,
    RefusalCode,
    WireLimits,
    WireServer,
)
from pcp.distributed.wire.bulk.responder import Storage
from pcp.distributed.wire.identity.credentials import CertificateProblem
from pcp.distributed.wire.sockets import BadAddress, format_address, is_host

LIMITS = WireLimits(
    connections=256, connections_per_worker=2, transfer_bytes=64 << 20, transfer_threads=2, strangers=128
)
"""Less than a Shepherd's: serving others is not what a worker is for."""

_ADDRESS = re.compile(r"(?:\[([\w:.%-]+)\]|([^:\[\]]+)):([0-9]{1,5})")


def listening_address(text: str) -> tuple[str, int]:
    """Host and port of `--listen`; port 0 picks a free one.

    Raises:
        BadAddress: the text is no host and port.
    """
    match = _ADDRESS.fullmatch(text)
    if match is None or (port := int(match[3])) > 65535 or not is_host(match[1] or match[2]):
        raise BadAddress(
            f"{text!r} is not an address to listen on; give HOST:PORT, for example 0.0.0.0:7434 or [::]:7434"
        )
    return match[1] or match[2], port


async def listen(
    address: str, credentials: Credentials, storage: Storage, permissions: Permissions
) -> tuple[WireServer, str]:
    """Open a worker's port.

    Arguments:
        address: as `listening_address` takes it.
        credentials: the worker's.
        storage: where its blobs are.
        permissions: which of them are for whom.

    Returns:
        The server, and the address to tell: with the port that was picked.

    Raises:
        BadAddress: it is no address.
        CertificateProblem: the key file was made before workers could listen.
        PortInUse, CannotListen: the address cannot be listened on.
    """
    host, port = listening_address(address)
    if not credentials.may_listen:
        raise CertificateProblem(
            f"the certificate of {credentials.name} is for connecting only, and --listen needs one that others can check; "
            f"ask for a new key file (`pcp keys worker {credentials.name} --run FOLDER`)"
        )
    server = await WireServer.start(host, port, credentials, _turn_away, storage, permissions, limits=LIMITS)
    return server, format_address((host, server.port))


async def _turn_away(connection: ControlConnection, _: Hello) -> None:
    await connection.refuse(RefusalCode.DECLINED, "this is a worker; connect to the run's Shepherd")
