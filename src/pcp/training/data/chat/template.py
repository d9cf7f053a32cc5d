"""Templates that make text of messages: those that models bring, in Jinja, and a plain one.

A template of a model is code from elsewhere: it runs in Jinja's sandbox, which gives it values and no objects of this process.
"""

import datetime
import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.training.data.chat.messages import ASSISTANT, Message
from pcp.training.extras import import_extra

PLAIN = "plain"
_FILES = ("chat_template.jinja", "chat_template.json", "tokenizer_config.json")
_PLAIN_SOURCE = (
    "{% for each in messages %}{{ each.role }}:{{ '\\n' }}{{ each.content }}"
    "{% if each.role == 'assistant' %}{{ eos_token or '' }}{% endif %}{{ '\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{ 'assistant:\\n' }}{% endif %}"
)
"""What `plain_template` writes."""


class NoChatTemplate(PCPError):
    """Messages are trained on, and nothing says how text is made of them."""


class ChatTemplateUnreadable(PCPError):
    """A chat template that is none, or that refuses messages."""


@dataclass(frozen=True)
class Piece:
    """Some of a conversation's text, and whether it is an answer."""

    text: str
    is_answer: bool


@dataclass(frozen=True)
class ChatTemplate:
    """How messages become text.

    Arguments:
        render: the text of messages, and, if asked for, what stands before an answer.
    """

    render: Callable[[Sequence[Message], bool], str]

    def pieces(self, messages: Sequence[Message]) -> list[list[Piece]]:
        """The text of a conversation in pieces: one list, whose pieces together are the text.

        An answer reaches from where one is asked for to where its message ends. Some templates write earlier answers otherwise
        when others follow; then each answer becomes a conversation of its own, which ends with it.
        """
        whole = self.render(messages, False)
        pieces: list[Piece] = []
        place = 0
        for number, message in enumerate(messages):
            if message.role != ASSISTANT:
                continue
            before = self.render(messages[:number], True)
            after = self.render(messages[: number + 1], False)
            if not (whole.startswith(after) and after.startswith(before) and len(before) >= place):
                return self._one_by_one(messages)
            pieces += [Piece(whole[place : len(before)], False), Piece(whole[len(before) : len(after)], True)]
            place = len(after)
        return [[*pieces, Piece(whole[place:], False)]]

    def _one_by_one(self, messages: Sequence[Message]) -> list[list[Piece]]:
        pieces = []
        for number, message in enumerate(messages):
            if message.role != ASSISTANT:
                continue
            before = self.render(messages[:number], True)
            after = self.render(messages[: number + 1], False)
            if not after.startswith(before):
                raise ChatTemplateUnreadable(
                    f"the chat template does not begin an answer as it asks for one: {after[-80:]!r} does not go on from "
                    f"{before[-80:]!r}. Give another with --chat-template FILE, or --chat-template {PLAIN}"
                )
            pieces.append([Piece(before, False), Piece(after[len(before) :], True)])
        return pieces


def plain_template(end: str = "") -> ChatTemplate:
    """A line for the role of each message, with a colon, and its text below.

    Arguments:
        end: what stands after an answer, before the line break.
    """

    def render(messages: Sequence[Message], asked: bool) -> str:
        lines = [
            f"{each.role}:\n{each.content}{end if each.role == ASSISTANT else ''}\n" for each in messages
        ]
        return "".join(lines) + (f"{ASSISTANT}:\n" if asked else "")

    return ChatTemplate(render)


def template_in(tokenizer: Path, chosen: str = "") -> ChatTemplate:
    """The chat template that is chosen, or that lies beside a tokenizer.

    Arguments:
        tokenizer: a `tokenizer.json`, or a folder with one.
        chosen: `plain`, a file with a template in Jinja, or empty.

    Raises:
        NoChatTemplate: none is chosen, and none is there.
        ChatTemplateUnreadable: it cannot be read.
        MissingExtra: Jinja is not installed.
    """
    if chosen == PLAIN:
        folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
        return plain_template(_token(_json_in(folder / "tokenizer_config.json"), "eos_token"))
    template = written_in(tokenizer, chosen)
    return jinja_template(template.source, template.settings, template.name)


@dataclass(frozen=True)
class Written:
    """A template as it is written.

    Arguments:
        source: in Jinja.
        settings: of the tokenizer: `bos_token`, `eos_token` and others, which templates write.
        name: where it comes from, for messages.
    """

    source: str
    settings: dict[str, Any]
    name: str


def written_in(tokenizer: Path, chosen: str = "") -> Written:
    """The chat template in Jinja that is chosen, or that lies beside a tokenizer; raises what `template_in` does."""
    folder = tokenizer if tokenizer.is_dir() else tokenizer.parent
    settings = _json_in(folder / "tokenizer_config.json")
    if chosen == PLAIN:
        return Written(_PLAIN_SOURCE, settings, PLAIN)
    if chosen:
        return Written(_text_in(Path(chosen)), settings, chosen)
    for name in _FILES:
        file = folder / name
        if file.suffix == ".jinja" and file.exists():
            return Written(_text_in(file), settings, str(file))
        template = _json_in(file).get("chat_template")
        if isinstance(template, list):  # several by name
            template = next((e["template"] for e in template if e.get("name") == "default"), None)
        if isinstance(template, str):
            return Written(template, settings, str(file))
    raise NoChatTemplate(
        f"messages need one, and {folder} has no chat template (looked for {', '.join(_FILES)}); give --chat-template FILE, "
        f"or --chat-template {PLAIN}, which writes a line `role:` and the text below for each"
    )


def jinja_template(source: str, settings: dict[str, Any], name: str) -> ChatTemplate:
    """A template in Jinja; arguments and errors are those of `Written` and `rendering`."""
    rendered = rendering(source, settings, name)

    def render(messages: Sequence[Message], asked: bool) -> str:
        given = [{"role": each.role, "content": each.content} for each in messages]
        return rendered(messages=given, add_generation_prompt=asked)

    return ChatTemplate(render)


def rendering(source: str, settings: dict[str, Any], name: str) -> Callable[..., str]:
    """What makes text of `messages` and other variables by a template in Jinja, with the functions that templates expect.

    It raises ChatTemplateUnreadable for messages that the template refuses.

    Arguments:
        source, settings, name: see `Written`.

    Raises:
        ChatTemplateUnreadable: it is no such template.
        MissingExtra: Jinja is not installed.
    """
    jinja = import_extra("jinja2", "chat", "A chat template")
    sandbox = import_extra("jinja2.sandbox", "chat", "A chat template")
    environment = sandbox.ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=["jinja2.ext.loopcontrols", _answers_marked(jinja)]
    )

    def refuse(message: str) -> None:
        raise jinja.TemplateError(message)

    environment.globals |= {"raise_exception": refuse, "strftime_now": _now}
    environment.filters["tojson"] = lambda value, **more: json.dumps(
        value,
        ensure_ascii=False,
        **{k: v for k, v in more.items() if k in ("indent", "separators", "sort_keys")},
    )
    tokens = {key: _token(settings, key) for key in settings if key.endswith("_token")}
    try:
        template = environment.from_string(source)
    except jinja.TemplateError as error:
        raise ChatTemplateUnreadable(f"{name} is not a template in Jinja: {error}") from None

    def render(messages: Sequence[dict[str, Any]], **variables: Any) -> str:
        try:
            return str(template.render(messages=messages, **(tokens | variables)))
        except Exception as error:  # whatever a template does
            roles = ", ".join(str(each.get("role")) for each in messages)
            raise ChatTemplateUnreadable(
                f"the chat template {name} refuses messages of the roles {roles}: {type(error).__name__}: {error}"
            ) from None

    return render


def _answers_marked(jinja: Any) -> Any:
    """The tag `generation`, by which some templates mark their answers: what stands in it, as it is."""
    extension = import_extra("jinja2.ext", "chat", "A chat template").Extension
    nodes = import_extra("jinja2.nodes", "chat", "A chat template")
    del jinja

    class Generation(extension):  # type: ignore[misc, valid-type]  # of a package that need not be installed
        tags = frozenset({"generation"})

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body).set_lineno(line)

    return Generation


def _now(form: str) -> str:
    return datetime.datetime.now().strftime(form)


def _token(settings: dict[str, Any], key: str) -> str:
    """A token of a tokenizer's settings, which is text, or an object with text in it."""
    value = settings.get(key)
    return str(value.get("content", "")) if isinstance(value, dict) else str(value or "")


def _json_in(file: Path) -> dict[str, Any]:
    if not file.exists():
        return {}
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError) as error:
        raise ChatTemplateUnreadable(f"{file} is not JSON: {error}") from None
    return content if isinstance(content, dict) else {}


def _text_in(file: Path) -> str:
    try:
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise ChatTemplateUnreadable(
            f"cannot read the chat template {file}: {reason}. Give a file with a template in Jinja, or {PLAIN}"
        ) from None
