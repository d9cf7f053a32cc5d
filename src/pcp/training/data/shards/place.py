"""Where shards lie: a folder, or any URL that the optional package `fsspec` opens."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.ir.program_file import write_atomically
from pcp.training.extras import import_extra

_PIECE = 1 << 22


class PlaceUnreachable(PCPError):
    """A file of a place of shards cannot be read or written."""


class MissingDriver(PCPError):
    """The scheme of a URL needs a package that is not installed, or does not exist."""


class Place:
    """Files under one folder or URL.

    Arguments:
        url: a folder, or a URL such as `s3://bucket/corpus`.

    Raises:
        MissingExtra: it is a URL, and `fsspec` is not installed.
        MissingDriver: `fsspec` has no driver for its scheme here.
    """

    def __init__(self, url: str) -> None:
        self.url = url.removeprefix("file://").rstrip("/")
        self._files: Any = None
        if self.is_folder:
            return
        fsspec = import_extra("fsspec", "data", f"Data from {url}")
        try:
            self._files, self._root = fsspec.core.url_to_fs(self.url)
        except (ImportError, ValueError) as error:
            raise MissingDriver(
                f"cannot open {url}: {error}. Give a folder, or a URL whose driver is installed."
            ) from None

    @property
    def is_folder(self) -> bool:
        """Whether it is a folder of this machine."""
        return "://" not in self.url

    def read(self, name: str) -> Iterator[bytes]:
        """The bytes of a file, in pieces; raises PlaceUnreachable."""
        try:
            with self._open(name, "rb") as file:
                while piece := file.read(_PIECE):
                    yield piece
        except Exception as error:
            # Each driver of fsspec raises errors of its own.
            raise PlaceUnreachable(f"cannot read {self.url}/{name}: {error!r}") from error

    def write(self, name: str, data: bytes) -> None:
        """Write a file, in a folder completely or not at all; raises PlaceUnreachable, or OSError for a full disk."""
        if self._files is None:
            folder = Path(self.url)
            folder.mkdir(parents=True, exist_ok=True)
            write_atomically(folder / name, data)
            return
        try:
            self._files.makedirs(self._root, exist_ok=True)
            with self._open(name, "wb") as file:
                file.write(data)
        except Exception as error:
            # As above.
            raise PlaceUnreachable(f"cannot write {self.url}/{name}: {error!r}") from error

    def _open(self, name: str, mode: str) -> Any:
        if self._files is None:
            return open(Path(self.url) / name, mode)
        return self._files.open(f"{self._root}/{name}", mode)
