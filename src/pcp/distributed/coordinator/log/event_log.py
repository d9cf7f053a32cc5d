"""The append-only event log: checksummed records in segments, a torn tail cut off, compacted by snapshots.

A segment is a magic, then records: payload length (u32), CRC-32 of length and payload (u32), payload. The
first record of a segment after the first is a snapshot of the whole state, so only the newest segment is
ever read.
"""

import errno
import logging
import struct
import zlib
from collections.abc import Iterator

from pcp.distributed.coordinator.log.storage import Storage
from pcp.errors import PCPError

MAGIC = b"PCPLOG01"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
"""Errors of a disk without room, or of a file that may not grow."""

_HEADER = struct.Struct("<II")
_log = logging.getLogger("pcp.distributed.event_log")


class CorruptEventLog(PCPError):
    """The log is damaged before its end, where no crash can have torn it."""


class EventLogWriteFailed(PCPError):
    """The event log could not be written; what was written before is still readable."""


class EventLogFull(EventLogWriteFailed):
    """There was no room for a record; the log is as it was before, and takes the record as soon as there is."""


def frame(payload: bytes) -> bytes:
    """Return the bytes of one record."""
    length = struct.pack("<I", len(payload))
    return length + struct.pack("<I", zlib.crc32(payload, zlib.crc32(length))) + payload


def _record_at(data: bytes, offset: int) -> tuple[bytes, int] | None:
    """Return the payload at an offset and the offset after it; None where no whole, sound record stands."""
    body = offset + _HEADER.size
    if body > len(data):
        return None
    length, checksum = _HEADER.unpack_from(data, offset)
    end = body + length
    if end > len(data) or zlib.crc32(data[body:end], zlib.crc32(data[offset : offset + 4])) != checksum:
        return None
    return data[body:end], end


def scan(data: bytes) -> tuple[tuple[bytes, ...], int]:
    """Return the payloads of a segment and the length of its sound part.

    Arguments:
        data: the segment, magic included.

    Raises:
        CorruptEventLog: the magic is wrong, or sound records follow a damaged one.
    """
    if data[: len(MAGIC)] != MAGIC:
        raise CorruptEventLog(
            f"the event log begins with {data[: len(MAGIC)]!r}, expected {MAGIC!r}; restore it from a copy"
        )
    payloads: list[bytes] = []
    offset = len(MAGIC)
    while (record := _record_at(data, offset)) is not None:
        payloads.append(record[0])
        offset = record[1]
    if offset + _HEADER.size <= len(data):
        after = offset + _HEADER.size + _HEADER.unpack_from(data, offset)[0]
        if _record_at(data, after) is not None:
            raise CorruptEventLog(
                f"record {len(payloads)} of the event log, at byte {offset} of {len(data)}, is damaged, yet sound records "
                f"follow: this is no torn write but a failing disk; restore the run directory from a copy"
            )
    return tuple(payloads), offset


class EventLog:
    """An open event log.

    Arguments:
        storage: where the segments are.

    Raises:
        CorruptEventLog: see `scan`.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._failed = ""
        segments = storage.segments()
        if not segments:
            storage.create(1, MAGIC)
            segments = (1,)
        self._segment = segments[-1]
        data = storage.read(self._segment)
        self._payloads, self._length = scan(data)
        if self._length < len(data):
            _log.warning("cutting %d bytes of a torn write off the event log", len(data) - self._length)
            storage.truncate(self._segment, self._length)
        for old in segments[:-1]:
            storage.remove(old)

    def records(self) -> Iterator[bytes]:
        """Return the payloads that were there when the log was opened, oldest first."""
        return iter(self._payloads)

    def append(self, payload: bytes, sync: bool) -> None:
        """Add a record.

        Arguments:
            payload: its bytes.
            sync: whether to return only when it survives a power failure.

        Raises:
            EventLogFull: the disk is full; the same record may be appended again later.
            EventLogWriteFailed: the disk is failing. The log takes no more records until it is opened again.
        """
        self._check()
        data = frame(payload)
        try:
            self._storage.append(self._segment, data)
        except OSError as error:
            raise self._fail(error, is_full=error.errno in FULL) from None
        try:
            if sync:
                self._storage.sync(self._segment)
        except OSError as error:
            raise self._fail(error) from None
        self._length += len(data)

    def compact(self, snapshot: bytes) -> None:
        """Begin a new segment with a snapshot of the state, and drop the old one.

        Raises:
            EventLogFull: the disk is full; the old segment still stands, and goes on.
            EventLogWriteFailed: as for `append`; the old segment then still stands.
        """
        self._check()
        data = MAGIC + frame(snapshot)
        try:
            self._storage.create(self._segment + 1, data)
        except OSError as error:
            raise self._fail(error, is_full=error.errno in FULL) from None
        try:
            self._storage.remove(self._segment)
        except OSError as error:
            raise self._fail(error) from None
        self._segment += 1
        self._length = len(data)

    def _check(self) -> None:
        if self._failed:
            raise EventLogWriteFailed(
                f"the event log already failed ({self._failed}); free some space and start the Shepherd again"
            )

    def _fail(self, error: OSError, is_full: bool = False) -> EventLogWriteFailed:
        # After another failed write, or a failed sync, nobody knows which bytes reached the disk, so nothing more
        # may be built on them.
        self._failed = str(error)
        try:
            self._storage.truncate(self._segment, self._length)
        except OSError as second:
            _log.error("the torn end of the event log stays until it is next opened: %s", second)
            is_full = False
        if is_full:
            self._failed = ""
            return EventLogFull(f"there is no room for a record of the event log: {error}")
        return EventLogWriteFailed(
            f"the event log could not be written ({error}); it is intact up to its last record: free some space and start the "
            f"Shepherd again, the run goes on from there"
        )
