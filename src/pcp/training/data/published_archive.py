"""A source archive of a package, as it was published, and why it could not be had."""

from dataclasses import dataclass

from pcp.errors import PCPError


class ArchiveUnavailable(PCPError):
    """No configured index has the archive, or none could be reached."""


class ArchiveDigestMismatch(PCPError):
    """What was downloaded is not the archive that was asked for."""


@dataclass(frozen=True, slots=True)
class SourceArchive:
    """One source archive of a package.

    Arguments:
        package: the package's name on the index.
        filename: the archive's name.
        sha256: digest of the archive's bytes, in hex.
        size: its size in bytes.
    """

    package: str
    version: str
    filename: str
    sha256: str
    size: int
