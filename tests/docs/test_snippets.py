"""Every Python block of the documentation runs, prints what the page says, and every `pcp` command in it parses.

The blocks of a page run in order, in one namespace, in a folder of their own. A `text` block that follows a `python` block
is what that prints; `...` in it stands for anything.
"""

import argparse
import contextlib
import doctest
import importlib
import inspect
import io
import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

import pcp
from pcp.cli import main, shepherd
from pcp.cli.main import COMMANDS
from pcp.training.recipes.config import ALGORITHM_CHOICES, MEANINGS

ROOT = Path(__file__).parent.parent.parent
SEARCHING: Any = inspect.unwrap(pcp.plan)
"""What has a budget of seconds for a search: on a page a short one shows as much as a long one."""
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]
_FENCE = re.compile(r"^```([^\n`]*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, the line it begins at, and what a `text` block right after it says."""

    language: str
    text: str
    line: int
    output: str | None


class WrongOutput(Exception):
    """A page says something else than its code prints."""


def blocks(page: Path) -> Iterator[Block]:
    content = page.read_text(encoding="utf-8")
    found = list(_FENCE.finditer(content))
    for number, match in enumerate(found):
        following = found[number + 1] if number + 1 < len(found) else None
        shown = None
        if (
            following is not None
            and following[1] == "text"
            and not content[match.end() : following.start()].strip()
        ):
            shown = following[2]
        yield Block(match[1], match[2], content.count("\n", 0, match.start()) + 1, shown)


def run(block: Block, page: str, namespace: dict[str, Any]) -> None:
    """Run a block; compare what it prints with what the page says."""
    printed = io.StringIO()
    # Empty lines before it, so that a traceback names the line of the page.
    code = compile("\n" * block.line + block.text, page, "exec")
    with contextlib.redirect_stdout(printed):
        exec(code, namespace)
    if block.output is not None:
        same = doctest.OutputChecker().check_output(block.output, printed.getvalue(), doctest.ELLIPSIS)
        if not same:
            raise WrongOutput(
                f"{page}, line {block.line}, prints\n{printed.getvalue()}\nand the page says\n{block.output}"
            )


def name_of(page: Path) -> str:
    return page.relative_to(ROOT).as_posix()


PAGES_WITH_PYTHON = [page for page in PAGES if any(block.language == "python" for block in blocks(page))]
COMMAND_LINES = [
    pytest.param(line, id=f"{name_of(page)}:{block.line + offset}")
    for page in PAGES
    for block in blocks(page)
    if block.language in ("", "console")
    for offset, line in enumerate(block.text.splitlines(), start=1)
    if line.startswith("pcp ")
]


@pytest.mark.parametrize("page", PAGES_WITH_PYTHON, ids=name_of)
def test_the_python_of_a_page_runs(page: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(SEARCHING.__kwdefaults__, "budget", 1.0)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python":
            run(block, name_of(page), namespace)


@pytest.mark.parametrize("line", COMMAND_LINES)
def test_the_commands_of_a_page_parse(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    _, *words = shlex.split(line, comments=True)
    if words[0] in COMMANDS and "--help" not in words:
        monkeypatch.setattr(importlib.import_module(f"pcp.cli.{words[0]}"), "run", lambda _: 0)
        assert main(words) == 0
    else:
        with pytest.raises(SystemExit, match="0"):
            main(words)


def test_every_page_is_in_the_table_of_contents() -> None:
    reachable: set[Path] = set()
    waiting = [ROOT / "docs" / "index.md"]
    while waiting:
        page = waiting.pop().resolve()
        if page in reachable:
            continue
        reachable.add(page)
        for tree in re.findall(r"^```\{toctree\}\n(.*?)^```$", page.read_text(), re.MULTILINE | re.DOTALL):
            names = [line for line in tree.splitlines() if line and not line.startswith(":")]
            waiting += [page.parent / f"{name}.md" for name in names]
    assert {page.resolve() for page in (ROOT / "docs").rglob("*.md")} == reachable


def test_links_between_pages_lead_somewhere() -> None:
    missing = [
        f"{name_of(page)}: {target}"
        for page in PAGES
        for target in re.findall(
            r"(?<!!)\[[^\]]*\]\(([^)#:\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8")
        )
        if not (page.parent / target).exists()
    ]
    assert missing == []


def anchors_of(page: Path) -> set[str]:
    """What a link may name behind a `#`: the headings, as web pages spell them."""
    text = re.sub(_FENCE, "", page.read_text(encoding="utf-8"))
    plain = [
        re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", line) for line in re.findall(r"^#+ (.*)$", text, re.MULTILINE)
    ]
    return {re.sub(r"[^\w\- ]", "", line.strip().lower()).replace(" ", "-") for line in plain}


def test_links_lead_to_headings_that_are_there() -> None:
    missing = []
    for page in PAGES:
        for target, anchor in re.findall(
            r"\]\(([^)#\s]*\.md|)#([^)\s]+)\)", page.read_text(encoding="utf-8")
        ):
            if anchor not in anchors_of(page.parent / target if target else page):
                missing.append(f"{name_of(page)}: {target}#{anchor}")
    assert missing == []


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("```python\nprint(1 + 1)\n```\n\n```text\n3\n```\n", "prints\n2\n\nand the page says\n3"),
        ("```python\nraise ValueError('here')\n```\n", "here"),
    ],
)
def test_a_wrong_page_is_noticed(tmp_path: Path, text: str, message: str) -> None:
    page = tmp_path / "page.md"
    page.write_text("first\n\n" + text)
    [block] = [block for block in blocks(page) if block.language == "python"]
    assert block.line == 3
    with pytest.raises((WrongOutput, ValueError), match=re.escape(message)):
        run(block, "page.md", {})


def test_the_page_of_errors_names_errors_that_exist() -> None:
    page = (ROOT / "docs" / "reference" / "errors.md").read_text(encoding="utf-8")
    named = {
        name
        for row in re.findall(r"^\|.*\|$", page, re.MULTILINE)
        for name in re.findall(r"`([A-Z]\w+)`", row)
    }
    sources = [path.read_text(encoding="utf-8") for path in (ROOT / "src" / "pcp").rglob("*.py")]
    defined = {name for source in sources for name in re.findall(r"^class (\w+)\(", source, re.MULTILINE)}
    assert len(named) > 20
    assert named - defined == set()


def flags_of_every_command() -> set[str]:
    """Every option that a command takes."""
    found = {"--json", "--help", "--version"}
    for name in COMMANDS:
        parser = argparse.ArgumentParser(allow_abbrev=False)
        importlib.import_module(f"pcp.cli.{name}").add_arguments(parser)
        waiting = [parser]
        while waiting:
            for action in waiting.pop()._actions:
                found.update(action.option_strings)
                if isinstance(action, argparse._SubParsersAction):
                    waiting += action.choices.values()
    return found


OF_OTHERS = {"--exclude", "--xla", "--durations"}
"""Options of rsync, XLA and pytest that pages name."""
SOURCES = [
    path for folder in ("src", "tests", "benchmarks", "examples") for path in (ROOT / folder).rglob("*.py")
]


def test_what_pages_name_exists() -> None:
    """Options, errors, constants and files: a name that was changed or never was is a claim that is not true."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    words, quoted = set(re.findall(r"\w+", text)), set(re.findall(r"\"(--[a-z-]+)\"", text))
    flags = flags_of_every_command() | quoted | OF_OTHERS
    files = [path.relative_to(ROOT).as_posix() for path in ROOT.rglob("*.*") if ".venv" not in path.parts]
    missing = []
    for page in PAGES:
        shown = page.read_text(encoding="utf-8")
        named = [flag for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown) if flag not in flags]
        if page.name != "rejected.md":  # which speaks of what is not here
            named += [name for name in re.findall(r"`([A-Z][a-z]+[A-Z]\w+)`", shown) if name not in words]
            named += [
                name for name in re.findall(r"`([A-Z][A-Z0-9]*_[A-Z0-9_]+)`", shown) if name not in words
            ]
        named += [
            name
            for name in re.findall(r"`((?:[\w.-]+/)+[\w-]+\.(?:py|cc|h|capnp))`", shown)
            if "NAME" not in name and not any(file.endswith(name.removeprefix("../")) for file in files)
        ]
        missing += [f"{name_of(page)}: {name}" for name in named]
    assert missing == []


def test_help_names_only_options_that_exist() -> None:
    flags = flags_of_every_command() | OF_OTHERS
    missing = []
    for name in COMMANDS:
        shown = importlib.import_module(f"pcp.cli.{name}").DESCRIPTION["epilog"]
        missing += [
            f"{name}: {flag}" for flag in re.findall(r"(?<![\w-])--[a-z][a-z-]+", shown) if flag not in flags
        ]
    assert missing == []


def found_by_name(name: str) -> bool:
    """Whether a dotted name is a module, or something in one."""
    *parts, last = name.split(".")
    try:
        found: Any = importlib.import_module(".".join(parts) or last)
        for part in [last] * bool(parts):
            found = getattr(found, part, None) or importlib.import_module(name)
    except ImportError:
        # A member of what is in a module: `pcp.Program.save`.
        return bool(parts) and found_by_name(".".join(parts)) and hasattr(named_by(".".join(parts)), last)
    return True


def named_by(name: str) -> Any:
    """What a dotted name that is found stands for."""
    *parts, last = name.split(".")
    try:
        return importlib.import_module(name)
    except ImportError:
        return getattr(named_by(".".join(parts)), last)


def test_names_of_pcp_exist() -> None:
    """`pcp.xyz` in text and in code: a function, a module, a composite, or an attribute of a program."""
    text = "\n".join(path.read_text(encoding="utf-8") for path in SOURCES)
    missing = []
    for page in PAGES:
        names = re.findall(r"(?<![\w./\"'-])pcp(?:\.[A-Za-z_]\w*)+", page.read_text(encoding="utf-8"))
        for name in sorted(set(names)):
            if f'"{name.removesuffix(".vjp")}"' not in text and not found_by_name(name):
                missing.append(f"{name_of(page)}: {name}")
    assert missing == []


def test_the_reference_lists_what_exists() -> None:
    missing = []
    for page in sorted((ROOT / "docs" / "reference").glob("*.md")):
        listed = re.findall(r"automodule:: (\S+)\n +:members:([^\n]*)", page.read_text(encoding="utf-8"))
        for module, members in listed:
            names = [f"{module}.{name.strip()}" for name in members.split(",") if name.strip()]
            missing += [f"{page.name}: {name}" for name in (module, *names) if not found_by_name(name)]
    assert missing == []


def test_what_pages_tell_to_run_exists() -> None:
    """Targets of make, benchmarks and optional extras."""
    made = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    benchmarks = (ROOT / "benchmarks" / "__main__.py").read_text(encoding="utf-8")
    extras = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    missing = []
    for page in PAGES:
        shown = page.read_text(encoding="utf-8")
        named = [f"make {name}" for name in re.findall(r"`make ([a-z-]+)", shown) if name not in made]
        for name in re.findall(r"python -m benchmarks (?:--json )?([a-z_0-9]+)", shown):
            if f'"{name}":' not in benchmarks:
                named.append(f"python -m benchmarks {name}")
        for name in re.findall(r"planetary-compute-protocol\[([a-z]+)\]|\bextra `([a-z]+)`", shown):
            if not re.search(rf"^{''.join(name)} = \[", extras, re.MULTILINE):
                named.append(f"the extra {''.join(name)}")
        missing += [f"{name_of(page)}: {name}" for name in named]
    assert missing == []


def test_the_page_of_the_command_line_has_every_command() -> None:
    page = (ROOT / "docs" / "concepts" / "command_line.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `pcp ([a-z]+)([^|]*)\|", page, re.MULTILINE)
    assert set(COMMANDS) == {name for name, _ in rows}
    for command in ("kernels", "data"):
        parser = argparse.ArgumentParser()
        importlib.import_module(f"pcp.cli.{command}").add_arguments(parser)
        choices = next(action.choices for action in parser._actions if action.dest == "action")
        shown = " ".join(rest for name, rest in rows if name == command)
        assert choices is not None
        assert [each for each in choices if each not in shown] == []


def test_settings_of_distributed_runs_are_all_named() -> None:
    """`pcp shepherd --help` lists those that mean something only where there are Workers."""
    shown = " ".join(str(shepherd.DESCRIPTION["epilog"]).split())
    found = re.search(r"The settings (workers, .*?) concern distributed runs", shown)
    assert found is not None
    named = set(re.split(r", | and ", found[1]))
    alone = {"algorithm", "shares", "artifacts", "inner_steps", "workers", "audit_rate", "audit_tolerance"}
    assert named == {*ALGORITHM_CHOICES, *alone}
    assert named <= MEANINGS.keys()
