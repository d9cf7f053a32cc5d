"""A contestant of a benchmark in a process of its own, as its users have it.

Contestants do not share settings of the C library then (PCP's processes keep freed memory, see `pcp.backends.host_memory`), nor
thread pools, nor a heap.
"""

import multiprocessing
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from types import TracebackType
from typing import Any

Run = Callable[[Any], Any]
Make = Callable[..., tuple[Any, Run] | None]


class OwnProcess:
    """A function that was made in a child process, and is called there; a context manager.

    Arguments:
        make: a function of a module, called in the child; what it returns is anything that can be pickled, and the function to
            call. None if there is no such contestant here.
        arguments: its own, pickled.
    """

    def __init__(self, make: Make, *arguments: Any) -> None:
        context = multiprocessing.get_context("spawn")
        self._pipe, theirs = context.Pipe()
        self._process = context.Process(target=_serve, args=(theirs, make, arguments))
        self._process.start()
        theirs.close()
        self.made: Any = self._pipe.recv()

    def __enter__(self) -> "OwnProcess":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._pipe.close()  # which ends the child's loop
        self._process.join(10.0)
        if self._process.is_alive():
            self._process.kill()

    def call(self, argument: Any) -> tuple[float, Any]:
        """The seconds of one call, taken in the child, and what it returned."""
        self._pipe.send(argument)
        seconds, result = self._pipe.recv()
        return seconds, result


@contextmanager
def on_cores(count: int) -> Iterator[None]:
    """Processes that are started here may use so many of the cores that this one may use; 0 for all.

    Thread pools, of XLA, PyTorch and OpenMP, are as large then.
    """
    mine = os.sched_getaffinity(0)
    if count > len(mine):
        raise ValueError(f"there are {len(mine)} cores, not {count}")
    os.sched_setaffinity(0, sorted(mine)[: count or len(mine)])
    try:
        yield
    finally:
        os.sched_setaffinity(0, mine)


def is_lack_of_memory(problem: Exception) -> bool:
    """Whether what a contestant raised says that memory was not enough, whoever's it is."""
    text = f"{type(problem).__name__} {problem}".lower()
    return any(words in text for words in ("outofmemory", "out of memory", "resource_exhausted"))


def _serve(pipe: Connection, make: Make, arguments: tuple[Any, ...]) -> None:
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # several share a GPU
    made = make(*arguments)
    pipe.send(made and made[0])
    if made is None:
        return
    run = made[1]
    while True:
        try:
            argument = pipe.recv()
        except EOFError:
            return
        start = time.perf_counter()
        result = run(argument)
        pipe.send((time.perf_counter() - start, result))
