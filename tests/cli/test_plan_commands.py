"""`pcp plan` and `pcp explore`, with a bench that makes up what it measures."""

import json
import signal
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import FakeBench, add_family, chain, use

import pcp
from pcp.cli import main
from pcp.planning.paths.path import Path as ExecutionPath


@pytest.fixture(autouse=True)
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    add_family(monkeypatch)
    return use(FakeBench(), monkeypatch)


@pytest.fixture
def program(tmp_path: Path) -> Path:
    file = tmp_path / "program.pcp"
    chain((4, 5)).save(file)
    return file


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_a_plan_says_what_runs_where_and_why(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = program.with_name("profile.sqlite")
    code, said, _ = command(capsys, "plan", program, "--tolerance", "1e-2", "--database", database)
    assert code == 0
    assert "5.00 times as fast as the plain path (799 ms against 4 s, 5 calls of each in turn)" in said
    assert "2.00e-03 of at most 0.01 in result 0; the plain path has 2.0e-07" in said
    assert "2 x sine (f32[4,4]) -> f32[4,4]: sine.fast  200 ms against 999 ms, error 1.0e-03" in said
    assert "measured too: sine.middle 500 ms, error 1.0e-05; sine.bitwise 899 ms, error 1.0e-07" in said


def test_a_result_is_left_out(program: Path, capsys: pytest.CaptureFixture[str], bench: FakeBench) -> None:
    database = program.with_name("profile.sqlite")
    words = ("plan", program, "--tolerance", "1e-2", "--database", database)
    assert command(capsys, *words, "--ignore", "1")[0] == 0
    assert {request.ignored for request in bench.wholes + bench.plains if request.exact} == {(1,)}
    code, _, said = command(capsys, *words, "--ignore", "logits")
    assert code == 2
    assert "no result is named 'logits'; the results are 0, 1" in said


def test_a_path_is_written_down_and_followed(
    program: Path, capsys: pytest.CaptureFixture[str], bench: FakeBench
) -> None:
    database, path = program.with_name("profile.sqlite"), program.with_name("path.json")
    code, said, _ = command(
        capsys, "plan", program, "--tolerance", "1e-2", "--database", database, "--out", path, "--json"
    )
    assert code == 0
    made: dict[str, Any] = json.loads(said)
    assert made["path"] == ExecutionPath.load(path).digest
    assert (made["measurements"], made["complete"], made["plain"]) == (8, True, False)
    assert [each["kernel"] for each in made["classes"]] == ["sine.fast"] * 2
    bench.requests.clear()
    code, said, _ = command(capsys, "plan", program, "--path", path, "--json")
    assert code == 0
    assert json.loads(said)["path"] == made["path"]
    assert bench.requests == []


def test_what_cannot_be_planned(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database, missing = program.with_name("profile.sqlite"), program.with_name("none.json")
    for words, message in (
        (("--tolerance", "1e-9"), "misses the tolerance of 1e-09: the error of result 0 is "),
        (("--tolerance", "-1"), "the tolerance is -1.0; expected a number from 0"),
        (("--tolerance", "nan"), "the tolerance is nan; expected a number from 0"),
        (
            ("--tolerance", "1", "--seconds", "-3"),
            "the budget is -3.0; expected seconds from 0, which measures nothing",
        ),
        (("--path", missing), f"cannot read the path {missing}: there is no such file"),
        (("--path", program), f"{program}: "),
    ):
        code, _, said = command(capsys, "plan", program, "--database", database, *words)
        assert code == 2
        assert message in said


def test_measuring_on_given_arguments(
    program: Path, capsys: pytest.CaptureFixture[str], bench: FakeBench
) -> None:
    rng = np.random.default_rng(0)
    inputs = program.with_name("inputs.npz")
    np.savez(inputs, *(rng.standard_normal((size, size), np.float32) for size in (4, 5)))
    database = program.with_name("profile.sqlite")
    words = ("--tolerance", "1e-2", "--database", database, "--inputs", inputs)
    assert command(capsys, "plan", program, *words)[0] == 0
    [request] = bench.wholes
    assert isinstance(request.inputs, list)


def test_exploring(program: Path, capsys: pytest.CaptureFixture[str]) -> None:
    database = program.with_name("profile.sqlite")
    code, said, _ = command(capsys, "explore", program, "--database", database)
    assert code == 0
    first, *_, last = said.splitlines()
    assert "4 sites    799 ms, 0.200 of plain, error 2.00e-03" in first
    assert last == "16 paths were measured now, 0 were known"
    code, said, _ = command(capsys, "explore", program, "--database", database, "--json")
    assert code == 0
    rows = [json.loads(line) for line in said.splitlines()]
    assert len(rows) == 16
    assert not any(row["new"] for row in rows)
    assert [row["ratio"] for row in rows] == sorted(row["ratio"] for row in rows)


def test_exploring_several_places(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], bench: FakeBench
) -> None:
    bench.elsewhere, bench.placed = {"arena": (2.0, 1e-6)}, 0.5
    file = tmp_path / "small.pcp"
    pcp.trace(lambda x: pcp.log1p(pcp.sin(x)), pcp.spec((8,), "f32")).save(file)
    arguments = ("explore", file, "--device", "cpu:0,arena:cpu", "--database", tmp_path / "profile.sqlite")
    code, said, _ = command(capsys, *arguments)
    assert code == 0
    assert said.count("0 sites, 1 on arena:cpu:0") == 2
    assert said.count("0 sites, all by arena") == 1
    assert said.splitlines()[-1] == "11 paths were measured now, 0 were known"  # 4 * 2 at home
    code, said, _ = command(capsys, *arguments, "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert (
        sorted((row["backend"], row["elsewhere"]) for row in rows if row["elsewhere"])
        == [("xla", "1 on arena:cpu:0")] * 2
    )


@pytest.mark.parametrize(("number", "ended"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_exploring_is_interrupted(
    program: Path,
    capsys: pytest.CaptureFixture[str],
    bench: FakeBench,
    number: signal.Signals,
    ended: int,
) -> None:
    def interrupt() -> None:
        if len(bench.requests) == 8:
            signal.raise_signal(number)

    bench.before = interrupt
    arguments = ["explore", str(program), "--database", str(program.with_name("profile.sqlite"))]
    if number == signal.SIGINT:
        assert main(arguments) == ended
    else:
        with pytest.raises(SystemExit, match=str(ended)):
            main(arguments)
    assert capsys.readouterr().out.splitlines()[-1] == "2 paths were measured now, 0 were known"


def test_a_plan_is_terminated(program: Path, bench: FakeBench) -> None:
    bench.before = lambda: signal.raise_signal(signal.SIGTERM)
    arguments = [
        "plan",
        str(program),
        "--tolerance",
        "1e-2",
        "--database",
        str(program.with_name("p.sqlite")),
    ]
    with pytest.raises(SystemExit, match="143"):
        main(arguments)
