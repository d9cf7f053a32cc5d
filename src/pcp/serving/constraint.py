"""Answers of a form: which tokens may come next, so that an answer is JSON of a schema, by the package llguidance."""

import json
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.inference.request import Mask
from pcp.serving.refusals import SchemaRefused
from pcp.serving.tool_calls import ToolForm
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import Tokenizer
from pcp.training.extras import import_extra

LARGEST_SCHEMA = 1 << 18
"""Bytes of a schema."""
ANY_OBJECT: dict[str, Any] = {"type": "object"}
_SPACES = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""As `json.dumps` and most templates write; where any may stand, some models write spaces without end."""


class Constraints:
    """Makes masks for a tokenizer; what the package needs of it is made when the first is asked for.

    Arguments:
        tokenizer: whose tokens the masks are of.
        vocabulary: how many scores the model gives, at least the tokens of the tokenizer.
        ends: tokens that end an answer, which are allowed where an answer is complete.
    """

    def __init__(self, tokenizer: Tokenizer, vocabulary: int, ends: Sequence[int]) -> None:
        self._tokenizer, self._vocabulary, self._ends = tokenizer, vocabulary, list(ends)
        self._made: Any = None

    def of_schema(self, schema: dict[str, Any]) -> Callable[[], Mask]:
        """Masks of answers that are JSON of a schema; `ANY_OBJECT` of any object.

        Raises:
            SchemaRefused: the schema is too large, or says what answers cannot be held to.
            MissingExtra: llguidance is not installed.
        """
        package, tokens = self._package(), self._tokens()
        text = json.dumps(schema)
        if len(text) > LARGEST_SCHEMA:
            raise SchemaRefused(
                f"the JSON schema has {len(text):,} bytes; at most {LARGEST_SCHEMA:,} are read"
            )
        try:
            grammar = package.LLMatcher.grammar_from_json_schema(text, overrides=_SPACES)
        except ValueError as error:
            raise SchemaRefused(f"answers cannot be held to this JSON schema: {error}") from None
        return self._of_grammar(grammar, tokens)

    def of_call(self, form: ToolForm, tools: Sequence[dict[str, Any]]) -> Callable[[], Mask]:
        """Masks of answers that are one call of one of these tools, with arguments of its schema.

        Arguments:
            tools: `{"name": ..., "parameters": schema}`, in the form that templates take.

        Raises:
            SchemaRefused, MissingExtra: see `of_schema`.
        """
        calls = [
            {
                "type": "object",
                "properties": {
                    "name": {"const": tool["name"]},
                    form.arguments: tool.get("parameters") or ANY_OBJECT,
                },
                "required": ["name", form.arguments],
                "additionalProperties": False,
            }
            for tool in tools
        ]
        schema: dict[str, Any] = {"anyOf": calls} if len(calls) > 1 else calls[0]
        if form.only_first:
            return self.of_schema(schema)
        if not form.end:
            schema = {"type": "array", "items": schema, "minItems": 1, "maxItems": 1}
        begin, end = (f" {self._literal(each)} " if each else " " for each in (form.begin, form.end))
        grammar = f"start:{begin}call{end}\ncall: %json {json.dumps(schema | {'x-guidance': _SPACES})}\n"
        return self._of_grammar(self._package().LLMatcher.grammar_from_lark(grammar), self._tokens())

    def _of_grammar(self, grammar: str, tokens: Any) -> Callable[[], Mask]:
        package = self._package()
        refused = package.LLMatcher.validate_grammar(grammar, tokens)
        if refused and not refused.startswith("WARNING"):
            raise SchemaRefused(f"answers cannot be held to this JSON schema: {refused.strip()[:400]}")
        return lambda: _Followed(package.LLMatcher(tokens, grammar), self._vocabulary, self._ends)

    def _literal(self, text: str) -> str:
        """A mark in the package's grammars: one token of its own where the tokenizer has one, text elsewhere."""
        found = self._tokenizer.encode(text)
        special = len(found) == 1 and self._tokens().is_special_token(int(found[0]))
        return f"<[{int(found[0])}]>" if special else json.dumps(text)

    def _package(self) -> Any:
        return import_extra("llguidance", "serve", "An answer of a given form")

    def _tokens(self) -> Any:
        if self._made is None:
            if not self._ends:
                raise SchemaRefused(
                    "answers of a given form need a token that ends them, and this model has none; put eos_token_id into its "
                    "generation_config.json"
                )
            package = self._package()
            if isinstance(self._tokenizer, BytePairTokenizer):
                whole = self._tokenizer.definition()
                self._made = package.LLTokenizer(whole, n_vocab=self._vocabulary, eos_token=self._ends)
            else:
                wrapped = package.TokenizerWrapper(_Spelled(self._tokenizer, self._ends[0]))
                self._made = package.LLTokenizer(wrapped, n_vocab=self._vocabulary, eos_token=self._ends)
        return self._made


class _Spelled:
    """A tokenizer as the package takes one that it does not know: the bytes of every token."""

    bos_token_id = None

    def __init__(self, tokenizer: Tokenizer, end: int) -> None:
        self._tokenizer, self.eos_token_id = tokenizer, end
        self.tokens = [_bytes_of(tokenizer, token) for token in range(tokenizer.vocabulary_size)]
        self.special_token_ids = [end]

    def __call__(self, text: str | bytes) -> list[int]:
        whole = text.decode("utf-8", "replace") if isinstance(text, bytes) else text
        return [int(token) for token in self._tokenizer.encode(whole)]


def _bytes_of(tokenizer: Tokenizer, token: int) -> bytes:
    return bytes([token]) if tokenizer.vocabulary_size == 256 else tokenizer.decode([token]).encode()


class _Followed:
    """The mask of one answer, which follows its tokens; it raises nothing, for it runs between the steps of all answers."""

    def __init__(self, matcher: Any, vocabulary: int, ends: Sequence[int]) -> None:
        self._matcher, self._vocabulary = matcher, vocabulary
        self._only_ends = np.zeros(vocabulary, np.bool_)
        self._only_ends[[each for each in ends if each < vocabulary]] = True
        self._taken: list[int] = []

    def __call__(self, tokens: Sequence[int]) -> np.ndarray[Any, np.dtype[np.bool_]]:
        new = list(tokens)
        if self._taken != new[: len(self._taken)]:  # the answer was computed again from an earlier place
            self._matcher.reset()
            self._taken = []
        self._matcher.consume_tokens(new[len(self._taken) :])
        self._taken = new
        if self._matcher.is_error() or self._matcher.is_stopped():
            return self._only_ends
        bits = np.frombuffer(self._matcher.compute_bitmask(), np.uint8)
        known = np.unpackbits(bits, bitorder="little")[: self._vocabulary]
        allowed = np.zeros(
            self._vocabulary, np.bool_
        )  # scores beyond the tokenizer's tokens stand for nothing
        allowed[: known.size] = known
        return allowed if allowed.any() else self._only_ends
