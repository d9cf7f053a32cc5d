"""How a command explains itself: one sentence, an example, its arguments, and what a terminal of any width can show."""

import argparse
import re
import textwrap
from collections.abc import Iterable
from typing import Any

_COLUMN = re.compile(r"^( +\S.*?\S) {2,}(\S.*)$")
_COMMANDS = ("pcp ", "nohup ", "openssl ", "pip ")
_NARROW = 30
"""Columns that what stands beside an example or a name has at least; with fewer it stands below."""


class Formatter(argparse.RawDescriptionHelpFormatter, argparse.ArgumentDefaultsHelpFormatter):
    """Sentences fill the width, examples keep their lines, and every option that has a default shows it."""

    def __init__(self, *arguments: Any, **named: Any) -> None:
        super().__init__(*arguments, **{"max_help_position": 28} | named)

    def add_usage(
        self,
        usage: str | None,
        actions: Iterable[argparse.Action],
        groups: Iterable[Any],
        prefix: str | None = None,
    ) -> None:
        """What must be given; the options follow below."""
        needed = " ".join(filter(None, map(_needed, actions)))
        super().add_usage(usage or f"%(prog)s {needed} [options]".replace("  ", " "), [], groups, prefix)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        return "\n".join(f"{indent}{line}" for line in _filled(text, width - len(indent)))

    def _split_lines(self, text: str, width: int) -> list[str]:
        return _wrapped(" ".join(text.split()), width)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        nothing = action.default is None or action.default is False or action.default in ([], "")
        return action.help if nothing else super()._get_help_string(action)


def with_example(description: dict[str, str], command: str) -> dict[str, Any]:
    """A command's texts, in which its first two examples stand at the top, too."""
    sentence, epilog = description.get("description", ""), description.get("epilog", "")
    examples = epilog.partition("examples:\n")[2].splitlines()
    shown = [_COLUMN.sub(r"\1", line) for line in examples if line.startswith(f"  pcp {command}")][:2]
    return description | {"description": "\n".join([sentence, "", *shown])}


def _needed(action: argparse.Action) -> str:
    if isinstance(action, argparse._SubParsersAction):
        return f"{action.metavar or 'ACTION'} ..."
    if action.option_strings:
        return (
            f"{action.option_strings[-1]} {action.metavar or action.dest.upper()}" if action.required else ""
        )
    name = str(action.metavar or action.dest.upper())
    return f"[{name}]" if action.nargs in ("?", "*") else name


def _filled(text: str, width: int) -> list[str]:
    """The lines of a text: paragraphs filled, what is indented kept as it is where there is room for it."""
    lines: list[str] = []
    paragraph: list[str] = []
    for line in [*text.strip("\n").splitlines(), ""]:
        if line and not line.startswith(" "):
            paragraph.append(line)
            if not line.endswith(":"):
                continue
            line = ""
        lines += _wrapped(" ".join(paragraph), width)
        if line or not paragraph or not paragraph[-1].endswith(":"):
            lines += _kept(line, width)
        paragraph = []
    return lines[:-1] if lines and not lines[-1] else lines


def _kept(line: str, width: int) -> list[str]:
    """An indented line; where it is too long, what stands beside its beginning is wrapped there, or stands below."""
    found, indent = _COLUMN.match(line), len(line) - len(line.lstrip())
    if len(line) <= width or (found is None and line.lstrip().startswith(_COMMANDS)):
        return [line]
    if found is None:
        return _wrapped(line.strip(), width, " " * (indent if width - indent >= _NARROW else 8))
    start = found.start(2)
    if width - start >= _NARROW:
        beside = _wrapped(found[2], width - start)
        return [f"{line[:start]}{beside[0]}", *(" " * start + each for each in beside[1:])]
    return [found[1], *_wrapped(found[2], width, " " * 8)]


def _wrapped(text: str, width: int, indent: str = "") -> list[str]:
    return textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=indent,
        break_on_hyphens=False,
        break_long_words=False,
    )
