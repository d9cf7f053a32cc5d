"""Compiled programs kept on disk, found by what they were made from; bounded; several processes may share
it."""

import contextlib
import hashlib
import logging
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

from pcp.folders import cache_folder
from pcp.ir.program_file import write_atomically
from pcp.turn import turn

log = logging.getLogger("pcp.backends.cache")

MAGIC = b"PCPXLA1\n"
DEFAULT_LIMIT = 4 * 2**30
LONGEST_WAIT_SECONDS = 900.0


class CompileCache:
    """A folder of entries, each a file with a checksum.

    An entry that cannot be read or written is a warning and a miss: the program is compiled instead.

    Arguments:
        folder: made when the first entry is written, for this user alone, because entries are machine code.
        limit: bytes; beyond, the entries that were used longest ago are removed.
    """

    def __init__(self, folder: Path, limit: int = DEFAULT_LIMIT) -> None:
        self.folder = folder
        self.limit = limit

    def get(self, key: str) -> bytes | None:
        """The entry of that key, if there is a sound one; it counts as used now."""
        path = self._path(key)
        try:
            raw = path.read_bytes()
        except FileNotFoundError:
            return None
        except OSError as error:
            log.warning("cannot read the compiled program %s: %s", path, error)
            return None
        header, payload = raw[: len(MAGIC) + 32], raw[len(MAGIC) + 32 :]
        if header != MAGIC + hashlib.sha256(payload).digest():
            log.warning("the compiled program %s is damaged; it is compiled and written again", path)
            return None
        try:
            os.utime(path)
        except OSError as error:  # removed by another process, or not ours to touch: what was read is sound
            log.debug("cannot mark %s as used: %s", path, error)
        return payload

    def put(self, key: str, payload: bytes) -> None:
        """Write an entry, in one step for whoever reads it, and remove old ones beyond the limit."""
        path = self._path(key)
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(path, MAGIC + hashlib.sha256(payload).digest() + payload)
        except OSError as error:
            log.warning("cannot keep the compiled program in %s: %s", self.folder, error)
            return
        self._evict(keep=path)

    @contextlib.contextmanager
    def building(self, key: str) -> Iterator[None]:
        """Hold the right to make an entry; whoever else wants to make it waits, and should then look for it again.

        Workers of one machine start together with the same program, and compiling takes minutes and every processor. The
        right ends with its process. Where it cannot be had, or not for very long, the caller goes on without it.
        """
        path = self.folder / f"{key}.lock"
        with turn(
            path,
            LONGEST_WAIT_SECONDS,
            log,
            unavailable="cannot keep other processes from compiling the same program",
            waiting="another process compiles the same program; waiting for it",
            gave_up="the program is compiled here too",
        ):
            yield
            with contextlib.suppress(OSError):
                path.unlink()

    def _evict(self, keep: Path) -> None:
        entries = []
        for path in self.folder.glob("*.xla"):
            try:
                facts = path.stat()
            except FileNotFoundError:  # another process evicts too
                continue
            entries.append((facts.st_mtime_ns, facts.st_size, path))
        total = sum(size for _, size, _ in entries)
        for _, size, path in sorted(entries):
            if total <= self.limit:
                return
            if path != keep:
                path.unlink(missing_ok=True)
                total -= size
                log.info(
                    "removed the compiled program %s: the cache is limited to %d bytes", path.name, self.limit
                )

    def _path(self, key: str) -> Path:
        return self.folder / f"{key}.xla"


def default_cache() -> CompileCache:
    """The cache in `cache_folder()`; `PCP_CACHE_LIMIT` bounds its bytes."""
    limit = os.environ.get("PCP_CACHE_LIMIT", "")
    if limit and not limit.isdecimal():
        log.warning("PCP_CACHE_LIMIT is %r, which is not a number of bytes; %d is used", limit, DEFAULT_LIMIT)
    return CompileCache(cache_folder() / "xla", int(limit) if limit.isdecimal() else DEFAULT_LIMIT)


def cache_key(parts: Iterable[bytes | str]) -> str:
    """One name for everything that a compiled program depends on."""
    digest = hashlib.sha256()
    for part in parts:
        raw = part.encode() if isinstance(part, str) else part
        digest.update(len(raw).to_bytes(8, "little") + raw)
    return digest.hexdigest()
