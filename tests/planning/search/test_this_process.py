"""A path that was measured in a child is compared once more in the process that will use it."""

import contextlib
import itertools
import re
from collections.abc import Callable, Mapping
from pathlib import Path as FilePath
from types import MappingProxyType, SimpleNamespace
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import OutOfMemory, Target
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Kernel, sites_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.named import Named, is_named, tensors
from pcp.planning import chosen, conditions
from pcp.planning.chosen import PathDiffers
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.judging.sketch import Sketch
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.paths import path as path_module
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search import this_process
from pcp.planning.search.found import Found
from pcp.planning.search.loop import answered
from pcp.planning.search.tuning import kernel_label
from pcp.planning.search.whole import Whole
from pcp.tensor import Tensor

CPU = Target.of("cpu:0")


def _times(factor: float, name: str) -> Kernel:
    """The plain softmax, times a factor."""

    def build(op: ir.Operation) -> list[Tensor]:
        x, axis = tensors(op)[0], Named.of(op).attributes["axis"]
        e = pcp.exp(x - x.max(axis, keepdims=True))
        return [e / e.sum(axis, keepdims=True) * factor]

    return Kernel(name, "for tests", is_named("pcp.softmax"), StableHLO(build))


WRONG = _times(0.5, "softmax.wrong")
ROUNDED = _times(1.0 + 2.0**-21, "softmax.rounded")


@pytest.fixture
def program(monkeypatch: pytest.MonkeyPatch) -> pcp.Program:
    """A program with one site, at which a wrong kernel may stand."""
    kernels = FAMILIES["softmax"].kernels
    monkeypatch.setattr(FAMILIES["softmax"], "kernels", {**kernels, WRONG.name: WRONG, ROUNDED.name: ROUNDED})
    monkeypatch.setattr(this_process, "_compared", set())
    monkeypatch.setattr(this_process, "_switches", itertools.count().__next__)  # no compiled form counts
    return pcp.trace(lambda x: pcp.softmax(x, -1) * 2.0, pcp.spec((6, 33), "f32"))


def path_by(program: pcp.Program, name: str) -> Path:
    [site] = sites_of(prepared(program, 1e-2), "cpu")
    return Path.of(program, {site.key: FAMILIES["softmax"].kernels[name]}, {}, 1e-2)


def test_a_sound_path_is_the_same_here_and_another_is_not(program: pcp.Program) -> None:
    whole = Whole(program, 1e-3, CPU)
    assert this_process.difference_here(whole, path_by(program, "softmax.reciprocal")) is None
    said = this_process.difference_here(whole, path_by(program, WRONG.name))
    assert said is not None
    assert "from that of the plain program; the tolerance is 0.001" in said


class Remembered(dict[str, bytes]):
    """What agreed, as an Evidence keeps it in a database."""

    sketches: Mapping[str, bytes] = MappingProxyType({})

    def agreed(self, asked: str) -> bytes | None:
        return self.get(asked)

    def agree(self, asked: str, sketch: bytes) -> None:
        self[asked] = sketch

    @property
    def sketched(self) -> int:
        return sum(map(bool, self.values()))


@pytest.mark.parametrize(("apart", "times"), [(0.0, 1), (2e-3, 1), (5e-3, 2), (np.nan, 2)])
def test_results_near_those_that_agreed_before_are_not_compared_again(
    program: pcp.Program, monkeypatch: pytest.MonkeyPatch, apart: float, times: int
) -> None:
    memory, compared = Remembered(), []
    monkeypatch.setattr(this_process, "_compared_with_plain", lambda *given: compared.append(given))
    called = this_process._Called.__call__
    for factor in (1.0, 1.0 + apart):
        monkeypatch.setattr(
            this_process._Called,
            "__call__",
            lambda self, arrays, factor=factor: [each * factor for each in called(self, arrays)],
        )
        this_process._compared.clear()
        assert (
            this_process.difference_here(
                Whole(program, 1e-3, CPU), path_by(program, "softmax.reciprocal"), memory
            )
            is None
        )
    assert len(compared) == times


def test_a_plan_says_that_there_was_too_little_memory_to_compare(
    program: pcp.Program, monkeypatch: pytest.MonkeyPatch, tmp_path: FilePath
) -> None:
    def lacks(*_: object) -> None:
        raise OutOfMemory("2.0 GiB are missing")

    monkeypatch.setattr(this_process, "_difference", lacks)
    whole = Whole(program, 1e-3, CPU)
    target = Target.of()
    with evidence_of(Conditions(target, target.capacity, tmp_path / "profile.sqlite")) as evidence:
        path = path_by(program, "softmax.reciprocal")
        assert this_process.difference_here(whole, path, evidence) is None
        said = "the path was not compared in this process, which has too little memory for that: 2.0 GiB are missing"
        assert chosen._noted(Found(path, notes=["first"]), evidence).notes == ["first", said]
        evidence.uncompared = ""
        assert chosen._noted(Found(path), evidence).notes == []


def test_results_that_agreed_before_are_not_compared_again(
    program: pcp.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, memory, compared = Whole(program, 1e-3, CPU), Remembered(), []
    compare = this_process._compared_with_plain

    def counted(*given: Any) -> str | None:
        compared.append(given)
        return compare(*given)

    monkeypatch.setattr(this_process, "_compared_with_plain", counted)

    def in_a_new_process(name: str, whole: Whole = whole) -> str | None:
        this_process._compared.clear()
        return this_process.difference_here(whole, path_by(program, name), memory)

    assert [in_a_new_process("softmax.reciprocal") for _ in range(3)] == [None] * 3
    assert (len(compared), memory.sketched) == (1, 1)
    assert in_a_new_process("softmax.reciprocal", Whole(program, 2e-3, CPU)) is None  # another question
    assert in_a_new_process(WRONG.name) is not None
    assert in_a_new_process(WRONG.name) is not None  # what does not agree is not remembered
    assert (len(compared), memory.sketched) == (4, 2)


def test_a_compiled_form_that_agreed_before_is_not_called_again(
    program: pcp.Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    memory, calls, switches = Remembered(), list[Any](), ["as they are"]
    monkeypatch.setattr(this_process, "_switches", lambda: list(switches))
    called = this_process._Called.__call__

    def counted(self: Any, arrays: Any) -> Any:
        calls.append(self)
        return called(self, arrays)

    monkeypatch.setattr(this_process._Called, "__call__", counted)

    def in_a_new_process(name: str = "softmax.reciprocal") -> tuple[bool, int]:
        this_process._compared.clear()
        calls.clear()
        said = this_process.difference_here(Whole(program, 1e-3, CPU), path_by(program, name), memory)
        return said is None, len(calls)

    assert in_a_new_process() == (True, 2)
    assert in_a_new_process() == (True, 0)
    switches.append("another")
    assert in_a_new_process() == (True, 1)
    assert in_a_new_process(WRONG.name)[0] is False
    assert in_a_new_process(WRONG.name)[0] is False  # what does not agree is not remembered


def test_a_kernel_that_is_right_only_where_it_was_measured_is_found_in_the_next_process(
    program: pcp.Program, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    with evidence_of(Conditions(CPU, 1 << 30, database)) as memory:
        whole, path = Whole(program, 1e-2, CPU), path_by(program, "softmax.reciprocal")
        assert this_process.difference_here(whole, path, memory) is None
        this_process._compared.clear()
        called = this_process._Called.__call__
        monkeypatch.setattr(
            this_process._Called,
            "__call__",
            lambda self, arrays: [
                each * (1.5 if self.program != program else 1) for each in called(self, arrays)
            ],
        )
        said = this_process.difference_here(whole, path, memory)
    assert said is not None
    assert said.startswith("result 0 differs by 0.5")


@pytest.mark.usefixtures("program")
def test_results_that_are_nothing_but_roundings_are_no_difference() -> None:
    program = pcp.trace(
        lambda x, y: (pcp.softmax(x, -1).sum(-1) - 1.0) * y, pcp.spec((64, 33), "f32"), pcp.spec((64,), "f32")
    )
    [site] = sites_of(prepared(program, 1e-3), "cpu")
    path = Path.of(program, {site.key: ROUNDED}, {}, 1e-3)
    rng = np.random.default_rng(5)
    example = [rng.standard_normal(shape).astype(np.float32) for shape in ((64, 33), (64,))]
    x, y = example
    results = [np.asarray(pcp.plan(each).run(x, y)) for each in (program, path.applied(program))]
    assert np.linalg.norm(results[0] - results[1]) > 0.1 * np.linalg.norm(results[0])
    whole = Whole(program, 1e-3, CPU, [example], "these")
    assert this_process.difference_here(whole, path) is None


@pytest.mark.cpu
def test_a_path_that_differs_is_dropped_and_recorded(program: pcp.Program, tmp_path: FilePath) -> None:
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    hardware = hardware_of(CPU)
    [site] = sites_of(prepared(program, 1e-2), "cpu")
    times = {"seconds": (0.1, 0.1, 0.1, 0.1, 0.1, 0.1), "plain_seconds": (1.0, 1.0, 1.0, 1.0, 1.0, 1.0)}

    def claim(subject: str, path: str, of: Path | None) -> None:
        row = Measurement(
            subject, path, hardware.digest, versions(), error=1e-6, plain_error=1e-7, when=1.0, **times
        )
        database.add(row, path=of, hardware=hardware)

    wrong = path_by(program, WRONG.name)
    claim(site.region.digest, kernel_label(WRONG), None)
    claim(Whole(program, 1e-2, CPU).subject, wrong.digest, wrong)
    plan = pcp.plan(program, tolerance=1e-2, database=database, budget=0)
    assert plan.path.is_plain
    rows = [row for row in database.measurements(path=wrong.digest) if row.failure is not None]
    assert [row.failure for row in rows] == [Failure.differs_here]
    assert rows[0].detail.startswith("result 0 differs by ")


def test_a_process_in_which_every_path_differs_says_so(
    program: pcp.Program, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pcp.planning.chosen.difference_here", lambda *_: "result 0 is 0")
    with pytest.raises(PathDiffers, match="the last one because result 0 is 0; run `pcp doctor`"):
        pcp.plan(program, tolerance=1e-2, database=tmp_path / "profile.sqlite", budget=0)


class Told:
    """A Bench that measures nothing, and tells a sketch of what a path computes, times a factor."""

    def __init__(self, factor: float) -> None:
        self.factor = factor

    def measure(self, request: Request) -> Measurement:
        assert isinstance(request.candidate, pcp.Program)
        if request.sketched is not None:
            assert not isinstance(request.inputs, Recipe)
            results = [np.asarray(pcp.plan(request.candidate).run(*request.inputs[0])) * self.factor]
            request.sketched(Sketch.of(request.subject, request.inputs[0], results).to_bytes())
        count = 6 if request.timing_seconds else 0
        return Measurement(
            request.subject.digest, request.path, hardware_of(CPU).digest, versions(),
            (0.1,) * count, (1.0,) * count, error=1e-6, plain_error=1e-7, when=1.0,
        )  # fmt: skip


@pytest.mark.parametrize(("factor", "times"), [(1.0, 0), (1.5, 1)])
def test_results_that_the_measuring_child_judged_are_not_compared_with_the_plain_ones_here(
    program: pcp.Program, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch, factor: float, times: int
) -> None:
    compared: list[Any] = []
    monkeypatch.setattr(this_process, "_compared_with_plain", lambda *given: compared.append(given))
    rng = np.random.default_rng(3)
    whole = Whole(program, 1e-3, CPU, [[rng.standard_normal((6, 33)).astype(np.float32)]], "these")
    path = path_by(program, "softmax.reciprocal")
    database = ProfileDatabase(tmp_path / "profile.sqlite")
    monkeypatch.setattr(conditions, "Bench", lambda: contextlib.nullcontext(Told(factor)))
    with evidence_of(Conditions(CPU, 1 << 30, database)) as evidence:
        answered(lambda _: whole.measured(path, evidence), evidence)
        assert list(evidence.sketches) == [path.digest]
        evidence.agree(whole.agreement(path), evidence.sketches[path.digest])
        assert this_process.difference_here(whole, path, evidence) is None
    assert len(compared) == times


def test_a_sketch_is_asked_for_of_a_step_whose_moments_are_warmed_up_too(
    tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    shapes = pcp.spec((8, 5), "f32"), pcp.spec((16, 8), "f32")
    loss = pcp.trace(lambda weights, x: ((x @ weights) ** 2).mean(), *shapes)
    step = pcp.training_step(loss, pcp.optimizers.sgd(1e-3, momentum=0.0))
    whole = Whole(step, 1e-3, CPU)
    assert isinstance(whole.inputs, Recipe)
    assert whole.inputs.warm_calls
    asked: list[Request] = []

    def measure(request: Request) -> Measurement:
        asked.append(request)
        return Measurement(
            request.subject.digest, request.path, hardware_of(CPU).digest, versions(), error=0.0
        )

    bench = SimpleNamespace(measure=measure)
    monkeypatch.setattr(conditions, "Bench", lambda: contextlib.nullcontext(bench))
    with evidence_of(Conditions(CPU, 1 << 30, ProfileDatabase(tmp_path / "profile.sqlite"))) as evidence:
        answered(lambda _: whole.measured(Path.of(step, {}, {}, 1e-3), evidence), evidence)
    assert [request.sketched is not None for request in asked] == [True]


@pytest.mark.cpu
def test_a_plan_that_was_measured_on_an_example_calls_no_plain_program_here(
    program: pcp.Program, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng = np.random.default_rng(3)
    example = (rng.standard_normal((6, 33)).astype(np.float32),)
    monkeypatch.setattr(
        this_process, "_compared_with_plain", lambda *_: pytest.fail("the plain program is called")
    )
    monkeypatch.setattr(conditions, "Bench", lambda: contextlib.nullcontext(Told(1.0)))
    plan = pcp.plan(program, tolerance=1e-3, example=example, database=tmp_path / "profile.sqlite")
    assert not plan.path.is_plain


def planted(monkeypatch: pytest.MonkeyPatch, wrong: Callable[[Tensor, int], list[Tensor]]) -> Kernel:
    """A kernel of softmax's family whose results are made from the right ones."""

    def build(op: ir.Operation) -> list[Tensor]:
        x, axis = tensors(op)[0], Named.of(op).attributes["axis"]
        e = pcp.exp(x - x.max(axis, keepdims=True))
        return wrong(e / e.sum(axis, keepdims=True), axis)

    kernel = Kernel(
        "softmax.planted",
        "for tests",
        is_named("pcp.softmax"),
        StableHLO(build),
    )
    path_module._applied.cache_clear()  # the kernels of all these tests have one name
    kernels = {**FAMILIES["softmax"].kernels, kernel.name: kernel}
    monkeypatch.setattr(FAMILIES["softmax"], "kernels", kernels)
    monkeypatch.setattr(this_process, "_compared", set())
    return kernel


def said_of(program: pcp.Program, kernel: Kernel, tolerance: float, **more: Any) -> str | None:
    sites = sites_of(prepared(program, tolerance), "cpu")
    kernels = {site.key: kernel for site in sites if kernel.name in site.kernels}
    path = Path.of(program, kernels, {}, tolerance)
    return this_process.difference_here(Whole(program, tolerance, CPU, **more), path)


def without_a_row(y: Tensor, axis: int) -> list[Tensor]:  # noqa: ARG001  (as all of these)
    return [pcp.where(pcp.iota(y.shape, 0) == 17, 0.0, y)]


def halved(y: Tensor, axis: int) -> list[Tensor]:  # noqa: ARG001  (as all of these)
    return [0.5 * y]


def reversed_(y: Tensor, axis: int) -> list[Tensor]:
    return [pcp.ops.flip(y, axis)]


def right(y: Tensor, axis: int) -> list[Tensor]:  # noqa: ARG001  (as all of these)
    return [y * (1.0 + 2.0**-21)]


ROWS = pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((20_000, 8), "f32"))
SMALL = pcp.trace(lambda x: pcp.softmax(x, -1)[0, :3], pcp.spec((4, 8), "f32"))
SCALAR = pcp.trace(lambda x: pcp.softmax(x, -1)[0, 0] - 0.01, pcp.spec((4, 8), "f32"))
INTEGERS = pcp.trace(lambda x: pcp.argmax(pcp.softmax(x, -1), -1), pcp.spec((600, 8), "f32"))
HALVES = pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((50, 8), "bf16"))


@pytest.mark.parametrize(
    ("program", "wrong", "said"),
    [
        (
            ROWS,
            without_a_row,
            r"a slice of result 0 \(axis 0, index 17\) differs by .* tolerance for slices is 0.1",
        ),
        (SMALL, halved, "result 0 differs by 0.5 from that of the plain program; the tolerance is 0.01"),
        (SCALAR, halved, "result 0 differs by "),
        (INTEGERS, reversed_, r"a share of .* of result 0 differs from that of the plain program"),
        (HALVES, halved, "result 0 differs by 0.5"),
    ],
)
def test_one_wrong_row_a_wrong_small_result_and_wrong_integers_are_refused(
    program: pcp.Program, wrong: Any, said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = said_of(program, planted(monkeypatch, wrong), 1e-2)
    assert found is not None
    assert re.match(said, found), found


@pytest.mark.parametrize("program", [ROWS, SMALL, SCALAR, INTEGERS, HALVES])
def test_roundings_of_them_are_no_difference(program: pcp.Program, monkeypatch: pytest.MonkeyPatch) -> None:
    assert said_of(program, planted(monkeypatch, right), 1e-2) is None


def test_a_result_that_is_ignored_is_not_compared_here_either(monkeypatch: pytest.MonkeyPatch) -> None:
    program = pcp.trace(lambda x: (pcp.softmax(x, -1), x.sum()), pcp.spec((6, 8), "f32"))
    kernel = planted(monkeypatch, halved)
    assert said_of(program, kernel, 1e-2) is not None
    assert said_of(program, kernel, 1e-2, ignored=(0,)) is None


def test_bits_are_compared_where_they_are_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    said = said_of(ROWS, planted(monkeypatch, right), 0.0)
    assert said == "result 0 is not bit for bit that of the plain program"


def test_a_wrong_update_does_not_hide_behind_the_parameter(monkeypatch: pytest.MonkeyPatch) -> None:
    def loss(weights: Tensor, x: Tensor) -> Tensor:
        return (pcp.softmax(x @ weights, -1) ** 2).mean()

    shapes = pcp.spec((8, 5), "f32"), pcp.spec((16, 8), "f32")
    step = pcp.training_step(pcp.trace(loss, *shapes), pcp.optimizers.sgd(1e-3, momentum=0.0))
    kernel = planted(monkeypatch, lambda y, _: [1.5 * y])
    updated = {entry.alias for entry in step.arguments}
    others = tuple(place for place in range(len(step.results)) if place not in updated)
    said = said_of(step, kernel, 1e-2, ignored=others)
    assert said is not None
    assert "params" in said
