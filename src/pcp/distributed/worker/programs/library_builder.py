"""Native libraries for a confined process, which may run no compiler: the Worker builds them."""

import functools
import logging
import random
import threading
from collections.abc import Callable, Sequence

from pcp.backends.processors import core_count
from pcp.distributed.worker.programs.confined_process import ConfinedProcess
from pcp.distributed.worker.programs.sayings import NeedsLibraries, Remark, SaidWrong
from pcp.interruption import all_of
from pcp.kernels import native

log = logging.getLogger("pcp.distributed.worker.programs")


class LibraryBuilder:
    """Builds native libraries for a process, which may run no compiler; it asks for them once.

    Arguments:
        process: it.
        cancelled: asked before each library whether to give up.
        is_allowed: whether the process may ask.
    """

    def __init__(self, process: ConfinedProcess, cancelled: Callable[[], bool], *, is_allowed: bool) -> None:
        self._process, self._cancelled, self._is_allowed = process, cancelled, is_allowed

    def begin(self, said: Remark) -> None:
        """Build what is not there yet, on all cores, in another thread; the process is told when that is done.

        Raises:
            SaidWrong: the process may not ask, or for something else.
        """
        names = said.libraries if isinstance(said, NeedsLibraries) else ()
        is_known = sorted(names) == sorted(native.LIBRARIES.keys() & set(names))
        if not self._is_allowed or not is_known or not isinstance(said, NeedsLibraries):
            raise SaidWrong(f"the process that runs programs lies: it wants {str(list(names))[:80]!r} built")
        self._is_allowed = False
        threading.Thread(target=self._build, args=(names,), daemon=True).start()

    def _build(self, names: Sequence[str]) -> None:
        # Workers that begin together take different orders, so that each builds some.
        shuffled = random.sample(names, len(names))
        log.info("native libraries that the step may call: %s", ", ".join(names) or "none")
        try:
            all_of([functools.partial(self._have, name) for name in shuffled], core_count())
        finally:
            self._process.send("built")

    def _have(self, name: str) -> None:
        if not self._cancelled() and not self._process.ended:
            native.missing(name)
