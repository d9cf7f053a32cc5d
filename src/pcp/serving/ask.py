"""What every API asks for in the end, and what it is told: one form, between the adapters and the engine."""

from collections.abc import Callable
from dataclasses import dataclass, field

from pcp.inference.request import Mask
from pcp.inference.sampling import Sampling
from pcp.serving.tool_calls import Call, ToolForm

MOST_CHOICES = 16
"""Answers to one prompt."""
MOST_PROMPTS = 64
"""In one request."""


@dataclass(frozen=True, slots=True)
class Ask:
    """Prompts to answer.

    Arguments:
        prompts: tokens of each; at least one each.
        count: most new tokens of an answer.
        sampling: how they are drawn; answer i has the seed plus i.
        choices: answers to each prompt.
        stop: texts that end an answer.
        logprobs: how many likely tokens are told beside each; None tells no logprobs.
        ignore_end: whether an answer goes on behind end tokens.
        masked: makes what holds one answer to a form; None leaves it free.
        tools: how calls of tools stand in an answer; None looks for none.
    """

    prompts: tuple[tuple[int, ...], ...]
    count: int
    sampling: Sampling
    choices: int = 1
    stop: tuple[str, ...] = ()
    logprobs: int | None = None
    ignore_end: bool = False
    masked: Callable[[], Mask] | None = None
    tools: ToolForm | None = None


@dataclass(frozen=True, slots=True)
class Token:
    """A token that was told, and those that were likely in its place."""

    number: int
    logprob: float
    top: tuple[tuple[int, float], ...]


@dataclass(slots=True)
class Answer:
    """All that was said in one answer so far.

    Arguments:
        text: without calls of tools.
        calls: of tools.
        tokens: with logprobs, if these were asked for.
        count: of new tokens.
        finish: why it ended: `stop`, `length` or `tool_calls`; empty before.
        stopped_by: the stop text that ended it.
    """

    text: str = ""
    calls: list[Call] = field(default_factory=list)
    tokens: list[Token] = field(default_factory=list)
    count: int = 0
    finish: str = ""
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True)
class Told:
    """Some more of an answer: text, tokens, calls, and in the last event of an answer why it ended.

    Arguments:
        choice: which answer: the number of its prompt times the answers to each, plus its own.
        stopped_by: see `Answer`.
    """

    choice: int
    text: str = ""
    tokens: tuple[Token, ...] = ()
    calls: tuple[Call, ...] = ()
    finish: str = ""
    stopped_by: str | None = None


@dataclass(frozen=True, slots=True)
class Usage:
    """Tokens that were read and told."""

    prompt: int
    generated: int
