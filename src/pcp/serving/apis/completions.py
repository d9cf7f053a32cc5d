"""`/v1/completions`: texts or tokens go on."""

from collections.abc import Iterable, Sequence
from typing import Any

from pcp.serving.apis.adapter import (
    LARGEST_COUNT,
    MOST_STOPS,
    Completing,
    sampling_of,
    text_of,
    top_of,
)
from pcp.serving.ask import MOST_CHOICES, MOST_PROMPTS, Answer, Ask, Token, Told, Usage
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import Unsupported

_REFUSED = {
    "suffix": "the models that are served write from left to right only",
    "best_of": "ask for `n` answers and choose among them",
    "min_tokens": "an answer ends where the model ends it; ignore_eos goes on to max_tokens",
}


class Completions(Completing):
    """A request for completions; see `Adapter`."""

    def __init__(self, fields: Fields, model: ServedModel) -> None:
        super().__init__(fields, model, _REFUSED, "cmpl-", ("text_completion", "text_completion"))
        prompts = _prompts(fields, model)
        asked = fields.whole("max_tokens", 16, 0, LARGEST_COUNT)
        counts = [model.count_for(prompt, None, "max_tokens") for prompt in prompts]
        if fields.has("max_tokens"):
            counts = [model.count_for(prompt, asked, "max_tokens") for prompt in prompts]
        self._top = fields.whole("logprobs", None, 0, 20)
        self._echo = fields.flag("echo")
        if self._echo and self._top is not None:
            raise Unsupported("echo with logprobs is not supported: tokens of prompts have none here", "echo")
        self._prompts = [model.tokenizer.decode(prompt) if self._echo else "" for prompt in prompts]
        self._told = [False] * len(prompts) * MOST_CHOICES
        self._offsets = [0] * len(prompts) * MOST_CHOICES
        self.ask = Ask(
            tuple(prompts),
            min(*counts, int(asked or 0)) if len(counts) > 1 else min(counts[0], int(asked or 0)),
            sampling_of(fields, model),
            int(fields.whole("n", 1, 1, MOST_CHOICES) or 1),
            fields.texts("stop", MOST_STOPS),
            self._top,
            fields.flag("ignore_eos"),
        )

    def opening(self) -> Iterable[bytes]:
        """See `Adapter`."""
        return ()

    def frames(self, told: Told) -> Iterable[bytes]:
        """See `Adapter`."""
        text = told.text
        if not self._told[told.choice]:
            self._told[told.choice] = True
            text = self._prompts[told.choice // self.ask.choices] + text
        yield self._chunk([self._choice(told.choice, text, told.tokens, told.finish or None)])

    def whole(self, answers: Sequence[Answer], usage: Usage) -> dict[str, Any]:
        """See `Adapter`."""
        choices = [
            self._choice(
                number, self._prompts[number // self.ask.choices] + each.text, each.tokens, each.finish
            )
            for number, each in enumerate(answers)
        ]
        return self._whole(choices, usage)

    def _choice(self, number: int, text: str, tokens: Sequence[Token], finish: str | None) -> dict[str, Any]:
        logprobs = None if self._top is None else self._logprobs(number, tokens)
        return {"index": number, "text": text, "logprobs": logprobs, "finish_reason": finish}

    def _logprobs(self, number: int, tokens: Sequence[Token]) -> dict[str, Any]:
        texts = [text_of(self._model, each.number) for each in tokens]
        offsets = []
        for text in texts:
            offsets.append(self._offsets[number])
            self._offsets[number] += len(text)
        return {
            "tokens": texts,
            "token_logprobs": [each.logprob for each in tokens],
            "top_logprobs": [dict(top_of(self._model, each.top, self._top or 0)) for each in tokens],
            "text_offset": offsets,
        }


def _prompts(fields: Fields, model: ServedModel) -> list[tuple[int, ...]]:
    """A text, texts, tokens, or lists of tokens."""
    given = fields.content.get("prompt")
    several = given if isinstance(given, list) and not _are_tokens(given, model) else [given]
    expected = (
        f"a text, a list of up to {MOST_PROMPTS} of them, or lists of whole numbers from 0, below {model.vocabulary}, "
        "the tokens; none of them empty"
    )
    if not 0 < len(several) <= MOST_PROMPTS:
        raise fields.wrong("prompt", expected)
    found = []
    for each in several:
        if isinstance(each, str):
            tokens = model.tokens_of(each, "prompt")
        elif isinstance(each, list) and _are_tokens(each, model):
            tokens = tuple(each)
        else:
            raise fields.wrong("prompt", expected, each if each is None else given)
        if not tokens:
            raise fields.wrong("prompt", expected)
        found.append(tokens)
    return found


def _are_tokens(value: Any, model: ServedModel) -> bool:
    return (
        isinstance(value, list)
        and bool(value)
        and all(type(each) is int and 0 <= each < model.vocabulary for each in value)
    )
