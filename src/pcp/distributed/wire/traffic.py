"""Counting: bytes moved by kind of frame, connections, and refusals by reason."""

import logging
import threading
from collections import Counter
from collections.abc import Callable

from pcp.distributed.wire.frames import FrameKind
from pcp.distributed.wire.refusal_log import RefusalLog, Refused

_log = logging.getLogger("pcp.wire.server")


class Traffic:
    """Bytes sent and received, by kind of frame, headers included; safe to use from any thread.

    Arguments:
        total: another count to which everything is added as well.
    """

    def __init__(self, total: "Traffic | None" = None) -> None:
        self._lock = threading.Lock()
        self._total = total
        self._sent: Counter[FrameKind] = Counter()
        self._received: Counter[FrameKind] = Counter()

    @property
    def sent(self) -> dict[FrameKind, int]:
        """Bytes sent, by kind."""
        with self._lock:
            return dict(self._sent)

    @property
    def received(self) -> dict[FrameKind, int]:
        """Bytes received, by kind."""
        with self._lock:
            return dict(self._received)

    def count_sent(self, kind: FrameKind, count: int) -> None:
        """Adds bytes that were sent."""
        with self._lock:
            self._sent[kind] += count
        if self._total is not None:
            self._total.count_sent(kind, count)

    def count_received(self, kind: FrameKind, count: int) -> None:
        """Adds bytes that were received."""
        with self._lock:
            self._received[kind] += count
        if self._total is not None:
            self._total.count_received(kind, count)


class Statistics:
    """What a server has seen; safe to use from any thread.

    Arguments:
        on_refused: told of refusals besides the log, each kind once a minute, in any thread.
    """

    def __init__(self, on_refused: Callable[[Refused], None] | None = None) -> None:
        self._lock = threading.Lock()
        self._refused: Counter[str] = Counter()
        self._accepted: Counter[str] = Counter()
        self._on_refused = on_refused
        self.refusals = RefusalLog(self._tell)
        self.traffic = Traffic()

    @property
    def refused(self) -> dict[str, int]:
        """How many connections were refused, by reason."""
        with self._lock:
            return dict(self._refused)

    @property
    def accepted(self) -> dict[str, int]:
        """How many connections were accepted, by use (`control`, `bulk`)."""
        with self._lock:
            return dict(self._accepted)

    def count_refused(self, reason: str, detail: str) -> None:
        """Adds a refusal, and tells of it unless its kind was told of a moment ago."""
        with self._lock:
            self._refused[reason] += 1
        _log.debug("refused (%s) %s", reason, detail)
        self.refusals.add(reason, detail)

    def count_accepted(self, use: str) -> None:
        """Adds an accepted connection."""
        with self._lock:
            self._accepted[use] += 1

    def _tell(self, refused: Refused) -> None:
        _log.warning("%s", refused)
        if self._on_refused is not None:
            self._on_refused(refused)
