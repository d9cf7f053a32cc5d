"""What was made for calls, kept and bounded."""

import threading
from collections import OrderedDict
from typing import Any


class Kept:
    """Values under keys, of which those that were asked for last stay.

    Arguments:
        count: how many stay.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        self._held: OrderedDict[Any, Any] = OrderedDict()
        self._lock = threading.Lock()

    def get(self, key: Any) -> Any:
        """What is kept under a key; None if nothing is."""
        with self._lock:
            if key not in self._held:
                return None
            self._held.move_to_end(key)
            return self._held[key]

    def put(self, key: Any, value: Any) -> None:
        """Keep a value, in the place of the one that was asked for longest ago."""
        with self._lock:
            self._held[key] = value
            while len(self._held) > self._count:
                self._held.popitem(last=False)

    def __len__(self) -> int:
        return len(self._held)
