"""A plan computes an equal program where that is surely faster, within tolerance and memory, and its path needs no egglog."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path as FilePath
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from tests.planning.fake_bench import use

import pcp
from pcp import Path
from pcp.ir import Program
from pcp.kernels import FAMILIES
from pcp.planning.exploration.exploration import explore
from pcp.planning.forms import equal as equal_forms
from pcp.planning.forms.search import _lost
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Judgement, Measurement
from pcp.planning.measuring.request import Request
from pcp.planning.paths.kinds import EQUAL, NotAPath
from pcp.planning.paths.path import PathMismatch
from pcp.planning.paths.transfer import transferred
from pcp.planning.search.found import Found
from pcp.planning.search.loop import answered
from pcp.planning.search.question import Answer, Asking
from pcp.planning.search.strategy import Strategy
from pcp.rewrite.equality import Form

pytest.importorskip("egglog", reason="egglog is not installed")
BLOCK = (1.0, 1.004, 0.997, 1.002, 0.999)
SIZES = ((64, 48), (48, 32), (32,))


def chain(size: int = 64) -> Program:
    """(A B) x, which is A (B x)."""
    return pcp.trace(
        lambda a, b, x: a @ b @ x, *(pcp.spec(shape, "f32") for shape in ((size, 48), *SIZES[1:]))
    )


def products(program: Program) -> int:
    """Floating-point operations of the products, from their shapes in the text."""
    total = 0
    for line in program.text.splitlines():
        if "stablehlo.dot_general" in line:
            (rows, inner), right = (
                [int(n) for n in each.split("x")] for each in re.findall(r"tensor<([\dx]+)x", line)[:2]
            )
            total += 2 * rows * inner * (right[1] if len(right) > 1 else 1)
    return total


class FakeBench:
    """A program takes as long as its products say; what is said of equal programs is added."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.slower = 1.0
        self.failure: Failure | None = None
        self.peak = 1000

    def measure(self, request: Request) -> Measurement:
        """Make up a measurement."""
        self.requests.append(request)
        assert isinstance(request.candidate, Program)
        plain, mine = (1e-6 + 1e-9 * products(each) for each in (request.subject, request.candidate))
        is_other = mine < plain
        failure = self.failure if is_other and request.exact is not None else None
        timed = failure is None and request.timing_seconds > 0
        known = request.exact is not None
        times = [tuple(seconds * each for each in BLOCK) if timed else () for seconds in (mine, plain)]
        return Measurement(
            request.subject.digest, request.path, hardware_of(pcp.backends.Target.of()).digest, versions(),
            tuple(each * (self.slower if is_other else 1) for each in times[0]), times[1],
            1e-7 if known else None, 1e-7 if known else None, self.peak if is_other else 1000, failure,
            "made up" if failure else "", when=1.0, judgement=Judgement("0") if known else None,
        )  # fmt: skip


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeBench]:
    """No kernels, as if no family were known; afterwards they stand in the order in which they stood."""
    known = dict(FAMILIES)
    FAMILIES.clear()
    made = FakeBench()
    use(made, monkeypatch)  # type: ignore[arg-type]  # it measures, too
    yield made
    FAMILIES.clear()
    FAMILIES.update(known)


@pytest.fixture
def database(tmp_path: FilePath) -> FilePath:
    return tmp_path / "profile.sqlite"


def arguments(*shapes: tuple[int, ...]) -> list[Any]:
    return [np.random.default_rng().standard_normal(shape, np.float32) for shape in shapes or SIZES]


def check(plan: pcp.Plan) -> None:
    a, b, x = arguments()
    expected = a.astype(np.float64) @ b @ x
    np.testing.assert_allclose(np.asarray(plan.run(a, b, x)), expected, rtol=1e-4, atol=1e-4)


def test_a_chain_with_a_vector_is_computed_from_the_right(bench: FakeBench, database: FilePath) -> None:
    program = chain()
    plan = pcp.plan(program, tolerance=1e-5, database=database)
    assert products(plan.lowered) == 2 * (48 * 32 + 64 * 48) < products(program)
    assert plan.path.equal is not None
    assert (plan.error, plan.plain_error) == (1e-7, 1e-7)
    assert "equal       products of matrices in another form: 1 part by 2 Dot" in str(plan)
    assert plan.to_json()["equal"]["makes"] == plan.path.equal.makes
    check(plan)
    wholes = [each for each in bench.requests if each.exact is not None]
    assert all(each.subject == program for each in wholes)  # judged and timed beside what the user wrote
    count = len(bench.requests)
    for budget in (300.0, 0.0):
        again = pcp.plan(program, tolerance=1e-5, database=database, budget=budget)
        assert (again.path, len(bench.requests)) == (plan.path, count)


@pytest.mark.usefixtures("bench")
def test_what_is_known_is_taken_without_egglog(database: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    path = pcp.plan(chain(), tolerance=1e-5, database=database).path
    monkeypatch.setitem(sys.modules, "egglog.bindings", None)
    monkeypatch.setattr(equal_forms, "find_spec", lambda _: None)
    assert pcp.plan(chain(), tolerance=1e-5, database=database).path == path
    other = pcp.plan(chain(65), tolerance=1e-5, database=database)
    assert other.path.is_plain
    assert "equal" not in str(other)
    assert pcp.plan(chain(), path=path).path.equal == path.equal


@pytest.mark.parametrize(
    ("slower", "failure", "peak", "said"),
    [
        (100.0, None, 1000, "of the plain path's time, which is not surely less than 0.98"),
        (1.0, Failure.inaccurate, 1000, "inaccurate: made up"),
        (1.0, None, 2**20, "it takes 1048576 bytes; 65536 are allowed"),
    ],
)
def test_it_stays_as_it_is_written(
    bench: FakeBench, database: FilePath, slower: float, failure: Failure | None, peak: int, said: str
) -> None:
    bench.slower, bench.failure, bench.peak = slower, failure, peak
    plan = pcp.plan(chain(), tolerance=1e-5, database=database, memory=2**16)
    assert plan.path.equal is None
    assert "another form of the program is not taken" in str(plan)
    assert said in str(plan)


@pytest.mark.parametrize(
    ("ratio", "peak", "said"),
    [
        (0.5, 1000, ""),
        (
            0.9999,
            1000,
            "in turn with the path without it, it takes 1.00 of the time, which is not surely less",
        ),
        (None, 1000, "it was not timed in turn with the path without it: the time was up"),
        (1.5, 2**17, ""),  # what was found without does not fit
    ],
)
def test_the_path_without_it_is_beaten_in_turn_or_stays(ratio: float | None, peak: int, said: str) -> None:
    program = chain()
    without = replace(Path.plain(program), prepared="0" * 64)
    row = Measurement("s", "p", "h", "v", BLOCK, BLOCK, peak_bytes=peak)
    duel = None if ratio is None else replace(row, seconds=tuple(ratio * each for each in BLOCK))
    fought: list[tuple[Path, Path]] = []

    def fight(challenger: Path, champion: Path) -> Asking[Answer]:
        fought.append((challenger, champion))
        return duel
        yield

    evidence: Any = SimpleNamespace(strategy=Strategy(), trouble="the time was up")
    whole = SimpleNamespace(plain=Path.plain(program))
    duels: Any = SimpleNamespace(fought=fight, evidence=evidence, whole=whole)
    mine = without.having(EQUAL.name, [EQUAL.move(Form((), "1" * 64))])
    asking = _lost(Found(without, row), Found(mine, row), duels, 2**16)
    assert answered(lambda _: asking, evidence) == said
    assert fought == ([] if peak > 2**16 else [(mine, without)])


@pytest.mark.usefixtures("bench")
def test_memory_that_the_equal_program_fits_in(database: FilePath) -> None:
    plan = pcp.plan(chain(), tolerance=1e-5, database=database, memory="64KiB")
    assert plan.path.equal is not None
    assert plan.fit is not None
    check(plan)


@pytest.mark.usefixtures("bench")
def test_bits_are_not_changed_and_what_has_no_other_order_is_not_looked_at(
    database: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(equal_forms, "saturated", lambda *_: pytest.fail("it was looked at"))
    assert pcp.plan(chain(), tolerance=0, database=database).path.is_plain
    single = pcp.trace(lambda a, b: pcp.tanh(a @ b), *[pcp.spec((4, 4), "f32")] * 2)
    assert pcp.plan(single, tolerance=1e-5, database=database).path.is_plain


@pytest.mark.usefixtures("bench")
def test_exploring_measures_equal_programs(database: FilePath) -> None:
    found = list(explore(chain(), database=database))
    assert [each.path.equal is None for each in found] == [False, True, False]
    assert pcp.plan(chain(), tolerance=1e-5, database=database, budget=0).path.equal is not None


@pytest.mark.usefixtures("bench")
def test_the_path_is_followed_in_a_fresh_process_without_egglog(
    database: FilePath, tmp_path: FilePath
) -> None:
    program = chain()
    plan = pcp.plan(program, tolerance=1e-5, database=database)
    plan.path.save(tmp_path / "path.json")
    program.save(tmp_path / "program.pcp")
    values = arguments()
    np.savez(tmp_path / "arguments.npz", *values)
    script = f"""
import sys
sys.modules["egglog"] = sys.modules["egglog.bindings"] = None
import numpy as np
import pcp
path = pcp.Path.load({str(tmp_path / "path.json")!r})
plan = pcp.plan(pcp.load({str(tmp_path / "program.pcp")!r}), path=path)
assert plan.path == path
with np.load({str(tmp_path / "arguments.npz")!r}) as given:
    np.save({str(tmp_path / "result.npy")!r}, plan.run(*given.values()))
print(plan)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "equal       products of matrices in another form" in done.stdout
    np.testing.assert_array_equal(np.load(tmp_path / "result.npy"), np.asarray(plan.run(*values)))


@pytest.mark.usefixtures("bench")
def test_a_path_that_was_changed_is_refused(database: FilePath) -> None:
    program = chain()
    path = pcp.plan(program, tolerance=1e-5, database=database).path
    whole = json.loads(path.to_json())
    assert Path.from_json(path.to_json()) == path

    def changed(**entries: Any) -> Path:
        part = whole["equal"]["parts"][0]
        equal = {"parts": [part | entries], "makes": whole["equal"]["makes"]}
        return Path.from_json(json.dumps(whole | {"equal": equal, "prepared": ""}))

    steps = whole["equal"]["parts"][0]["steps"]
    swapped = [step | ({"operands": step["operands"][::-1]} if step["op"] == "Dot" else {}) for step in steps]
    for wrong, said in (
        ({"steps": swapped}, "does not fit operands of shapes"),
        (
            {"steps": [{**step, "op": "Add"} if step["op"] == "Dot" else step for step in steps]},
            "does not fit",
        ),
        ({"parts": [1]}, "computes parts"),
        ({"roots": [0]}, "expected steps of shapes"),
        ({"steps": steps[:-1]}, "expected steps of shapes"),
    ):
        with pytest.raises(PathMismatch, match=said):
            pcp.plan(program, path=changed(**wrong))
    with pytest.raises(PathMismatch, match="belongs to program"):
        pcp.plan(chain(65), path=path)
    for equal in ({}, {"parts": [], "makes": "0" * 64}, [1], {"parts": [{}], "makes": "0" * 64}):
        with pytest.raises(NotAPath, match="the equal program of the path is"):
            Path.from_json(json.dumps(whole | {"equal": equal}))
    assert path.equal is not None
    with pytest.raises(PathMismatch, match="here it makes"):
        pcp.plan(program, path=path.having(EQUAL.name, [EQUAL.move(replace(path.equal, makes="0" * 64))]))


@pytest.mark.usefixtures("bench")
def test_a_path_is_followed_at_other_sizes(database: FilePath) -> None:
    path = pcp.plan(chain(), tolerance=1e-5, database=database).path
    moved = transferred(path, chain(), chain(80), "cpu")
    assert moved is not None
    assert isinstance(moved.equal, Form)
    a, b, x = arguments((80, 48), *SIZES[1:])
    np.testing.assert_allclose(
        pcp.plan(chain(80), path=moved).run(a, b, x), a @ (b @ x), rtol=1e-4, atol=1e-4
    )
    assert transferred(path, chain(), pcp.trace(lambda a: a + a, pcp.spec((4,), "f32")), "cpu") is None
