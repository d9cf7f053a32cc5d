"""Answers of a form: whatever is drawn among the tokens that are allowed, the text is JSON of the schema."""

import json
import random
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

pytest.importorskip("llguidance", reason="the extra `serve` is not installed")

from pcp.inference.request import Mask
from pcp.serving.constraint import ANY_OBJECT, Constraints
from pcp.serving.refusals import SchemaRefused
from pcp.serving.tool_calls import FORMS, ToolForm, ToolReader
from pcp.training.data.tokenizer import ByteTokenizer

END, VOCABULARY = 0, 300
"""There are more scores than tokens, as in models whose vocabulary is padded."""
SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 6},
        "n": {"type": "integer", "minimum": 0, "maximum": 99},
        "kind": {"enum": ["a", "b"]},
        "inner": {"type": "array", "items": {"type": "boolean"}, "minItems": 1, "maxItems": 2},
    },
    "required": ["name", "n", "kind", "inner"],
    "additionalProperties": False,
}


def made() -> Constraints:
    return Constraints(ByteTokenizer(), VOCABULARY, (END,))


def drawn(mask: Mask, draw: random.Random, most: int = 2000) -> str:
    tokens: list[int] = []
    for _ in range(most):
        allowed = mask(tokens)
        assert allowed.shape == (VOCABULARY,)
        token = draw.choice(np.flatnonzero(allowed).tolist())
        if token == END:
            return bytes(tokens).decode()
        tokens.append(token)
    raise AssertionError("it has no end")


def test_every_text_that_is_drawn_is_of_the_schema() -> None:
    masked = made().of_schema(SCHEMA)
    for seed in range(20):
        found = json.loads(drawn(masked(), random.Random(seed)))
        assert set(found) == set(SCHEMA["required"])
        assert len(found["name"]) <= 6
        assert 0 <= found["n"] <= 99
        assert found["kind"] in ("a", "b")
        assert 1 <= len(found["inner"]) <= 2


def test_a_text_that_is_computed_again_from_an_earlier_place_has_the_same_masks() -> None:
    masked = made().of_schema(SCHEMA)
    one, other = masked(), masked()
    tokens = list(b'{"name": "ab", "n')
    before = [one(tokens[:count]).copy() for count in range(len(tokens))]
    other(tokens)
    again = [other(tokens[:count]).copy() for count in reversed(range(len(tokens)))][::-1]
    assert all((x == y).all() for x, y in zip(before, again, strict=True))
    assert not (before[0] == before[-1]).all()


def test_behind_a_token_that_was_not_allowed_only_the_end_is() -> None:
    mask = made().of_schema(SCHEMA)()
    assert np.flatnonzero(mask(list(b"x"))).tolist() == [END]


@pytest.mark.parametrize("form", FORMS, ids=["hermes", "mistral", "llama"])
def test_a_call_that_must_come_is_found_with_arguments_of_its_schema(form: ToolForm) -> None:
    tools: list[dict[str, Any]] = [{"name": "weather", "parameters": SCHEMA}, {"name": "time"}]
    masked = made().of_call(form, tools[:1])
    text = drawn(masked(), random.Random(1))
    told, [call] = ToolReader(form).read(text, True)
    assert told.strip() == ""
    assert call.name == "weather"
    assert set(json.loads(call.arguments)) == set(SCHEMA["required"])
    made().of_call(form, tools)()


def test_any_object_is_one() -> None:
    mask: Callable[[], Mask] = made().of_schema(ANY_OBJECT)
    assert np.flatnonzero(mask()([])).tolist() == [ord("{")]


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        ({"type": "strange"}, "answers cannot be held to this JSON schema"),
        ({"type": "string", "pattern": "("}, "answers cannot be held to this JSON schema"),
        ({"enum": ["x" * (1 << 18)]}, "the JSON schema has 262,158 bytes; at most 262,144 are read"),
    ],
)
def test_a_schema_that_nothing_can_be_held_to(schema: dict[str, Any], words: str) -> None:
    with pytest.raises(SchemaRefused, match=words):
        made().of_schema(schema)


def test_a_model_without_an_end_has_no_form() -> None:
    with pytest.raises(
        SchemaRefused, match=r"this model has none; put eos_token_id into its generation_config\.json"
    ):
        Constraints(ByteTokenizer(), 256, ()).of_schema(SCHEMA)
