"""Facts in a file: a line for each program, below it one for each fact, and how two sets of facts differ."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from tests.replay.facts import Facts

FILE = Path(__file__).with_name("facts.txt")
COMMAND = "python -m tests.replay record"
_INDENT = "  "
_MOST = 40
"""Differences that a message names."""


def written(facts: Mapping[str, Facts]) -> str:
    """The text of a file, programs in alphabetical order."""
    lines = []
    for program in sorted(facts):
        lines.append(program)
        lines += [f"{_INDENT}{name}: {fact}" for name, fact in facts[program].items()]
    return "\n".join([*lines, ""])


def read(text: str) -> dict[str, Facts]:
    """What `written` wrote."""
    found: dict[str, Facts] = {}
    facts: Facts = {}
    for line in text.splitlines():
        if line.startswith(_INDENT):
            name, _, fact = line.removeprefix(_INDENT).partition(": ")
            facts[name] = fact
        elif line:
            facts = found.setdefault(line, {})
    return found


def stored() -> dict[str, Facts]:
    """The facts that the repository holds; none before they are first recorded."""
    return read(FILE.read_text(encoding="utf-8")) if FILE.exists() else {}


def differences(before: Mapping[str, Facts], now: Mapping[str, Facts]) -> list[str]:
    """What is not as it was, one line each."""
    found = [f"{name}: there is no such program any more" for name in before.keys() - now.keys()]
    found += [f"{name}: there was no such program" for name in now.keys() - before.keys()]
    for program in before.keys() & now.keys():
        was, is_now = before[program], now[program]
        for fact in was.keys() | is_now.keys():
            if was.get(fact) != is_now.get(fact):
                found.append(f"{program}: {fact} was {_shown(was.get(fact))}, is {_shown(is_now.get(fact))}")
    return sorted(found)


def _shown(fact: str | None) -> str:
    return "not there" if fact is None else f"{fact:.300}"


def message(changes: Iterable[str]) -> str:
    """What to say where facts differ from those that are stored."""
    lines = list(changes)
    more = [f"... and {len(lines) - _MOST} more"] if len(lines) > _MOST else []
    return "\n".join(
        [
            f"{len(lines)} facts differ from those in tests/replay/{FILE.name}:",
            *lines[:_MOST],
            *more,
            "A digest that differs is that of another program; from the first request that differs a search goes another way.",
            "A commit that only rebuilds changes none of this: then something is broken. If it is meant, record anew, "
            f"so that the diff of the file says what changed, and say why in the commit: {COMMAND}",
        ]
    )
