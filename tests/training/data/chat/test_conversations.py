"""Conversations: what becomes text, which tokens are answers, and that a loss learns these alone."""

import json
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.execution import exactly

import pcp
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS, gpt2_config
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.chat.conversations import IGNORED, encode_pieces, encoded_conversations, moved
from pcp.training.data.chat.messages import Message, messages_of
from pcp.training.data.chat.template import (
    ChatTemplate,
    ChatTemplateUnreadable,
    NoChatTemplate,
    jinja_template,
    plain_template,
    template_in,
)
from pcp.training.data.kinds.records import RowUnreadable
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.data.samples import TooFewSamples
from pcp.training.data.token_range import TokenOutOfRange
from pcp.training.data.tokenizer import ByteTokenizer, CharacterTokenizer, Tokenizer
from pcp.training.extras import MissingExtra
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.conversation_recipe import ConversationRecipe
from pcp.training.recipes.prepare import configured, prepare
from pcp.training.run_folder import RunFolder

random = np.random.default_rng()
CHATML = (
    "{% for m in messages %}\n{{ '<|im_start|>' + m['role'] + '\\n' + m['content'] + '<|im_end|>' + '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)
LLAMA = (
    "{{ bos_token }}{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate') }}{% endif %}{% if m['role'] == 'user' %}"
    "{{ '[INST] ' + m['content'] | trim + ' [/INST]' }}{% else %}{{ ' ' + m['content'] | trim + eos_token }}"
    "{% endif %}{% endfor %}"
)
MARKED = (
    "{%- for m in messages %}\n  {%- if m.role == 'assistant' %}\n{{- 'A: ' }}{% generation %}{{ m.content + '<e>' }}"
    "{% endgeneration %}{{ '\\n' }}\n  {%- else %}\n{{- m.role + ': ' + m.content + '\\n' }}\n  {%- endif %}\n{%- endfor %}"
    "{%- if add_generation_prompt %}{{- 'A: ' }}{% endif %}"
)
THINKING = CHATML.replace(
    "m['content']", "(m['content'] if loop.last else m['content'].split('</think>') | last)", 1
)
SETTINGS = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "unk_token": None}
TEMPLATES = {"chatml": CHATML, "llama": LLAMA, "marked": MARKED, "thinking": THINKING}


def words() -> str:
    return "".join(random.choice([*'aéß".{ <'], 9)) + "x"


def conversation(turns: int = 2) -> list[Message]:
    roles = ["user", "assistant"] * turns
    return [Message(role, words()) for role in roles]


def record(messages: list[Message]) -> dict[str, Any]:
    return {"messages": [{"role": each.role, "content": each.content} for each in messages]}


@pytest.mark.parametrize("name", [*TEMPLATES, "plain"])
def test_the_pieces_are_the_text_and_the_answers_are_the_assistants(name: str) -> None:
    pytest.importorskip("jinja2")
    template = plain_template("</s>") if name == "plain" else jinja_template(TEMPLATES[name], SETTINGS, name)
    messages = conversation()
    [pieces] = template.pieces(messages)
    assert "".join(piece.text for piece in pieces) == template.render(messages, False)
    answers = [piece.text for piece in pieces if piece.is_answer]
    asked = [message.content.strip() for message in messages if message.role == "assistant"]
    assert [
        answer.strip().removesuffix("</s>").removesuffix("<|im_end|>").removesuffix("<e>")
        for answer in answers
    ] == asked


def test_answers_that_a_template_writes_otherwise_when_others_follow_stand_alone() -> None:
    pytest.importorskip("jinja2")
    template = jinja_template(THINKING, SETTINGS, "it")
    messages = [Message("user", "a"), Message("assistant", "<think>b</think>c")] * 2
    first, second = template.pieces(messages)
    assert [piece.text for piece in first if piece.is_answer] == ["<think>b</think>c<|im_end|>\n"]
    assert [piece.text for piece in second if piece.is_answer] == ["<think>b</think>c<|im_end|>\n"]
    assert "assistant\nc<|im_end|>" in second[0].text
    torn = ChatTemplate(lambda messages, asked: f"{len(messages)}{asked}")
    with pytest.raises(ChatTemplateUnreadable, match="does not begin an answer as it asks for one"):
        torn.pieces(messages)


@pytest.mark.parametrize("name", TEMPLATES)
def test_templates_write_what_transformers_writes(name: str) -> None:
    chat = pytest.importorskip("transformers.utils.chat_template_utils")
    messages = conversation()
    given = record(messages)["messages"]
    for asked in (False, True):
        shown = messages[:-1] if asked else messages
        expected, _ = chat.render_jinja_template(
            conversations=[given[: len(shown)]],
            chat_template=TEMPLATES[name],
            add_generation_prompt=asked,
            bos_token="<s>",
            eos_token="</s>",
        )
        assert jinja_template(TEMPLATES[name], SETTINGS, name).render(shown, asked) == expected[0]


def byte_pairs(text: str) -> BytePairTokenizer:
    pytest.importorskip("tokenizers")
    return BytePairTokenizer.train(text, 270)


@pytest.mark.parametrize("kind", ["characters", "bytes", "byte pairs"])
def test_labels_are_the_tokens_of_answers(kind: str) -> None:
    template, messages = plain_template(), conversation(3)
    text = template.render(messages, False)
    makers: dict[str, Any] = {
        "characters": lambda: CharacterTokenizer.of_text(text),
        "bytes": ByteTokenizer,
        "byte pairs": lambda: byte_pairs(text),
    }
    tokenizer: Tokenizer = makers[kind]()
    tokens, labels = encoded_conversations([("it", record(messages))], "", template, tokenizer, 400)
    [row], [learnt] = tokens, labels
    size = tokenizer.encode(text).size
    assert tokenizer.decode(row[:size].tolist()) == text
    np.testing.assert_array_equal(learnt[size:], IGNORED)
    np.testing.assert_array_equal(learnt[learnt >= 0], row[learnt >= 0])
    answers = "".join(f"{each.content}\n" for each in messages if each.role == "assistant")
    assert tokenizer.decode(learnt[learnt >= 0].tolist()) == answers
    again, targets = moved(tokens, labels)
    np.testing.assert_array_equal(again, tokens)
    np.testing.assert_array_equal(targets[:, :-1], labels[:, 1:])
    np.testing.assert_array_equal(targets[:, -1], IGNORED)


def test_a_token_that_reaches_from_the_question_into_the_answer_is_learnt() -> None:
    template = ChatTemplate(
        lambda messages, asked: "".join(f"{m.role}: {m.content}\n" for m in messages) + "assistant: " * asked
    )
    messages = [Message("user", "one two"), Message("assistant", "two one")]
    tokenizer = byte_pairs(template.render(messages * 9, False))
    [tokens], [labels] = encoded_conversations([("it", record(messages))], "", template, tokenizer, 99)
    assert tokenizer.decode(labels[labels >= 0].tolist()) == " two one\n"
    assert " two" in [tokenizer.decode([token]) for token in tokens]


def test_a_text_without_characters_has_no_tokens() -> None:
    tokens, answers = encode_pieces([], ByteTokenizer())
    assert (tokens.size, answers.size) == (0, 0)


def test_long_conversations_are_cut_and_those_without_an_answer_left_out(
    caplog: pytest.LogCaptureFixture,
) -> None:
    short = [Message("user", "a"), Message("assistant", "b")]
    long = [Message("user", "a" * 50), Message("assistant", "b")]
    records = [("one", record(short)), ("two", record(long)), ("three", record(short * 5))]
    tokens, labels = encoded_conversations(records, "", plain_template(), ByteTokenizer(), 30)
    assert tokens.shape == labels.shape == (2, 30)
    assert "2 of 3 conversations are longer than 30 tokens, and cut there; 1 have no answer" in caplog.text
    alone = ChatTemplate(lambda messages, _: "".join(each.content for each in messages))
    with pytest.raises(TooFewSamples, match="no conversation has an answer"):  # nothing stands before it
        encoded_conversations([("it", record([Message("assistant", "b")]))], "", alone, ByteTokenizer(), 30)
    with pytest.raises(TooFewSamples, match="no conversation has an answer within 20 tokens"):
        encoded_conversations([("two", record(long))], "", plain_template(), ByteTokenizer(), 20)


def test_names_that_others_use() -> None:
    shared = {"conversations": [{"from": "human", "value": "a"}, {"from": "gpt", "value": "b"}]}
    expected = [Message("user", "a"), Message("assistant", "b")]
    assert messages_of(shared, "", "it") == expected
    assert messages_of({"chat": shared["conversations"]}, "chat", "it") == expected


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"text": "a"}, "x, line 3, has no messages in messages or conversations; it has text"),
        ({"messages": []}, "has no messages in"),
        (
            {"messages": [{"role": "user"}]},
            "a message without a role or without text, the 1. of its field 'messages'",
        ),
        (
            {"messages": [{"role": "user", "content": "a"}]},
            "no message of the role 'assistant', whose answers are learnt; its roles are user",
        ),
    ],
)
def test_records_that_are_no_conversations(wrong: dict[str, Any], message: str) -> None:
    with pytest.raises(RowUnreadable, match=re.escape(message)):
        messages_of(wrong, "", "x, line 3,")


def test_where_templates_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("jinja2")
    messages = conversation(1)
    (tmp_path / "tokenizer.json").write_text("{}")
    settings = tmp_path / "tokenizer_config.json"
    expected = {
        name: jinja_template(TEMPLATES[name], SETTINGS, name).render(messages, False) for name in TEMPLATES
    }
    with pytest.raises(NoChatTemplate, match=r"has no chat template .*give --chat-template FILE, or"):
        template_in(tmp_path / "tokenizer.json")
    settings.write_text(json.dumps({**SETTINGS, "chat_template": LLAMA}))
    assert template_in(tmp_path).render(messages, False) == expected["llama"]
    named = [{"name": "tools", "template": "x"}, {"name": "default", "template": CHATML}]
    settings.write_text(json.dumps({**SETTINGS, "chat_template": named}))
    assert template_in(tmp_path / "tokenizer.json").render(messages, False) == expected["chatml"]
    (tmp_path / "chat_template.jinja").write_text(MARKED)
    assert template_in(tmp_path).render(messages, False) == expected["marked"]
    (tmp_path / "own.txt").write_text(LLAMA)
    assert template_in(tmp_path, str(tmp_path / "own.txt")).render(messages, False) == expected["llama"]
    assert template_in(tmp_path, "plain").render(messages, False).endswith("</s>\n")
    for text, message in (
        ("{% if", "not a template in Jinja"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ messages.append(1) }}", "SecurityError"),
    ):
        (tmp_path / "own.txt").write_text(text)
        with pytest.raises(ChatTemplateUnreadable, match=message):
            template_in(tmp_path, str(tmp_path / "own.txt")).render(messages, False)
    with pytest.raises(
        ChatTemplateUnreadable, match=r"refuses messages of the roles assistant: .*must alternate"
    ):
        jinja_template(LLAMA, SETTINGS, "it").render(messages[1:], False)
    with pytest.raises(ChatTemplateUnreadable, match=r"cannot read the chat template .*none: No such file"):
        template_in(tmp_path, str(tmp_path / "none"))
    monkeypatch.setitem(__import__("sys").modules, "jinja2", None)
    with pytest.raises(MissingExtra, match=r"planetary-compute-protocol\[chat\]"):
        template_in(tmp_path)


def chats(tmp_path: Path, count: int = 40) -> Path:
    path = tmp_path / "chats.jsonl"
    path.write_text("".join(json.dumps(record(conversation(1))) + "\n" for _ in range(count)))
    return path


TINY = gpt2_config(layers=1, heads=2, width=8, context=64, vocabulary=99, bias=False)


def test_a_model_by_name_learns_the_answers_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGURATIONS, "gpt2-tiny", TINY)
    config = TrainingConfig(model="gpt2-tiny", data=str(chats(tmp_path)), batch=3, steps=4)
    folder = RunFolder.create(tmp_path / "run", config)
    recipe = prepare(folder)
    assert isinstance(recipe, ConversationRecipe)
    tokens, targets = recipe.batches.batch(5)
    loss = float(exactly(recipe.loss, recipe.parameters, tokens, targets))
    ids = pcp.spec(tokens.shape, "i32")
    scores = exactly(
        pcp.trace(lambda p, t: decoder.logits(p, t, recipe.model), recipe.parameters, ids),
        recipe.parameters,
        tokens,
    )
    shifted = scores - scores.max(-1, keepdims=True)
    logs = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    rows, places = np.nonzero(targets >= 0)
    np.testing.assert_allclose(loss, -logs[rows, places, targets[rows, places]].mean(), rtol=1e-9)
    text = folder.tokenizer().decode(tokens[0].tolist())
    assert text.startswith("user:\n")
    (tmp_path / "chats.jsonl").unlink()
    again = prepare(folder)  # a run that goes on needs its data no more
    np.testing.assert_array_equal(again.batches.batch(5)[1], targets)


def save(path: Path, arrays: dict[str, np.ndarray]) -> None:
    with path.open("wb") as file:
        write_arrays(file, arrays)


def test_files_that_say_validation_are_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(CONFIGURATIONS, "gpt2-tiny", TINY)
    chats(tmp_path, 7).rename(tmp_path / "train.jsonl")
    chats(tmp_path, 5).rename(tmp_path / "val.jsonl")
    config = TrainingConfig(model="gpt2-tiny", data=f"{tmp_path}/*.jsonl", batch=3, steps=4)
    data = prepare(RunFolder.create(tmp_path / "run", config)).data
    assert (data.training.count, data.validation.count) == (7, 5)
    with pytest.raises(TooFewSamples, match="there are 5 samples for validation, and a batch takes 6"):
        prepare(RunFolder.create(tmp_path / "again", config.replaced(batch=6)))


def cross_entropy(leaves_out: bool, moves: bool) -> Any:
    def loss(table: Any, tokens: Any, labels: Any) -> Any:
        scores = pcp.nn.embedding(tokens, table["w"]) @ table["out"]
        if moves:
            scores, labels = scores[:, :-1], labels[:, 1:]
        weights = (labels >= 0).astype("f32") if leaves_out else None
        return pcp.nn.cross_entropy(scores, pcp.maximum(labels, 0), weights)

    return loss


@pytest.mark.parametrize("moves", [False, True])
def test_a_loss_from_a_file_gets_labels_as_it_takes_them(tmp_path: Path, moves: bool) -> None:
    weights = {
        "w": random.normal(size=(256, 4)).astype("f4"),
        "out": random.normal(size=(4, 256)).astype("f4"),
    }
    save(tmp_path / "w.safetensors", weights)
    ids = pcp.spec((3, 40), "i32")

    def prepared(leaves_out: bool) -> Any:
        pcp.trace(cross_entropy(leaves_out, moves), weights, ids, ids).save(tmp_path / "loss.pcp")
        settings = configured(
            {
                "model": str(tmp_path / "loss.pcp"),
                "weights": str(tmp_path / "w.safetensors"),
                "data": str(chats(tmp_path)),
                "tokenizer": "bytes",
            }
        )
        return prepare(RunFolder.create(tmp_path / f"run{leaves_out}", settings))

    tokens, labels = prepared(True).batches.batch(0)
    if not moves:
        labels = np.concatenate([np.full((3, 1), IGNORED), labels[:, :-1]], axis=1)
    learnt = labels[0] >= 0
    np.testing.assert_array_equal(labels[0][learnt], tokens[0][learnt])
    text = bytes(tokens[0].tolist()).rstrip(b"\0")
    assert bytes(labels[0][learnt].tolist()) == text.partition(b"assistant:\n")[2]
    with pytest.raises(
        InvalidTrainingConfig, match=r"the other labels are -100, which .* does not leave out"
    ):
        prepared(False)


def test_a_tokenizer_of_more_tokens_than_the_loss_embeds(tmp_path: Path) -> None:
    weights = {"w": np.ones((200, 4), "f4"), "out": np.ones((4, 200), "f4")}
    save(tmp_path / "w.safetensors", weights)
    ids = pcp.spec((3, 40), "i32")
    pcp.trace(cross_entropy(True, False), weights, ids, ids).save(tmp_path / "loss.pcp")
    files = {"model": str(tmp_path / "loss.pcp"), "weights": str(tmp_path / "w.safetensors")}
    settings = configured({**files, "data": str(chats(tmp_path)), "tokenizer": "bytes"})
    with pytest.raises(TokenOutOfRange, match=r"'bytes' has 256 tokens, but .* embeds 200; choose another"):
        prepare(RunFolder.create(tmp_path / "run", settings))


def test_messages_for_a_loss_of_numbers(tmp_path: Path) -> None:
    weights = {"w": np.ones(3, "f4")}
    save(tmp_path / "w.safetensors", weights)
    pcp.trace(lambda p, x: (x * p["w"]).mean(), weights, pcp.spec((3, 3), "f32")).save(tmp_path / "loss.pcp")
    settings = {
        "model": str(tmp_path / "loss.pcp"),
        "weights": str(tmp_path / "w.safetensors"),
        "data": str(chats(tmp_path)),
    }
    with pytest.raises(
        InvalidTrainingConfig, match=r"messages, but the batch of .* is not tokens and labels"
    ):
        prepare(RunFolder.create(tmp_path / "run", configured(settings)))
