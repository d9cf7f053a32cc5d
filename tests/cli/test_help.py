"""What commands explain of themselves, as a terminal of 80 columns shows it, and one name for one thing in all of them."""

import importlib
import re

import pytest

from pcp.cli import main
from pcp.cli.main import COMMANDS
from pcp.cli.words.parsing import Parser
from pcp.cli.words.sections import SECTIONS, option_of
from pcp.training.recipes.config import MEANINGS

GONE = {"-o", "--output", "--outputs", "--save-path", "--budget", "--plan-seconds"}
"""What is `--out` and `--seconds` in every command."""


def shown(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit, match="0"):
        main([*words, "--help"])
    return capsys.readouterr().out


def parser_of(command: str) -> Parser:
    parser = Parser(prog=command)
    importlib.import_module(f"pcp.cli.{command}").add_arguments(parser)
    return parser


@pytest.fixture(autouse=True)
def eighty_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")


def test_every_command_begins_with_a_sentence_and_examples(capsys: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        usage, description, examples, *_ = shown(capsys, command).split("\n\n")
        assert re.match(rf"usage: pcp {command} .*\[options\]$", usage), usage
        assert re.match(r"[A-Z][^.]*\.", description), description
        assert re.match(rf"  pcp {command}\b", examples), examples
        assert examples.count("\n") <= 1


def test_nothing_is_wider_than_the_terminal_but_commands(capsys: pytest.CaptureFixture[str]) -> None:
    wide = [
        line
        for command in ("", *COMMANDS)
        for line in shown(capsys, *filter(None, [command])).splitlines()
        if len(line) > 80 and not line.startswith(("  pcp ", "  nohup ", "  openssl "))
    ]
    assert wide == []


def test_what_stands_beside_an_example_is_kept_beside_it_or_below(capsys: pytest.CaptureFixture[str]) -> None:
    text = shown(capsys, "plan")
    assert "  pcp plan step.pcp --tolerance 1e-2 --out fast.json\n        save the chosen path\n" in text
    assert "  pcp train --resume runs/gpt2-nano            continue after an interruption\n" in shown(
        capsys, "train"
    )


def test_every_setting_stands_in_one_section(capsys: pytest.CaptureFixture[str]) -> None:
    placed = [name for names in SECTIONS.values() for name in names]
    assert len(placed) == len(set(placed))
    assert set(MEANINGS) <= set(placed)
    text = shown(capsys, "train")
    order = [text.index(f"\n{title}:\n") for title in SECTIONS]
    assert order == sorted(order)
    for name in MEANINGS:
        assert f"\n  {option_of(name)} " in text, name


def test_one_thing_has_one_name() -> None:
    for command in COMMANDS:
        for action in parser_of(command)._actions:
            assert not GONE.intersection(action.option_strings), (command, action.option_strings)
            assert action.metavar != "MODULE", command
            if "--memory" in action.option_strings or "--disk" in action.option_strings:
                assert str(action.metavar).endswith("GiB"), command
            assert "ls" not in (action.choices or ()), command
