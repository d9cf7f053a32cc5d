"""Standard streams of a process that outlives whoever reads them."""

import contextlib
import logging
import os
import sys
from collections.abc import Iterator
from typing import IO, Any

log = logging.getLogger("pcp.cli.lasting")


@contextlib.contextmanager
def lasting_streams() -> Iterator[None]:
    """Leave out what standard output and standard error do not take: their disk is full, their reader or terminal is gone.

    What a Shepherd and a Worker show is no part of the run, so it does not end the run.
    """
    before = sys.stdout, sys.stderr
    streams = _Lasting(before[0], "standard output"), _Lasting(before[1], "standard error")
    sys.stdout, sys.stderr = streams
    try:
        yield
    finally:
        sys.stdout, sys.stderr = before
        for stream in streams:
            stream.end()


class _Lasting:
    """A text stream whose `write` and `flush` raise nothing."""

    def __init__(self, stream: IO[str], name: str) -> None:
        self._stream, self._name, self._lacks = stream, name, False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        try:
            return self._stream.write(text)
        except OSError as error:
            return self._left_out(text, error)

    def flush(self) -> None:
        try:
            self._stream.flush()
        except OSError as error:
            self._left_out("", error)

    def end(self) -> None:
        """Let go of what the stream still holds, at which Python would stumble when it closes it."""
        if self._lacks:
            try:
                self._stream.flush()
            except OSError:
                os.dup2(os.open(os.devnull, os.O_WRONLY), self._stream.fileno())

    def _left_out(self, text: str, error: OSError) -> int:
        if not self._lacks:
            self._lacks = True
            log.warning("%s lacks lines from here on: %s; the run goes on", self._name, error)
        return len(text)
