"""Chat templates of models, rendered in a process of their own, within bounds of time, memory and text."""

import threading
from typing import Any

from pcp.processes.child import ChildProcess, Start, TookTooLong, said_in
from pcp.serving.refusals import TemplateRefused
from pcp.training.data.chat.template import Written

RENDER_SECONDS = 5.0
"""For one conversation; templates of models take about a millisecond."""
START_SECONDS = 30.0
"""Until the process is there and has read its template, on a busy machine."""
MEMORY_BYTES = 1 << 29
LONGEST_TEXT = 1 << 23
"""Bytes of a rendered conversation."""


class Renderer:
    """Text of messages, by one template; from any thread. A process that goes over a bound is killed, and another is started.

    Arguments:
        written: the template.

    Raises:
        TemplateRefused: it is no template.
    """

    def __init__(self, written: Written) -> None:
        self._written = written
        self._lock = threading.Lock()
        self._child: ChildProcess | None = None
        with self._lock:
            self._started()

    def render(self, messages: list[dict[str, Any]], **variables: Any) -> str:
        """The text of messages.

        Arguments:
            variables: of the template, as `tools` and `add_generation_prompt`.

        Raises:
            TemplateRefused: the template refuses them, or takes more than it may.
        """
        with self._lock:
            said = self._asked(self._started(), (messages, variables), RENDER_SECONDS)
        if "text" not in said:
            raise TemplateRefused(str(said.get("refused", "the chat template gave no text")), "messages")
        return str(said["text"])

    def close(self) -> None:
        """End the process."""
        with self._lock:
            self._end()

    def _started(self) -> ChildProcess:
        if self._child is None or self._child.has_ended:
            self._end()
            self._child = ChildProcess(
                Start.of("pcp.serving.rendering_child"), longest_line=8 * LONGEST_TEXT, in_group=False
            )
            first = (
                self._written.source,
                self._written.settings,
                self._written.name,
                LONGEST_TEXT,
                MEMORY_BYTES,
            )
            said = self._asked(self._child, first, START_SECONDS)
            if "refused" in said:
                self._end()
                raise TemplateRefused(str(said["refused"]))
        return self._child

    def _asked(self, child: ChildProcess, words: tuple[Any, ...], seconds: float) -> dict[str, Any]:
        child.send(*words)
        try:
            line = child.line(seconds)
        except TookTooLong:
            self._end()
            raise TemplateRefused(
                f"the chat template {self._written.name} took more than {seconds:g} s for these messages, and was stopped; "
                "send fewer, or serve the model with another: --chat-template FILE"
            ) from None
        if line is None:
            death = child.death()
            self._end()
            raise TemplateRefused(
                f"the chat template {self._written.name} ended its process ({death}); it may take {MEMORY_BYTES >> 20} MiB. "
                "Serve the model with another: --chat-template FILE"
            )
        return said_in(line)

    def _end(self) -> None:
        if self._child is not None:
            self._child.end()
            self._child = None
