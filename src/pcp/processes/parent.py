"""The parent of this process, as seen from it: what it asks, and what it is told."""

import json
import os
import pickle
import queue
import threading
import traceback
from collections.abc import Callable
from typing import Any


class Parent:
    """Requests come where standard input was, and answers go where standard output was, so that code which runs here reads none
    of the ones and writes none of the others: it reads nothing, and what it prints goes to standard error.

    When there will be no more requests the parent has gone, and this process goes whatever it is doing.

    Arguments:
        hears: told every request as it comes, in a thread of its own; None keeps them for `asks`.
    """

    def __init__(self, hears: Callable[[tuple[Any, ...]], object] | None = None) -> None:
        self._taken, self._answers = os.fdopen(os.dup(0), "rb"), os.fdopen(os.dup(1), "wb")
        nothing = os.open(os.devnull, os.O_RDONLY)
        os.dup2(nothing, 0)
        os.close(nothing)
        os.dup2(2, 1)
        self._speaking = threading.Lock()
        self._requests: queue.SimpleQueue[bytes] = queue.SimpleQueue()
        self._hears = hears
        threading.Thread(target=self._read, daemon=True).start()

    def asks(self) -> Any:
        """The next request, which is waited for."""
        return pickle.loads(self._requests.get())

    def say(self, **words: Any) -> None:
        """Say a line of JSON, from any thread."""
        line = json.dumps(words, allow_nan=False).encode() + b"\n"
        with self._speaking:
            self._answers.write(line)
            self._answers.flush()

    def _read(self) -> None:
        try:
            while len(size := self._taken.read(8)) == 8:
                raw = self._taken.read(int.from_bytes(size, "little"))
                if self._hears is None:
                    self._requests.put(raw)
                else:
                    self._hears(pickle.loads(raw))
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
