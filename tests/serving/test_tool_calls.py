"""Calls of tools in texts that come in pieces: the same however the text is cut, and nothing of what is no call is lost."""

import random

import pytest

from pcp.serving.tool_calls import FORMS, ToolForm, ToolReader, form_of

HERMES, MISTRAL, LLAMA = FORMS
CASES = [
    (HERMES, 'Look: <tool_call>\n{"name": "a", "arguments": {"x": "<"}}\n</tool_call>', "Look: ", [("a", '{"x": "<"}')]),
    (
        HERMES,
        '<tool_call>{"name": "a", "arguments": {}}</tool_call>\n<tool_call>{"name": "b", "arguments": {"y": [1]}}</tool_call>',
        "",
        [("a", "{}"), ("b", '{"y": [1]}')],
    ),
    (HERMES, "a < b <tool", "a < b <tool", []),
    (HERMES, "<tool_call>{not json}</tool_call> so", "<tool_call>{not json}</tool_call> so", []),
    (HERMES, '<tool_call>{"name": "a"', '<tool_call>{"name": "a"', []),
    (HERMES, '<tool_call>{"name": "a", "arguments": 7}</tool_call>', '<tool_call>{"name": "a", "arguments": 7}</tool_call>', []),
    (MISTRAL, '[TOOL_CALLS] [{"name": "a", "arguments": {"x": 1}}, {"name": "b", "arguments": {}}]', "", [("a", '{"x": 1}'), ("b", "{}")]),
    (LLAMA, '{"name": "a", "parameters": {"x": 1}}', "", [("a", '{"x": 1}')]),
    (LLAMA, '<|python_tag|>{"name": "a", "parameters": {"x": 1}}', "", [("a", '{"x": 1}')]),
    (LLAMA, 'It is {"name": "a", "parameters": {}}', 'It is {"name": "a", "parameters": {}}', []),
    (LLAMA, "{1, 2}", "{1, 2}", []),
    (LLAMA, "plain", "plain", []),
]  # fmt: skip


@pytest.mark.parametrize("row", range(len(CASES)))
def test_a_text_in_pieces_has_the_calls_of_the_whole(row: int) -> None:
    form, text, said, calls = CASES[row]
    draw = random.Random(row)
    for _ in range(30):
        cuts = sorted({draw.randrange(len(text) + 1) for _ in range(draw.randrange(len(text)))})
        pieces = [text[begin:end] for begin, end in zip([0, *cuts], [*cuts, len(text)], strict=True)]
        reader, told, found = ToolReader(form), "", []
        for number, piece in enumerate(pieces):
            more, made = reader.read(piece, number == len(pieces) - 1)
            told += more
            found += made
        assert (told.strip() if calls else told, [(call.name, call.arguments) for call in found]) == (
            said.strip() if calls else said,
            calls,
        )
        assert len({call.identity for call in found}) == len(found)


@pytest.mark.parametrize(
    ("template", "form"),
    [
        ("{% if tools %}<tool_call>{% endif %}", HERMES),
        ("{% if tools %}[AVAILABLE_TOOLS][TOOL_CALLS]", MISTRAL),
        ('{{ tools }} {"name": function name, "parameters": dictionary}', LLAMA),
        ("{{ messages }} <tool_call>", None),
        ("{{ tools }} in a way of its own", None),
    ],
)
def test_a_template_tells_its_form(template: str, form: ToolForm | None) -> None:
    assert form_of(template) == form
