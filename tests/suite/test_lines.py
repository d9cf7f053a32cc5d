"""The table of lines sees rooms that grew, shrank, came and went, and lets small changes pass."""

from pathlib import Path

import pytest
from tests.suite import lines
from tests.suite.lines import complaints, counted, main, read, written


@pytest.mark.parametrize(
    ("was", "now", "said"),
    [
        (1000, 1020, ""),
        (1000, 980, ""),
        (1000, 1021, "src/pcp/a has 1021 lines, 21 more than were recorded: make room in it, or run `"),
        (1000, 979, "src/pcp/a has 979 lines, 21 fewer than were recorded: run `"),
        (5000, 5050, ""),
        (5000, 5051, "src/pcp/a has 5051 lines, 51 more than were recorded"),
        (3, 24, "src/pcp/a has 24 lines, 21 more than were recorded"),
        (
            None,
            3,
            "src/pcp/a is a new room of 3 lines: run `python -m tests.suite.lines record`, and say in the commit why",
        ),
        (3, None, "src/pcp/a, a room of 3 lines, is no more: run `python -m tests.suite.lines record`"),
    ],
)
def test_what_differs_by_much_is_told(was: int | None, now: int | None, said: str) -> None:
    found = complaints(*({} if each is None else {"pcp/a": each} for each in (was, now)))
    assert len(found) == bool(said)
    assert all(each.startswith(said) for each in found)


def test_who_lets_a_room_grow_is_told_to_say_why() -> None:
    [said] = complaints({"pcp/a": 10}, {"pcp/a": 100})
    assert said.endswith("run `python -m tests.suite.lines record` and say in the commit why it grew")


def test_lines_of_code_count_in_the_folder_in_which_they_lie(tmp_path: Path) -> None:
    code = tmp_path / "src" / "pcp"
    (code / "b" / "c").mkdir(parents=True)
    for name, text in {
        "a.py": "x\n\ny\n",
        "b/a.py": "x",
        "b/c/a.cc": "x\n",
        "b/c/b.h": "x\n",
        "b/data.bin": "x\n",
    }.items():
        (code / name).write_text(text)
    assert counted(code) == {"pcp": 3, "pcp/b": 1, "pcp/b/c": 2}


def test_the_command_prints_what_changed_and_records_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(lines, "FILE", tmp_path / "lines.txt")
    monkeypatch.setattr(lines, "counted", lambda: {"pcp/b": 1200, "pcp/a": 7})
    lines.FILE.write_text("   900 pcp/b\n     7 pcp/a\n")
    assert main([]) == 0
    assert capsys.readouterr().out == "  1200   +300  src/pcp/b\n  1207   +300  in 2 rooms\n"
    assert main(["record"]) == 0
    assert lines.FILE.read_text() == "     7 pcp/a\n  1200 pcp/b\n"
    assert read(written({"pcp/b": 1})) == {"pcp/b": 1}
