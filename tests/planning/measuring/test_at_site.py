"""A kernel is verified at the very shapes of its site: on operands of several kinds, and in repeated calls."""

import itertools
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.backends import Target
from pcp.backends.jax_function import JAXFunction
from pcp.ir import Program
from pcp.kernels import Claims
from pcp.planning.judging import comparison
from pcp.planning.judging.comparison import Comparison
from pcp.planning.measuring import at_site, site_case
from pcp.planning.measuring import trial as trial_module
from pcp.planning.measuring.at_site import fault_at_site
from pcp.planning.measuring.index_ranges import index_ranges
from pcp.planning.measuring.measurement import Failure, Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import PythonFunction, Request
from pcp.planning.measuring.site_operands import KINDS, NORMAL
from pcp.planning.measuring.subject import Subject
from pcp.planning.measuring.timing import Runnable
from pcp.planning.measuring.trial import tried
from pcp.rewrite.row import Effect

TARGET = Target.of("cpu:0")
Altered = Callable[[list[np.ndarray[Any, Any]], list[np.ndarray[Any, Any]]], list[np.ndarray[Any, Any]]]


class Altering:
    """An executable whose results are altered by a function of its arguments and of the sound results."""

    def __init__(self, program: Program, alter: Altered) -> None:
        self._compiled = TARGET.compile(program, cache=False)
        self._alter = alter
        self.memory = self._compiled.memory

    def run(self, buffers: Any) -> list[Any]:
        results = [np.array(result) for result in self._compiled.run(buffers)]
        made = self._alter([np.asarray(buffer) for buffer in buffers], results)
        entries = zip(made, self._specs(results), strict=True)
        return [TARGET.place(array, spec) for array, spec in entries]

    def _specs(self, results: list[np.ndarray[Any, Any]]) -> list[Any]:
        return [pcp.spec(result.shape, "f32").spec for result in results]


def plainly(program: Program, recipe: Recipe) -> Request:
    """What a subject is made from."""
    return Request(program, program, "plain", inputs=recipe, target=TARGET)


def fault_of(
    program: Program,
    alter: Altered,
    tmp_path: Path,
    effect: Effect = Effect.lowers_precision,
    *,
    compiled: bool = False,
    deterministic: bool | None = None,
) -> tuple[Failure, str] | None:
    recipe = Recipe(seed=3, sets=1, ranges=index_ranges(program))
    subject = Subject(plainly(program, recipe), tmp_path)
    subject.comparison = Comparison(TARGET, compiled)
    candidate = Runnable(Altering(program, alter), program.arguments)
    claims = Claims(effect, deterministic=deterministic)
    return fault_at_site(subject, candidate, claims, lambda _: None)


SOFTMAX = pcp.trace(lambda x: pcp.softmax(x, -1), pcp.spec((40, 64), "f32"))
EMBEDDED = pcp.vjp(
    pcp.trace(lambda e, t: nn.embedding(t, e), pcp.spec((30, 8), "f32"), pcp.spec((600,), "i32")), wrt=0
)


def halved_where_often(arguments: Any, results: Any) -> Any:
    tokens = next(each for each in arguments if each.dtype.kind == "i")
    counts = np.bincount(tokens.reshape(-1), minlength=30)
    return [np.where((counts > 200)[:, None], 0.5 * each, each) for each in results]


def without_nan(arguments: Any, results: Any) -> Any:  # noqa: ARG001  (as all of these)
    return [np.nan_to_num(each) for each in results]


def overflowing(arguments: Any, results: Any) -> Any:
    return [np.where(np.abs(arguments[0]).max() > 88.0, np.float32(np.nan), each) for each in results]


def masked_wrongly(arguments: Any, results: Any) -> Any:
    masked = np.isneginf(arguments[0]).any(-1, keepdims=True)
    return [np.where(masked, np.float32(1 / 64), each) for each in results]


def rowwise_wrong(arguments: Any, results: Any) -> Any:
    large = np.abs(arguments[0]).max(-1, keepdims=True) > 5.0
    return [np.where(large, each[:, ::-1], each) for each in results]


calls = itertools.count()


def noisy(scale: float) -> Altered:
    def alter(arguments: Any, results: Any) -> Any:  # noqa: ARG001  (as all of these)
        factor = np.float32(1.0 + scale * (next(calls) % 2))
        return [each * factor for each in results]

    return alter


@pytest.mark.parametrize(
    ("program", "alter", "failure", "words"),
    [
        (EMBEDDED, halved_where_often, Failure.inaccurate, "on skewed operands, result 0 has an error of"),
        (SOFTMAX, without_nan, Failure.not_finite, "on NaN operands, result 0 is finite where infinities or NaN"),
        (SOFTMAX, overflowing, Failure.not_finite, "on offset by a thousand operands, result 0 is infinite or NaN where"),
        (SOFTMAX, masked_wrongly, Failure.inaccurate, "on masked operands, result 0 has an error of"),
        (SOFTMAX, rowwise_wrong, Failure.inaccurate, "on offset by a thousand operands, result 0 has an error of"),
        (SOFTMAX, noisy(1e-3), Failure.nondeterministic, "returns something else for the same operands"),
    ],
)  # fmt: skip
@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_wrong_only_on_some_operands_is_found(
    program: Program,
    alter: Altered,
    failure: Failure,
    words: str,
    compiled: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(comparison, "SMALL", 0)
    found = fault_of(program, alter, tmp_path, compiled=compiled)
    assert found is not None
    assert found[0].at_site is failure
    assert words in found[1]


@pytest.mark.parametrize(
    ("scale", "deterministic", "is_found"), [(2e-7, None, False), (2e-7, True, True), (1e-4, None, True)]
)
def test_calls_differ_by_as_much_as_a_kernel_says(
    scale: float, deterministic: bool | None, is_found: bool, tmp_path: Path
) -> None:
    found = fault_of(SOFTMAX, noisy(scale), tmp_path, deterministic=deterministic)
    assert (found is not None and found[0] is Failure.nondeterministic) is is_found


def test_calls_may_differ_by_as_much_as_a_kernel_errs_that_says_so(tmp_path: Path) -> None:
    def vary(arguments: Any, results: Any) -> Any:  # noqa: ARG001  (as all of these)
        factor = np.float32(1.0 + 1e-3 * (1 + next(calls) % 2))
        return [each * factor for each in results]

    found = fault_of(SOFTMAX, vary, tmp_path)
    assert found is not None
    assert found[0] is Failure.nondeterministic
    assert fault_of(SOFTMAX, vary, tmp_path, deterministic=False) is None


def test_what_was_returned_for_other_operands_is_stale(tmp_path: Path) -> None:
    kept: list[Any] = []

    def first(arguments: Any, results: Any) -> Any:  # noqa: ARG001  (as all of these)
        kept.extend([] if kept else results)
        return kept

    found = fault_of(SOFTMAX, first, tmp_path)
    assert found is not None
    assert found[0] is Failure.stale
    assert "operands, it returned what it had returned for normal ones" in found[1]
    assert found[0].at_site is Failure.inaccurate  # as an older PCP reads it


LOSS = pcp.trace(lambda x: pcp.logsumexp(x, -1).mean(), pcp.spec((40, 64), "f32"))


def test_a_wrong_result_of_one_element_is_found(tmp_path: Path) -> None:
    def halved_where_unlike(arguments: Any, results: Any) -> Any:
        largest = np.abs(arguments[0]).max()
        return [np.where(largest > 5.0, 0.5 * each, each) for each in results]

    found = fault_of(LOSS, halved_where_unlike, tmp_path)
    assert found is not None
    assert "on offset by a thousand operands, result 0 has an error of 0.5" in found[1]
    assert fault_of(LOSS, lambda _, results: results, tmp_path) is None
    noise = fault_of(LOSS, noisy(1e-3), tmp_path)
    assert noise is not None
    assert noise[0] is Failure.nondeterministic


def test_a_sound_one_is_accepted_and_noise_of_the_last_bit_is_not_exact(tmp_path: Path) -> None:
    assert fault_of(SOFTMAX, lambda _, results: results, tmp_path, effect=Effect.exact) is None
    assert fault_of(SOFTMAX, noisy(2.0**-23), tmp_path) is None
    exact = fault_of(SOFTMAX, noisy(2.0**-23), tmp_path, effect=Effect.exact)
    assert exact is not None
    assert exact[0] is Failure.nondeterministic


def test_a_trial_at_a_site_refuses_what_the_site_shows(tmp_path: Path) -> None:
    def softmax(x: Any) -> Any:
        e = jnp.exp(x)
        return e / e.sum(-1, keepdims=True)

    subject = Subject(plainly(SOFTMAX, Recipe(sets=1)), tmp_path)
    entries = SOFTMAX.arguments
    runnable = Runnable(JAXFunction(softmax, [entry.spec for entry in entries], TARGET), entries)

    def trial(site: Claims | None) -> Failure | None:
        request = Request(
            SOFTMAX,
            PythonFunction("softmax.py", "softmax"),
            "path",
            target=TARGET,
            calls=1,
            timing_seconds=0.0,
            site=site,
        )
        return tried(subject, request, lambda _: None, lambda _: runnable).failure

    assert trial(None) is None
    assert trial(Claims(Effect.reassociating)) is Failure.not_finite


def counted_compilations(monkeypatch: pytest.MonkeyPatch) -> list[Program]:
    """Every program that is compiled from now on."""
    compiled: list[Program] = []
    compile_program = Target.compile

    def counted(self: Target, program: Program, *, cache: bool = True) -> Any:
        compiled.append(program)
        return compile_program(self, program, cache=cache)

    monkeypatch.setattr(Target, "compile", counted)
    return compiled


def test_a_check_compiles_one_program_that_changes_and_one_that_compares_for_each_shape_of_all_sites(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(comparison, "SMALL", 0)
    monkeypatch.setattr(site_case, "EXACT", 0)  # as on a GPU
    compiled = counted_compilations(monkeypatch)
    compare = Comparison(TARGET, compiled=True)
    recipe = Recipe(seed=3, sets=1)
    counts = []
    for function in (lambda x: pcp.softmax(x, -1), lambda x: pcp.sigmoid(x)):
        program = pcp.trace(function, pcp.spec((40, 64), "f32"))
        subject = Subject(plainly(program, recipe), tmp_path, comparison=compare)
        compiled.clear()
        assert fault_at_site(subject, subject.plain, Claims(Effect.reassociating), lambda _: None) is None
        counts.append(len(compiled))
    assert counts == [2, 0]


class Counting:
    """An executable that counts its calls."""

    def __init__(self, executable: Any) -> None:
        self._executable, self.memory, self.calls = executable, executable.memory, 0

    def run(self, buffers: Any) -> list[Any]:
        self.calls += 1
        made: list[Any] = self._executable.run(buffers)
        return made


@pytest.mark.parametrize("part", [1.0, 0.0])
def test_kernels_of_a_site_share_its_operands_and_what_is_right_for_them(
    part: float, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(at_site, "KEPT_PART", part)
    made: list[str] = []
    operands = site_case._operands
    monkeypatch.setattr(site_case, "_operands", lambda *given: made.append(given[1].name) or operands(*given))
    subject = Subject(plainly(SOFTMAX, Recipe(seed=3, sets=1)), tmp_path)
    candidate = subject.plain
    counting = Counting(candidate.executable)
    subject.plain = Runnable(counting, candidate.arguments)
    for effect in (Effect.reassociating, Effect.lowers_precision, Effect.exact):
        made.clear()
        counting.calls = 0
        assert fault_at_site(subject, candidate, Claims(effect), lambda _: None) is None
        is_first = effect is Effect.reassociating
        assert made == ([NORMAL.name, *(kind.name for kind in KINDS)] if is_first or not part else [])
        assert counting.calls == (len(KINDS) + 1 if is_first or not part else 0)
    assert (subject.bytes_of_cases > 0) == bool(part)


def test_a_wrong_kernel_is_refused_after_few_kinds_of_operands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    subject = Subject(plainly(SOFTMAX, Recipe(seed=3, sets=1)), tmp_path)
    made: list[str] = []
    operands = site_case._operands
    monkeypatch.setattr(site_case, "_operands", lambda *given: made.append(given[1].name) or operands(*given))
    for alter in (overflowing, masked_wrongly):
        made.clear()
        candidate = Runnable(Altering(SOFTMAX, alter), SOFTMAX.arguments)
        subject.cases.clear()
        assert fault_at_site(subject, candidate, Claims(Effect.reassociating), lambda _: None) is not None
        assert len(made) <= 5, made


@pytest.mark.parametrize(
    ("times", "worth", "is_tried"),
    [(1.5, 1.15, False), (1.5, None, True), (1.5, 2.0, True), (1.1, 1.15, True), (0.5, 1.15, True)],
)
def test_what_surely_takes_too_long_is_not_verified(
    times: float, worth: float | None, is_tried: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tried_at_site: list[Any] = []
    monkeypatch.setattr(trial_module, "fault_at_site", lambda *given: tried_at_site.append(given))
    plain = [1.0, 1.01, 0.99, 1.0, 1.02]
    monkeypatch.setattr(trial_module, "times_in_turn", lambda *_: [[times * each for each in plain], plain])
    subject = Subject(plainly(SOFTMAX, Recipe(sets=1)), tmp_path)
    other = pcp.trace(lambda x: pcp.softmax(x + 0.0, -1), pcp.spec((40, 64), "f32"))
    site = Claims(Effect.reassociating)
    how = {"target": TARGET, "calls": 1, "timing_seconds": 1.0}
    request = Request(SOFTMAX, other, "path", site=site, worth=worth, **how)
    found = tried(subject, request, lambda _: None)
    assert found.failure is None
    assert bool(tried_at_site) == is_tried
    row = Measurement("0" * 16, "k@1", "0" * 16, "", tuple(found.seconds), tuple(found.plain_seconds))
    assert row.is_verified(worth or math.inf) == is_tried
    assert tried(subject, replace(request, timing_seconds=0.0), lambda _: None).failure is None
    assert len(tried_at_site) == is_tried + 1, "without times it is verified"
