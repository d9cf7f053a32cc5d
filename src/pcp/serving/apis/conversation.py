"""What the APIs for conversations share: messages and tools in the one form that templates read, and answers of a form."""

import json
from collections.abc import Callable, Sequence
from typing import Any

from pcp.inference.request import Mask
from pcp.serving.constraint import ANY_OBJECT
from pcp.serving.fields import Fields
from pcp.serving.model import ServedModel
from pcp.serving.refusals import InvalidField, Unsupported
from pcp.serving.tool_calls import ToolForm

Message = dict[str, Any]
Tool = dict[str, Any]

MOST_TOOLS = 128
MOST_MESSAGES = 10_000


def text_in(fields: Fields, name: str, kinds: Sequence[str] = ("text", "input_text", "output_text")) -> str:
    """The text of a message's content: a text, or a list of parts that are texts.

    Raises:
        InvalidField: it is neither.
        Unsupported: a part is a picture, sound or file.
    """
    if not isinstance(fields.content.get(name), list):
        return fields.text(name)
    texts = []
    for part in fields.objects(name):
        kind = part.text("type")
        if kind not in kinds:
            raise Unsupported(
                f"{part.path('type')} is {kind[:40]!r}; models read only text here: {' or '.join(map(repr, kinds))}",
                part.path("type"),
            )
        texts.append(part.text("text"))
    return "".join(texts)


def called(identity: str, name: str, arguments: Any) -> dict[str, Any]:
    """A call of a tool in an earlier answer, as templates read it; arguments that are JSON are handed on as what they say."""
    if isinstance(arguments, str):
        try:
            arguments = json.loads(arguments)
        except (ValueError, RecursionError):
            raise InvalidField(
                f"the arguments of the call {identity!r} are not JSON: {arguments[:60]!r}"
            ) from None
    return {"id": identity, "type": "function", "function": {"name": name, "arguments": arguments}}


def tool(fields: Fields, name: str, description: str, parameters: dict[str, Any]) -> Tool:
    """A tool as templates read it.

    Raises:
        InvalidField: its name is empty or too long.
    """
    if not 0 < len(name) <= 128:
        raise InvalidField(
            f"{fields.path('name')} has {len(name)} characters; expected from 1 to 128", fields.path("name")
        )
    function = {"name": name, "description": description, "parameters": parameters or ANY_OBJECT}
    return {"type": "function", "function": function}


def chosen_tools(
    choice: Any, tools: list[Tool], model: ServedModel
) -> tuple[list[Tool], Callable[[], Mask] | None, ToolForm | None]:
    """The tools that a template is told, what holds an answer to a call where one must come, and how calls are found.

    Arguments:
        choice: `auto`, `none`, `required`, or the name of a tool behind `=`.

    Raises:
        InvalidField: a call is asked for, and there is no such tool.
    """
    if len(tools) > MOST_TOOLS:
        raise InvalidField(f"tools has {len(tools)} tools; expected at most {MOST_TOOLS}", "tools")
    if choice == "none" or not tools:
        if choice not in ("none", "auto"):
            raise InvalidField(
                "tool_choice asks for a call, and there are no tools; give some, or leave it out",
                "tool_choice",
            )
        return [], None, None
    if choice == "auto" or model.tools is None:
        return tools, None, model.tools
    functions = [each["function"] for each in tools]
    wanted = [each for each in functions if choice in ("required", f"={each['name']}")]
    if not wanted:
        names = ", ".join(each["name"] for each in functions)
        raise InvalidField(f"tool_choice names {choice[1:][:60]!r}, and the tools are {names}", "tool_choice")
    return tools, model.constraints.of_call(model.tools, wanted), model.tools


def form_of_answer(form: Fields, model: ServedModel) -> Callable[[], Mask] | None:
    """What holds an answer to a form: `text`, `json_object`, or `json_schema` with its schema here or one level below.

    Raises:
        InvalidField, SchemaRefused: it is another, or cannot be held to.
    """
    kind = form.one_of("type", ("text", "json_object", "json_schema"), "text")
    if kind == "text":
        return None
    if kind == "json_object":
        return model.constraints.of_schema(ANY_OBJECT)
    holder = form.object("json_schema") if form.has("json_schema") else form
    if not holder.has("schema"):
        raise holder.wrong("schema", "a JSON schema")
    return model.constraints.of_schema(holder.object("schema").content)
