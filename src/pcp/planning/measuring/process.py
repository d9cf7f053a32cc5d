"""A process in which code from outside may run, as seen by its parent: whatever becomes of it is a kind of failure."""

import secrets
from pathlib import Path
from typing import Any

from pcp.backends import Target
from pcp.planning.measuring.measurement import Failure
from pcp.processes.child import Child, Start, TookTooLong, said_in


class ChildEnded(Exception):
    """The child died or was killed; `failure` says what that is for a candidate."""

    def __init__(self, failure: Failure, words: str) -> None:
        super().__init__(words)
        self.failure = failure


class MeasuringProcess:
    """One process that measures.

    Arguments:
        target: that it compiles for.
        folder: that it may write to.
        memory_bytes: address space that it may take beyond what it has after start-up.
        module: what it runs.
    """

    def __init__(
        self, target: Target, folder: Path, memory_bytes: int, module: str = "pcp.planning.measuring.child"
    ) -> None:
        self._child = Child(Start.of(module))
        self._token = ""
        self._child.send(target, str(folder), memory_bytes)

    def ask(self, *words: Any) -> None:
        """Send a request, with a token that its answers bear, so that nothing else is taken for one."""
        self._token = secrets.token_hex(8)
        self._child.send(self._token, *words)

    def answer(self, seconds: float) -> dict[str, Any]:
        """The next line that it says.

        Raises:
            ChildEnded: it died, said something else, or said nothing for too long and was killed.
        """
        try:
            line = self._child.line(seconds)
        except TookTooLong as error:
            raise ChildEnded(Failure.timeout, str(error)) from None
        if line is None:
            death = self._child.death()
            raise ChildEnded(
                Failure.out_of_memory if death.is_out_of_memory else Failure.crash, f"it ended with {death}"
            )
        answer = said_in(line)
        if answer.get("token") == self._token:
            return answer
        self.kill()
        raise ChildEnded(Failure.crash, f"it answered {line.strip()[:80]!r}")

    def kill(self) -> None:
        """End the process, and all that it started and that stayed in its session."""
        self._child.end()
