"""A candidate that crashes, hangs, eats memory or is wrong becomes a typed failure, and the next one is measured as ever."""

import math
import os
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.planning.judging.oracle import widened
from pcp.planning.judging.sketch import Sketch
from pcp.planning.measuring.bench import Bench, PlainProgramFailed
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.measuring.measurement import Failure
from pcp.planning.measuring.process import MeasuringProcess
from pcp.planning.measuring.random_inputs import Recipe, cold, random_arguments
from pcp.planning.measuring.request import NoInputs, PythonFunction, Request
from pcp.planning.measuring.subject import place

CANDIDATES = str(Path(__file__).parents[1] / "candidates.py")
PRODUCT = pcp.trace(lambda a, b: a @ b, pcp.spec((32, 48), "f32"), pcp.spec((48, 16), "f32"))
BF16 = pcp.trace(
    lambda a, b: (a.astype("bf16") @ b.astype("bf16")).astype("f32"),
    pcp.spec((32, 48), "f32"),
    pcp.spec((48, 16), "f32"),
)
EXACT = widened(PRODUCT)


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench(memory_bytes=6 << 30) as made:
        yield made


def request(candidate: Any, **more: Any) -> Request:
    if isinstance(candidate, str):
        candidate = PythonFunction(CANDIDATES, candidate)
    return Request(PRODUCT, candidate, "path", **{"exact": EXACT, "timing_seconds": 0.0} | more)


def test_a_sound_candidate(bench: Bench) -> None:
    found = bench.measure(request(BF16, timing_seconds=0.2, tolerance=1e-2))
    assert found.failure is None
    assert (found.subject, found.path) == (PRODUCT.digest, "path")
    assert (found.hardware, found.versions) == (hardware_of(Target.of()).digest, versions())
    assert found.error is not None
    assert 1e-4 < found.error < 1e-2
    assert found.plain_error is not None
    assert 0 < found.plain_error < 1e-6
    assert found.peak_bytes is not None
    assert found.peak_bytes >= 4 * (32 * 48 + 48 * 16 + 32 * 16)
    assert len(found.seconds) == len(found.plain_seconds) >= 7
    assert 0 < found.ratio < math.inf
    assert found.judgement is not None
    assert (found.judgement.result, found.judgement.reference) == ("0", "float64")
    assert found.error < found.judgement.slice_error < 10 * found.error
    assert found.judgement.slice.startswith("0, axis ")
    assert found.when > 1.7e9


@pytest.mark.cpu
@pytest.mark.parametrize(
    ("candidate", "failure", "words"),
    [
        ("shape", Failure.wrong_shape, "returns f32[31,16]; expected f32[32,16]"),
        ("count", Failure.wrong_shape, "returns f32[32,16], f32[32,48]; expected f32[32,16]"),
        ("dtype", Failure.wrong_dtype, "returns bf16[32,16]; expected f32[32,16]"),
        ("nan", Failure.not_finite, "result 0 is not finite where it should be"),
        ("compile_error", Failure.compile_error, "ValueError: this kernel needs a tile of 7"),
        ("missing", Failure.compile_error, "candidates.py defines no function missing"),
        ("run_error", Failure.run_error, "the device is on fire"),
        ("random", Failure.nondeterministic, "result 0 differs between two calls with the same arguments"),
        ("stale", Failure.inaccurate, "the error of result 0 is 1."),
        ("low_precision", Failure.inaccurate, "; the tolerance is 0.0001"),
        ("eat_memory", Failure.out_of_memory, "memory"),
        ("large", Failure.out_of_memory, ""),
        ("crash", Failure.crash, "it ended with SIGABRT"),
        (
            "forged",
            Failure.crash,
            "its process says that it takes None; expected bytes",
        ),
        ("garbage", Failure.crash, """it answered b'{"trial": {"failure": null}}'"""),
    ],
)
def test_what_is_wrong_with_a_candidate(bench: Bench, candidate: str, failure: Failure, words: str) -> None:
    found = bench.measure(request(candidate, tolerance=1e-4))
    assert (found.failure, found.seconds) == (failure, ())
    assert words in found.detail
    assert bench.measure(request("good", tolerance=1e-4)).failure is None


def test_right_results_are_told_in_a_sketch_and_wrong_ones_are_not(bench: Bench) -> None:
    rng = np.random.default_rng(0)
    example = [rng.standard_normal(entry.spec.shape).astype(np.float32) for entry in PRODUCT.arguments]
    told: list[bytes] = []
    found = bench.measure(request(BF16, inputs=[example], tolerance=1e-2, sketched=told.append))
    assert found.failure is None
    results = [np.asarray(pcp.plan(BF16).run(*example))]
    mine, [theirs] = Sketch.of(PRODUCT, example, results), told
    assert Sketch.from_bytes(theirs).distance(mine) < 1e-6
    exactly = [np.asarray(pcp.plan(PRODUCT).run(*example))]
    assert Sketch.from_bytes(theirs).distance(Sketch.of(PRODUCT, example, exactly)) > 1e-6
    found = bench.measure(request(BF16, inputs=[example], tolerance=1e-6, sketched=told.append))
    assert (found.failure, len(told)) == (Failure.inaccurate, 1)


def test_programs_of_other_types(bench: Bench) -> None:
    other = pcp.trace(lambda a, b: a @ b, pcp.spec((32, 48), "f64"), pcp.spec((48, 16), "f64"))
    assert bench.measure(request(other)).detail.startswith(
        "it takes f64[32,48], f64[48,16]; expected f32[32,48]"
    )
    assert bench.measure(request(other)).failure is Failure.wrong_dtype


def test_results_beyond_the_tolerance_are_named_the_worst_first(bench: Bench) -> None:
    def scaled(*factors: float) -> pcp.Program:
        return pcp.trace(lambda x: tuple(x * 3.0 * factor for factor in factors), pcp.spec((8, 8), "f32"))

    plain, wrong = scaled(1.0, 1.5, 2.0), scaled(1.02, 1.5, 2.1)
    asked = Request(plain, wrong, "path", widened(plain), timing_seconds=0.0, tolerance=1e-2)
    found = bench.measure(asked)
    assert found.failure is Failure.inaccurate
    assert found.judgement is not None
    assert [name for name, _ in found.judgement.missed] == ["2", "0"]
    assert [error for _, error in found.judgement.missed] == pytest.approx([0.05, 0.02], rel=1e-3)
    taken = bench.measure(replace(asked, tolerance=1e-1))
    assert taken.judgement is not None
    assert taken.judgement.missed == ()


def test_what_compiles_ahead_stands_still_while_something_is_timed(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bool] = []
    monkeypatch.setattr(bench._ahead, "pause", lambda *, is_paused: said.append(is_paused))
    bench.measure(request(BF16, timing_seconds=0.1))
    assert said.count(True) == 1
    assert said.index(True) > 0
    assert not said[-1]
    said.clear()
    bench.measure(request(BF16))
    assert not any(said)


def test_how_inaccurate_it_is_is_kept(bench: Bench) -> None:
    found = bench.measure(request(BF16, tolerance=1e-5))
    assert found.failure is Failure.inaccurate
    assert found.error is not None
    assert found.plain_error is not None
    assert 1e-4 < found.error < 1e-2
    assert found.plain_error < 1e-6


def test_without_float64_results_are_compared_with_the_plain_ones(bench: Bench) -> None:
    assert bench.measure(request(BF16, exact=None, tolerance=1e-2)).error is None
    refused = bench.measure(request(BF16, exact=None, tolerance=1e-4))
    assert refused.failure is Failure.inaccurate
    assert refused.error is None
    assert refused.detail.startswith("the error relative to the plain results, of result 0 is ")


def test_tolerance_0_asks_for_the_bits(bench: Bench) -> None:
    assert bench.measure(request(PRODUCT, tolerance=0.0)).failure is None
    refused = bench.measure(request(BF16, tolerance=0.0))
    assert refused.failure is Failure.inaccurate
    assert refused.detail == "result 0 is not bit for bit that of the plain program"


def test_candidates_may_write_to_standard_output(bench: Bench) -> None:
    assert bench.measure(request("chatty")).failure is None  # which begins a child, if no test has
    starts = bench.starts
    assert bench.measure(request("chatty")).failure is None
    assert bench.starts == starts


def test_the_child_stays_unless_it_dies(bench: Bench) -> None:
    bench.measure(request("good"))
    starts = bench.starts
    for candidate in ("good", "shape", "run_error", "good"):
        bench.measure(request(candidate))
    assert bench.starts == starts


def test_state_is_copied_for_each_call_and_judged_by_its_change(bench: Bench) -> None:
    def loss(w: Any, x: Any) -> Any:
        return ((x @ w["w"] + w["bias"]) ** 2).mean()

    params = {"w": np.ones((8, 4), np.float32), "bias": np.ones(4, np.float32)}
    step = pcp.training_step(pcp.trace(loss, params, pcp.spec((16, 8), "f32")), pcp.optimizers.adamw(1e-2))
    assert any(entry.alias is not None for entry in step.arguments)
    exact = widened(step)
    recipe = Recipe(warm_calls=2)
    told: list[bytes] = []
    same = bench.measure(
        Request(step, step, "plain", exact, recipe, calls=3, timing_seconds=0.05, sketched=told.append)
    )
    assert (same.failure, same.error) == (None, same.plain_error)
    # Who compares does not warm up: the sketch is of arguments that it has without a call of the plain program.
    target = Target.of("cpu:0")
    executable = target.compile(step)

    def here(recipe: Recipe) -> Sketch:
        arrays = random_arguments(step.arguments, recipe, 0)
        return Sketch.of(
            step, arrays, [np.asarray(each) for each in executable.run(place(step, arrays, target))]
        )

    assert here(cold(recipe)).distance(Sketch.from_bytes(told[0])) < 1e-6
    assert here(recipe).distance(Sketch.from_bytes(told[0])) > 1e-2
    assert same.error is not None
    assert 0 < same.error < 1e-3
    slower = pcp.training_step(pcp.trace(loss, params, pcp.spec((16, 8), "f32")), pcp.optimizers.adamw(1e-3))
    refused = bench.measure(Request(step, slower, "path", exact, recipe, tolerance=1e-2))
    assert refused.failure is Failure.inaccurate
    assert refused.error == pytest.approx(0.9, abs=0.05)  # though parameters themselves hardly differ


def test_arguments_of_the_caller(bench: Bench) -> None:
    program = pcp.trace(lambda x, i: x[i], pcp.spec((4, 3), "bf16"), pcp.spec((2,), "i32"))
    rng = np.random.default_rng(0)
    inputs = [
        [rng.standard_normal((4, 3)).astype(ml_dtypes.bfloat16), np.array(indices, np.int32)]
        for indices in ([0, 3], [2, 1])
    ]
    found = bench.measure(Request(program, program, "plain", widened(program), inputs, timing_seconds=0))
    assert (found.failure, found.error) == (None, 0.0)
    always = pcp.trace(
        lambda x, i: x[:2] + (i[0] * 0).astype("bf16"), pcp.spec((4, 3), "bf16"), pcp.spec((2,), "i32")
    )
    refused = bench.measure(Request(program, always, "path", None, inputs, tolerance=1e-2))
    assert refused.failure is Failure.inaccurate


def test_a_plain_program_that_does_not_run_is_no_failure_of_a_candidate(bench: Bench) -> None:
    unknown = pcp.Program.parse(
        """func.func public @main(%a: tensor<2xf32>) -> tensor<2xf32> {
          %0 = stablehlo.custom_call @nowhere(%a) : (tensor<2xf32>) -> tensor<2xf32>
          return %0 : tensor<2xf32>
        }"""
    )
    with pytest.raises(
        PlainProgramFailed, match=r"cannot be measured: .*nowhere.*; see whether `pcp run` runs it"
    ):
        bench.measure(Request(unknown, unknown, "plain"))
    assert bench.measure(request("good")).failure is None


def test_a_plain_program_that_fails_beside_others_is_tried_once_more_in_a_new_process(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert bench.measure(request("good")).failure is None
    starts, asked, ask = bench.starts, [], MeasuringProcess.ask

    def fail_once(process: MeasuringProcess, *words: Any) -> None:
        asked.append(process)
        if len(asked) == 1:
            process.kill()
            raise PlainProgramFailed("memory ran out")
        ask(process, *words)

    monkeypatch.setattr(MeasuringProcess, "ask", fail_once)
    assert bench.measure(request("good")).failure is None
    assert bench.starts == starts + 1
    asked.clear()
    with Bench() as fresh, pytest.raises(PlainProgramFailed, match="memory ran out"):
        fresh.measure(request("good"))
    assert len(asked) == 1, "a new process keeps nothing"


def test_options_of_the_compiler_are_those_of_the_plain_program_too(bench: Bench) -> None:
    with pytest.raises(PlainProgramFailed, match="xla_no_such_option"):
        bench.measure(request(BF16, target=Target.of().with_options({"xla_no_such_option": True})))
    assert (
        bench.measure(request(BF16, target=Target.of("cpu:0", {"xla_backend_optimization_level": 1}))).failure
        is None
    )


@pytest.mark.parametrize("inputs", [[], Recipe(sets=0)])
def test_a_request_without_arguments(inputs: Any) -> None:
    with pytest.raises(NoInputs, match="0 lists of arguments were given for path; give two or more"):
        request("good", inputs=inputs)


def test_a_candidate_that_hangs_is_killed() -> None:
    with Bench(seconds=0.3) as impatient:
        found = impatient.measure(request("hang"))
    assert (found.failure, found.detail) == (Failure.timeout, "it took more than 0.3 s and was killed")


def test_the_child_ends_with_its_parent(bench: Bench) -> None:
    asked = bench._encoded(request("hang"))
    child = MeasuringProcess(Target.of(), bench._folder, 6 << 30)
    child.ask(asked, {"candidate": 60.0, "timing": 60.0})
    while child.answer(120).get("stage") != "apart":
        pass
    os.close(child._child._process.stdin.fileno())
    assert child._child._process.wait(60) == 0
    child.kill()


def test_ctrl_c_leaves_no_child(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    bench.measure(request("good"))
    assert bench._child is not None
    child = bench._child._child
    with monkeypatch.context() as patch:
        patch.setattr(MeasuringProcess, "answer", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            bench.measure(request("good"))
    assert child.has_ended
    assert bench.measure(request("good")).failure is None
