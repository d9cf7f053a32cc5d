"""`pcp profile` shows the database, carries it to another, cleans it and draws it."""

import json
import math
import time
from pathlib import Path
from typing import Any

import pytest

import pcp
from pcp.backends import Target
from pcp.cli import main
from pcp.planning.measuring.hardware import Hardware, hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.paths.kinds import KERNEL
from pcp.planning.paths.kinds.kernels import Choice
from pcp.planning.paths.path import Path as PlannedPath
from pcp.planning.profile.database import ProfileDatabase

PROGRAM = pcp.trace(lambda a, b: a @ b, pcp.spec((3, 4), "f32"), pcp.spec((4, 2), "f32"))
PATH = PlannedPath(PROGRAM.digest, (KERNEL.move(Choice("product.xla:bf16", 1), "c" * 64),))
ELSEWHERE = Hardware("Xeon, 8 cores", "flags: amx")


@pytest.fixture
def file(tmp_path: Path) -> Path:
    here = hardware_of(Target.of())
    database = ProfileDatabase(tmp_path / "profile.sqlite")

    def add(path: str, ratio: float, error: float, **more: Any) -> None:
        given: dict[str, Any] = {
            "subject": PROGRAM.digest, "path": path, "hardware": here.digest, "versions": versions(),
            "seconds": (ratio * 1e-3,) * 3, "plain_seconds": (1e-3,) * 3, "error": error, "plain_error": 1e-7,
            "peak_bytes": 3 << 20, "when": time.time(),
        }  # fmt: skip
        database.add(
            Measurement(**given | more),
            hardware=ELSEWHERE if more.get("hardware") else here,
            path=PATH if path == PATH.digest else None,
            about="dot_general (f32[3,4], f32[4,2])",
        )

    add(PATH.digest, 0.5, 2e-3)
    add("product.x3@1", 0.8, 1e-5, when=1e9)
    add("bad", 0.0, math.inf, seconds=(), failure=Failure.crash, detail="it ended with SIGSEGV")
    add("product.amx@1", 0.1, 2e-3, hardware=ELSEWHERE.digest)
    add("product.old@1", 0.7, 2e-3, versions="jaxlib 0")
    return database.file


def command(capsys: pytest.CaptureFixture[str], file: Path, *words: object) -> tuple[int, str]:
    code = main(["profile", *map(str, words), "--database", str(file)])
    shown = capsys.readouterr()
    return code, shown.out + shown.err


def test_ls(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = command(capsys, file, "list")
    assert code == 0
    assert f"{file}: 5 measurements of 1 subject" in said
    assert (
        f"{PROGRAM.digest[:12]}  5 paths, 5 measurements, 1 failure; fastest 0.50 of the plain time" in said
    )
    [facts] = map(json.loads, command(capsys, file, "list", "--json")[1].splitlines())
    assert (facts["subject"], facts["here"], facts["fastest"]) == (PROGRAM.digest, 4, pytest.approx(0.5))


def test_ls_of_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, tmp_path / "absent", "list") == (
        0,
        f"{tmp_path / 'absent'}: 0 measurements of 0 subjects\n",
    )


def test_show(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    PROGRAM.save(tmp_path / "product.pcp")
    code, said = command(capsys, file, "show", tmp_path / "product.pcp")
    assert code == 0
    lines = said.splitlines()
    assert lines[0] == f"{PROGRAM.digest}  dot_general (f32[3,4], f32[4,2])"
    here = [line for line in lines if line.startswith("on ")]
    assert [" (this), " in line for line in here] == [True, True, True, False]
    assert (
        f"  {f'{PATH.digest[:12]} 1 product.xla:bf16':40}    0.500 ms      0.50   2.0e-03     3.0 MiB      1  "
        in said
    )
    assert "  2001-09-09" in said
    assert "crash: it ended with SIGSEGV" in said
    found = [
        json.loads(line)
        for line in command(capsys, file, "show", PROGRAM.digest[:8], "--json")[1].splitlines()
    ]
    assert [facts["path"] for facts in found] == [
        PATH.digest, "product.old@1", "product.x3@1", "bad", "product.amx@1"
    ]  # fmt: skip
    assert found[3]["failure"] == "crash"


def test_export_and_merge(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out, other = tmp_path / "rows.jsonl", tmp_path / "other.sqlite"
    assert command(capsys, file, "export", out) == (0, f"{out}: 5 measurements\n")
    assert command(capsys, other, "merge", out) == (0, "5 new measurements\n")
    assert json.loads(command(capsys, other, "merge", out, "--json")[1])["merged"] == 0
    assert ProfileDatabase(other).path_of(PATH.digest) == PATH
    assert command(capsys, file, "export", out, "--program", PROGRAM.digest[:6])[0] == 0
    code, said = command(capsys, other, "merge", tmp_path / "absent")
    assert (code, "cannot read" in said) == (2, True)
    code, said = command(capsys, file, "export", tmp_path / "absent" / "rows")
    assert (code, "cannot write" in said) == (2, True)


def test_prune(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, said = command(capsys, file, "prune")
    assert (code, "no condition was given" in said) == (2, True)
    for words, count in [
        (("--older-than", 30, "--other-hardware"), 0),
        (("--older-than", 30), 1),
        (("--other-hardware",), 1),
        (("--other-versions", "--program", PROGRAM.digest[:8]), 1),
        (("--program", PROGRAM.digest[:8]), 2),
    ]:
        assert command(capsys, file, "prune", *words) == (
            0,
            f"{count} measurement{'s' * (count != 1)} removed\n",
        )


def test_curve(file: Path, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    out = tmp_path / "curve.png"
    code, said = command(capsys, file, "curve", PROGRAM.digest[:8], "--out", out)
    assert code == 0
    assert said.splitlines()[1:] == [
        "  within 1.0e-05: 1.25x by product.x3@1",
        f"  within 2.0e-03: 2.00x by {PATH.digest[:12]} 1 product.xla:bf16",
    ]
    assert out.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("show",), "`pcp profile show` needs a program; none was given"),
        (("merge",), "`pcp profile merge` needs a file; none was given"),
        (("list", "x"), "`pcp profile list` takes no 'x'; name a program with --program"),
        (("show", "0000"), "there is no measurement of 0000 (digest 0000) in "),
        (("show", "absent.pcp"), "cannot read the program absent.pcp: there is no such file"),
    ],
)
def test_what_is_asked_for_wrongly(
    file: Path, capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    code, said = command(capsys, file, *words)
    assert code == 2
    assert expected in said


def test_digits_that_stand_for_several(file: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for digit in "01":
        ProfileDatabase(file).add(Measurement("abcd" + digit * 60, "plain", "0" * 16, ""))
    code, said = command(capsys, file, "show", "abcd")
    assert code == 2
    assert "abcd begins 2 subjects: abcd0" in said
    assert said.endswith("give more digits\n")


def test_a_damaged_database_is_shown(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "bad.sqlite").write_bytes(b"garbage " * 1000)
    code, said = command(capsys, tmp_path / "bad.sqlite", "list")
    assert code == 2
    assert (
        "bad.sqlite is not usable: it is damaged (file is not a database); expected an SQLite database"
        in said
    )
