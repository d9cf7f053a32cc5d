"""What a judge says of results: every one by its forward error, but for what a training step cannot compute, and integers."""

import functools
from typing import Any

import numpy as np
import pytest
from tests.execution import OPTIMISED

import pcp
from pcp.backends import Target
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.planning.judging.comparison import Comparison
from pcp.planning.judging.judge import SAFETY, Judge, UnknownResult, named_places
from pcp.planning.judging.oracle import widened, widened_arrays
from pcp.planning.judging.rounding import in_other_roundings
from pcp.planning.judging.tolerance import Judged, ResultError
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.tensor import Tensor

COMPARISON = Comparison(Target.of())
RNG = np.random.default_rng(0)


@functools.cache
def planned(program: Program) -> pcp.Plan:
    return pcp.plan(program, cache=False, options=OPTIMISED)


def results_of(program: Program, arrays: list[Any]) -> list[Any]:
    nested = planned(program).run(*program.argument_tree.unflatten([np.array(a) for a in arrays]))
    return [np.asarray(leaf) for leaf in flatten(nested)[0]]


class Case:
    """A program, arguments for it, and its results in float64 and by the plain path."""

    def __init__(self, program: Program, arrays: list[Any] | None = None, warm: int = 0) -> None:
        self.program = program
        self.arrays = arrays or random_arguments(program.arguments, Recipe(warm_calls=warm), 0)
        for _ in range(warm):
            made = results_of(program, self.arrays)
            self.arrays = [
                array if entry.alias is None else made[entry.alias]
                for entry, array in zip(program.arguments, self.arrays, strict=True)
            ]
        wide = widened(program)
        self.exact = results_of(wide, list(widened_arrays(program.arguments, self.arrays)))
        self.plain = results_of(program, self.arrays)

    def judge(self, tolerance: float | None = None, ignored: tuple[int, ...] = ()) -> Judge:
        return Judge(self.program, self.arrays, self.exact, self.plain, COMPARISON, tolerance, ignored)

    def doubting(self, tolerance: float) -> Judge:
        """One that has float32 as its reference."""
        other = results_of(in_other_roundings(self.program), self.arrays)
        return Judge(self.program, self.arrays, self.plain, self.plain, COMPARISON, tolerance, (), [other])


def named(errors: list[ResultError]) -> dict[str, ResultError]:
    return {each.name: each for each in errors}


def cancelling() -> Program:
    """A product that cancels: float32 is wrong by 1e-3, and bfloat16 by more than all of it."""
    return pcp.trace(
        lambda x, w: (x + 2000.0) @ w - 2000.0 * w.sum(0),
        pcp.spec((64, 512), "f32"),
        pcp.spec((512, 48), "f32"),
    )


def step_with_a_key_bias(rate: float = 1e-2) -> Program:
    """A training step of attention whose keys have a bias, of which the exact gradient is 0, but not by its form: no rewrite
    knows that what keys are multiplied by adds up to 1."""
    part = np.tile(np.array([0.25, 0.5, 0.75], np.float32), 4)[:, None]

    def loss(p: Any, x: Tensor, y: Tensor) -> Tensor:
        query, key, value = (x @ p[name] for name in ("q", "k", "v"))
        key = (key + p["bias"]) * part + (key + p["bias"]) * (1 - part)
        scores = query @ key.transpose(0, 2, 1) / 4.0
        return ((pcp.nn.softmax(scores) @ value - y) ** 2).mean()

    params = {name: pcp.spec((16, 16), "f32") for name in ("q", "k", "v")} | {"bias": pcp.spec((16,), "f32")}
    inputs = pcp.spec((4, 12, 16), "f32")
    return pcp.training_step(pcp.trace(loss, params, inputs, inputs), pcp.optimizers.sgd(rate))


def test_the_error_is_the_forward_error_whatever_float32_misses() -> None:
    case = Case(cancelling())
    [plain] = case.judge(1e-2).plain
    assert 1e-4 < plain.error < 5e-3
    assert plain.judged is Judged.norm
    wrong = case.exact[0] * (1 + 0.03 * RNG.standard_normal(case.exact[0].shape))
    [error] = case.judge(1e-2).errors([wrong])
    assert error.error == pytest.approx(0.03, rel=0.1)
    [nothing] = case.judge(1e-2).errors([0 * case.plain[0]])
    assert nothing.error == pytest.approx(1.0)


def test_half_types_are_judged_by_the_same_error() -> None:
    program = pcp.trace(lambda x, w: x @ w, pcp.spec((64, 64), "bf16"), pcp.spec((64, 64), "bf16"))
    case = Case(program)
    [plain] = case.judge(1e-2).plain
    assert 1e-3 < plain.error < 1e-2
    [nothing] = case.judge(1e-2).errors([0 * case.plain[0]])
    assert nothing.error == pytest.approx(1.0)


@pytest.mark.cpu  # a GPU's sums miss less of this gradient
def test_a_gradient_that_is_zero_is_judged_on_the_scale_of_its_group() -> None:
    case = Case(step_with_a_key_bias(), warm=2)
    judge = case.judge(1e-2)
    plain = named(judge.plain)
    grouped = {name for name, each in plain.items() if each.judged is Judged.group}
    assert grouped
    assert all("bias" in name for name in grouped)
    for name in grouped:
        assert plain[name].missed > 1e-2
        assert plain[name].least_plain < 1e-4
    # What is added to a bias by mistake shows as a part of a usual update.
    place = next(i for i, entry in enumerate(case.program.results) if entry.name == "0.params.bias")
    found = list(case.plain)
    usual = np.concatenate(
        [
            (case.exact[entry.alias] - array).reshape(-1)
            for entry, array in zip(case.program.arguments, case.arrays, strict=True)
            if entry.group == "params" and entry.alias is not None and entry.alias != place
        ]
    )
    found[place] = case.exact[place] + 0.05 * np.sqrt(np.mean(usual**2))
    assert named(judge.errors(found))["0.params.bias"].error == pytest.approx(0.05, rel=1e-3)


def test_an_update_that_is_nothing_is_judged_on_the_scale_of_its_group() -> None:
    """Beside a large bias no path of float32 moves it, nor does float64: relative to nothing, all that moves it is wrong."""
    program = step_with_a_key_bias()
    place = next(i for i, entry in enumerate(program.results) if entry.name == "0.params.bias")
    arrays = list(Case(program).arrays)
    at = next(i for i, entry in enumerate(program.arguments) if entry.alias == place)
    arrays[at] = arrays[at] + np.float32(1e3)
    case = Case(program, arrays)
    assert np.array_equal(case.plain[place], arrays[at])
    found = list(case.plain)
    found[place] = case.exact[place] + 1e-9
    judged = named(case.judge(1e-2).errors(found))["0.params.bias"]
    assert judged.judged is Judged.group
    assert 0 < judged.error < 1e-2
    found[place] = case.exact[place] + 1.0
    assert named(case.judge(1e-2).errors(found))["0.params.bias"].error > 1
    alone = named(case.judge(None).errors(found))["0.params.bias"]
    assert alone.judged is Judged.norm


@pytest.mark.cpu  # a GPU's sums miss less of this gradient
def test_only_groups_of_training_steps_are_judged_so() -> None:
    case = Case(step_with_a_key_bias(), warm=2)
    nobodys = case.program.describing_state({}, {entry.name: "" for entry in case.program.arguments})
    judge = Judge(nobodys, case.arrays, case.exact, case.plain, COMPARISON, 1e-2)
    assert all(each.judged is not Judged.group for each in judge.plain)
    assert max(each.least_plain for each in judge.plain) > 1e-2


@pytest.mark.cpu  # a GPU's sums miss less of this gradient
def test_a_group_of_which_all_is_missed_has_no_scale() -> None:
    case = Case(step_with_a_key_bias(), warm=2)
    strict = case.judge(1e-12)
    assert all(each.judged is not Judged.group for each in strict.plain)


def test_gains_that_move_the_wrong_way_are_wrong() -> None:
    """All updates of one tensor with the other sign: an error of 2."""
    case = Case(step_with_a_key_bias(), warm=2)
    place = next(i for i, entry in enumerate(case.program.results) if entry.name == "0.params.q")
    before = next(a for e, a in zip(case.program.arguments, case.arrays, strict=True) if e.alias == place)
    found = list(case.plain)
    found[place] = 2 * before - case.exact[place]
    assert named(case.judge(1e-2).errors(found))["0.params.q"].error == pytest.approx(2.0, rel=1e-3)


def test_integers_are_judged_by_the_share_that_differs() -> None:
    program = pcp.trace(lambda x: (pcp.argmax(x, axis=1), x.sum(1)), pcp.spec((50, 9), "f32"))
    case = Case(program)
    picked, sums = case.plain
    other = picked.copy()
    other[:5] = (other[:5] + 1) % 9
    errors = case.judge(1e-2).errors([other, sums])
    assert (errors[0].judged, errors[0].error, errors[0].plain) == (Judged.share, 0.1, 0.0)
    assert errors[1].error < 1e-6


def test_what_is_ignored_is_left_out() -> None:
    program = pcp.trace(lambda x: {"a": x + 1.0, "b": {"c": x * 2.0, "d": x}}, pcp.spec((4,), "f32"))
    case = Case(program)
    ignored = named_places(program, ["b"])
    errors = case.judge(1e-2, tuple(ignored)).errors([case.plain[0], *(0 * each for each in case.plain[1:])])
    assert [each.name for each in errors] == ["a"]
    with pytest.raises(UnknownResult, match=r"no result is named 'e'; the results are a, b\.c, b\.d"):
        named_places(program, ["e"])


@pytest.mark.parametrize("make", [cancelling, lambda: step_with_a_key_bias(1.0)])
def test_float32_knows_what_it_misses(make: Any) -> None:
    """What other roundings say is the true error, neither much less nor much more."""
    case = Case(make(), warm=0)
    true = named(case.judge(None).plain)
    for each, value in zip(case.doubting(1e-12).plain, case.exact, strict=True):
        right = true[each.name]
        # A single number may come out the same by chance.
        if each.judged is Judged.norm and np.size(value) > 1 and 1e-7 < right.plain < 0.1:
            assert right.plain < each.plain < 8 * SAFETY * right.plain
            assert right.plain_slice <= 2 * each.plain_slice


def test_the_doubt_of_a_reference_is_added() -> None:
    case = Case(cancelling())
    wrong = (case.exact[0] * (1 + 3e-3 * RNG.standard_normal(case.exact[0].shape))).astype(np.float32)
    [true], [said] = case.judge(1e-2).errors([wrong]), case.doubting(1e-2).errors([wrong])
    assert true.error < said.error < true.error + 8 * SAFETY * true.plain


def test_a_reference_doubts_no_bits() -> None:
    program = pcp.trace(
        lambda x, i: (i + 1, pcp.maximum(x, 0.5)), pcp.spec((90,), "f32"), pcp.spec((7,), "i32")
    )
    made = in_other_roundings(program)
    arrays = random_arguments(program.arguments, Recipe(), 0)
    for a, b in zip(results_of(program, arrays), results_of(made, arrays), strict=True):
        np.testing.assert_array_equal(a, b)


def test_the_largest_numbers_stay_finite_in_other_roundings() -> None:
    program = pcp.trace(lambda x: x * 2.0, pcp.spec((4,), "f32"))
    x = np.array([np.finfo(np.float32).max / 2, -np.inf, np.nan, 1 / 3], np.float32)
    found = results_of(in_other_roundings(program), [x])[0]
    np.testing.assert_array_equal(found[:3], 2 * x[:3])
    assert 0 < abs(found[3] - 2 * x[3]) < 1e-6
