"""Download of a package's source archive as a plain file, resumed where it broke off, verified by digest."""

import hashlib
import logging
import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

import httpx2
from unearth import Link
from unearth.fetchers.sync import PyPIClient

from pcp.errors import PCPError
from pcp.training.data.package_index import find_archive, open_client
from pcp.training.data.pip_configuration import PipConfiguration
from pcp.training.data.published_archive import ArchiveDigestMismatch, ArchiveUnavailable, SourceArchive

logger = logging.getLogger("pcp.training.data.source_archive")

_ATTEMPTS = 4


class _Interrupted(Exception):
    """The transfer stopped for a reason that may pass."""


def download_archive(
    archive: SourceArchive,
    destination: Path,
    configuration: PipConfiguration,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> None:
    """Download an archive and put it in place in one step. Nothing in it is executed.

    Arguments:
        destination: the file to make; it appears only when complete and verified.
        sleep: waits between attempts.

    Raises:
        ArchiveUnavailable: no place has it, or the network failed on every attempt.
        ArchiveDigestMismatch: every file of that name has another digest.
    """
    failure: PCPError = ArchiveUnavailable(f"No package index offers {archive.filename}.")
    with open_client(configuration) as client:
        for link in find_archive(archive, configuration, client):
            try:
                _download(client, link, archive, destination, sleep)
            except (ArchiveUnavailable, ArchiveDigestMismatch) as error:
                logger.warning("%s", error)
                failure = error
            else:
                logger.info("downloaded %s to %s", link.redacted, destination)
                return
    raise failure


def _download(
    client: PyPIClient, link: Link, archive: SourceArchive, destination: Path, sleep: Callable[[float], None]
) -> None:
    destination.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{archive.filename}.", dir=destination.parent)
    try:
        with os.fdopen(handle, "w+b") as file:
            _receive_with_retries(client, link, archive, file, sleep)
            file.seek(0)
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            if digest != archive.sha256:
                raise ArchiveDigestMismatch(
                    f"{archive.filename} from {link.redacted} has SHA-256 {digest}, expected "
                    f"{archive.sha256}: it is "
                    "not the published file. Check which package index pip is configured for (`pip config list`)."
                )
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, destination)
    finally:
        Path(name).unlink(missing_ok=True)


def _receive_with_retries(
    client: PyPIClient, link: Link, archive: SourceArchive, file: BinaryIO, sleep: Callable[[float], None]
) -> None:
    failure: Exception | None = None
    for attempt in range(_ATTEMPTS):
        if attempt:
            logger.warning(
                "%s stopped at byte %d and goes on from there: %s", link.filename, file.tell(), failure
            )
            sleep(0.5 * 2**attempt)
        try:
            _receive(client, link, archive, file)
        except (httpx2.TransportError, _Interrupted) as error:
            failure = error
        except httpx2.HTTPError as error:
            raise ArchiveUnavailable(f"{archive.filename} could not be downloaded: {error}") from error
        else:
            return
    raise ArchiveUnavailable(f"{archive.filename} could not be downloaded in {_ATTEMPTS} attempts: {failure}")


def _receive(client: PyPIClient, link: Link, archive: SourceArchive, file: BinaryIO) -> None:
    offset = file.seek(0, os.SEEK_END)
    # Without compression on the way, received bytes are bytes of the file, and the transfer can go on at an
    # offset.
    headers = {"Accept-Encoding": "identity"} | ({"Range": f"bytes={offset}-"} if offset else {})
    with client.get_stream(link.normalized, headers=headers) as reply:
        if reply.status_code >= 500 or reply.status_code == 429:
            raise _Interrupted(f"the server answered {reply.status_code}")
        if reply.status_code not in (200, 206):
            raise ArchiveUnavailable(f"{link.redacted} answered {reply.status_code} {reply.reason_phrase}")
        if offset and reply.status_code == 200:
            offset = file.seek(0)
            file.truncate()
        for chunk in reply.iter_raw():
            file.write(chunk)
            if file.tell() > archive.size:
                break
    if file.tell() < archive.size:
        raise _Interrupted(f"the transfer ended after {file.tell()} of {archive.size} bytes")
