"""What was made for calls, in one store: plans and operations that stay ready, by how they were called and by their program."""

import functools
import logging
import threading
from collections import OrderedDict
from collections.abc import Callable
from typing import Any

from pcp.ir import Program

log = logging.getLogger("pcp.calling")

KEPT = 2048
"""Entries of the store; a plan has one for its program, and one for every way in which it was called."""
_KEY = "_called_by"
"""Where a program keeps its key."""


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

    def made(self, program: Program, how: Any, make: Callable[[Program], Any]) -> Any:
        """What is made of a program, once for all programs that compute the same of arguments of the same names and classes.

        Arguments:
            how: what else decides it, as settings.
            make: makes it, where it is not kept.
        """
        key = (_key_of(program), how)
        kept = self.get(key)
        if kept is None:
            log.debug(
                "program %s was not called before, or %d others were since", program.digest[:12], self._count
            )
            kept = make(program)
            self.put(key, kept)
        return kept

    def __len__(self) -> int:
        return len(self._held)


STORE = Kept(KEPT)


class _Key(tuple[Any, ...]):
    """A key whose hash is taken once."""

    @functools.cached_property
    def _hash(self) -> int:
        return super().__hash__()

    def __hash__(self) -> int:
        return self._hash


def _key_of(program: Program) -> _Key:
    """What a call depends on in a program."""
    held = vars(program)
    if _KEY not in held:
        trees = program.argument_tree.exact, program.result_tree.exact
        held[_KEY] = _Key((type(program), program.digest, program.arguments, program.results, trees))
    key: _Key = held[_KEY]
    return key
