"""Whole operations and programs by torch in the arena, beside the arena alone and XLA, and as a place of single operations."""

import random
import sys
from collections.abc import Iterator
from pathlib import Path as FilePath
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from benchmarks.backends.cells import TORCH, every_cell, judged, of_any_size, result_of
from benchmarks.backends.operations import CASES, TYPES
from tests.backends.arena.lifetimes import problems_of
from tests.backends.arena.test_operations import REFUSED, UNKNOWN_TO_XLA, arguments_of
from tests.execution import run
from tests.ir.bare_operations import BARE
from tests.ops.edges.cases import EVERY, cases_of
from tests.ops.edges.test_values import complaints, traced

import pcp
from pcp.backends import CompilationFailed, Target
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.torch import kernels
from pcp.backends.arena.torch.convolutions import convolve
from pcp.backends.arena.torch.tensors import tensor_over
from pcp.backends.regions import RegionsExecutable, compiled_in_places
from pcp.ir.tree import flatten
from pcp.ops import conv_general
from pcp.planning.placing.measured import copy_costs
from pcp.planning.placing.operations import placed

QUICK_EDGES = ("exp", "tanh", "power", "maximum", "floor_divide", "sum", "max", "matmul", "where", "log1p")
"""Those whose numbers at the edges differ most from library to library."""


@pytest.fixture(autouse=True)
def any_size() -> Iterator[None]:
    with of_any_size():
        yield


def executable(program: pcp.Program) -> ArenaExecutable:
    made = Target.of(TORCH).compile(program)
    assert isinstance(made, ArenaExecutable)
    assert problems_of(made) == []
    return made


def by_torch(program: pcp.Program) -> list[Any]:
    """The functions that torch runs of a program."""
    return [each.function for each in executable(program).recording.instructions if each.over is tensor_over]


def check_cells(cells: Any, seed: int) -> None:
    for cell in cells:
        made, expected = (result_of(place, *cell, seed) for place in (TORCH, "arena:cpu"))
        if expected.result is None:  # there is no such operation
            assert made == expected
        else:
            assert judged(cell, made, expected.result) == "", f"{cell} with seed {seed}"


def test_a_sample_of_operations_in_their_types_is_that_of_the_arena() -> None:
    seed = random.randrange(2**31)
    check_cells(random.Random(seed).sample(every_cell(list(CASES), TYPES), 80), seed)


@pytest.mark.long
def test_every_operation_in_every_type_is_that_of_the_arena() -> None:
    check_cells(every_cell(list(CASES), TYPES), random.randrange(2**31))


def check_edges(name: str) -> None:
    cases = list(cases_of(name, thorough=False, of=3))
    operands = [case.operands for case in cases]
    assert complaints(cases, pcp.plan(traced(cases), TORCH).run(operands)) == []


@pytest.mark.parametrize("name", [name for name in QUICK_EDGES if name in EVERY])
def test_numbers_at_the_edges_are_those_of_numpy(name: str) -> None:
    check_edges(name)


@pytest.mark.long
@pytest.mark.parametrize("name", sorted(EVERY))
def test_all_numbers_at_the_edges_are_those_of_numpy(name: str) -> None:
    check_edges(name)


@pytest.mark.parametrize("name", sorted(BARE.keys() - REFUSED - UNKNOWN_TO_XLA))
def test_an_operation_with_its_attributes_left_out_is_that_of_xla(name: str) -> None:
    program = pcp.Program.parse(BARE[name])
    executable(program)
    nested = program.argument_tree.unflatten(arguments_of(program))
    made, expected = (
        flatten(each)[0] for each in (pcp.plan(program, TORCH).run(*nested), run(program, *nested))
    )
    for one, other in zip(made, expected, strict=True):
        wide = np.complex128
        np.testing.assert_allclose(np.asarray(one).astype(wide), other.astype(wide), rtol=1e-2, atol=1e-4)


CONVOLUTION = """
func.func @main(%x: tensor<4x7x6x4x?>, %w: tensor<{kernel}x?>) -> tensor<{result}x?> {{
  %r = stablehlo.convolution(%x, %w) dim_numbers = [b, 0, 1, f]x[0, 1, i, o]->[b, 0, 1, f],
    window = {{{window}}} {{batch_group_count = {batches} : i64, feature_group_count = {groups} : i64}}
    : (tensor<4x7x6x4x?>, tensor<{kernel}x?>) -> tensor<{result}x?>
  return %r : tensor<{result}x?>
}}"""
CONVOLUTIONS = {
    "plain": ("", "3x2x4x6", "4x5x5x6", 1, 1),
    "strides and even padding": ("stride = [2, 1], pad = [[1, 1], [1, 1]]", "3x2x4x6", "4x4x7x6", 1, 1),
    "uneven padding": ("pad = [[0, 2], [1, 0]]", "3x2x4x6", "4x7x6x6", 1, 1),
    "negative padding": ("pad = [[-1, -1], [0, 1]]", "3x2x4x6", "4x3x6x6", 1, 1),
    "dilated input": ("lhs_dilate = [2, 3]", "3x2x4x6", "4x11x15x6", 1, 1),
    "dilated kernel": ("rhs_dilate = [2, 3]", "3x2x4x6", "4x3x3x6", 1, 1),
    "backwards": ("reverse = [true, false]", "3x2x4x6", "4x5x5x6", 1, 1),
    "groups": ("", "3x2x2x6", "4x5x5x6", 1, 2),
    "channels alone": ("", "3x2x1x4", "4x5x5x4", 1, 4),
    "groups of the batch": ("", "3x2x4x6", "2x5x5x6", 2, 1),
}  # fmt: skip


@pytest.mark.parametrize("dtype", ["f64", "f32", "bf16", "f16", "i32"])
@pytest.mark.parametrize("name", CONVOLUTIONS)
def test_a_convolution_is_that_of_the_arena(name: str, dtype: str) -> None:
    window, kernel, result, batches, groups = CONVOLUTIONS[name]
    text = CONVOLUTION.format(window=window, kernel=kernel, result=result, batches=batches, groups=groups)
    program = pcp.Program.parse(text.replace("?", dtype))
    arrays = arguments_of(program)
    made, expected = (
        np.asarray(pcp.plan(program, place).run(*arrays), np.float64) for place in (TORCH, "arena:cpu")
    )
    near = {"f64": 1e-12, "f32": 1e-5, "bf16": 2e-2, "f16": 2e-3}.get(dtype, 0)
    np.testing.assert_allclose(made, expected, rtol=near)
    assert (convolve in by_torch(program)) == (batches == 1 and dtype != "i32")


@pytest.mark.parametrize(("shape", "kernel"), [((2, 9, 3), (2, 3, 4)), ((2, 5, 4, 5, 3), (2, 2, 2, 3, 4))])
def test_convolutions_have_up_to_three_axes(shape: tuple[int, ...], kernel: tuple[int, ...]) -> None:
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=each).astype(np.float32) for each in (shape, kernel))
    program = pcp.trace(lambda x, w: conv_general(x, w, padding="SAME"), x, w)
    np.testing.assert_allclose(pcp.plan(program, TORCH).run(x, w), run(program, x, w), rtol=1e-4, atol=1e-5)
    assert convolve in by_torch(program)


def test_products_of_bfloat16_are_computed_where_they_lie() -> None:
    program = pcp.trace(lambda x, y: pcp.tanh(x @ y) @ y, *[pcp.spec((64, 64), "bf16")] * 2)
    mine, other = executable(program), Target.of("arena:cpu").compile(program)
    assert isinstance(other, ArenaExecutable)
    assert 2 * mine.workspace <= other.workspace
    assert (mine.memory.exact, other.memory.exact) == (False, True)
    assert by_torch(program).count(kernels.KERNELS[np.matmul].function) == 2
    rng = np.random.default_rng(0)
    x, y = (rng.normal(size=(64, 64), scale=0.3).astype(ml_dtypes.bfloat16) for _ in range(2))
    exact = np.tanh(x.astype(float) @ y.astype(float)) @ y.astype(float)
    made = np.asarray(pcp.plan(program, TORCH).run(x, y)).astype(float)
    assert np.abs(made - exact).max() / np.abs(exact).max() < 2**-7


def test_loops_and_state_are_those_of_the_arena() -> None:
    def function(state: Any, x: Any) -> Any:
        _, made = pcp.while_loop(lambda c: c[0] < 5, lambda c: (c[0] + 1, pcp.tanh(c[1] @ x)), (0, state))
        return made

    program = pcp.trace(function, *[pcp.spec((40, 40), "f32")] * 2, roles=("state", "input"))
    rng = np.random.default_rng(0)
    given, x = (rng.normal(size=(40, 40), scale=0.1).astype(np.float32) for _ in range(2))
    plan = pcp.plan(program, TORCH)
    assert problems_of(executable(program)) == []
    [state] = plan.place(given, x)[:1]
    wide = given
    for _ in range(3):
        state = plan.run(state, x)
        for _ in range(5):
            wide = np.tanh(wide @ x)
    np.testing.assert_allclose(np.asarray(state), wide, rtol=1e-3, atol=1e-4)


def test_one_plan_takes_other_arguments_each_time() -> None:
    program = pcp.trace(lambda x, y: (x @ y, pcp.sum(x)), *[pcp.spec((70, 70), "f32")] * 2)
    plan = pcp.plan(program, TORCH)
    rng = np.random.default_rng(0)
    for _ in range(3):
        x, y = (rng.normal(size=(70, 70)).astype(np.float32) for _ in range(2))
        x.flags.writeable = False
        product, total = plan.run(x, y)
        np.testing.assert_allclose(product, x @ y, rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(total, x.sum(), rtol=1e-3)


# As a place.


def in_places(home: str, places: dict[str, str]) -> tuple[pcp.Program, RegionsExecutable]:
    program = pcp.trace(lambda x, w: pcp.exp(pcp.sin(x @ w)) @ w, *[pcp.spec((50, 50), "f32")] * 2)
    path = placed(program, places)
    made = compiled_in_places(program, Target.of(home), path.placement)
    assert isinstance(made, RegionsExecutable)
    return program, made


@pytest.mark.parametrize(
    ("home", "places", "copies"),
    [
        ("arena:cpu", {"dot_general": TORCH}, 0),
        (TORCH, {"sine": "arena:cpu"}, 0),
        ("cpu:0", {"sine": TORCH}, 2),
        ("cpu:0", {"sine": TORCH, "exponential": "arena:cpu"}, 2),  # there and back, none between the two
    ],
)
def test_it_shares_its_arrays_with_the_arena(home: str, places: dict[str, str], copies: int) -> None:
    program, made = in_places(home, places)
    assert len(made.copies) == copies
    rng = np.random.default_rng(0)
    x, w = (rng.normal(size=(50, 50)).astype(np.float32) for _ in range(2))
    target = Target.of(home)
    given = [target.place(each, entry.spec) for each, entry in zip((x, w), program.arguments, strict=True)]
    [result] = made.run(given)
    assert target.runner.is_buffer(result)
    np.testing.assert_allclose(np.asarray(result), np.exp(np.sin(x @ w)) @ w, rtol=1e-2, atol=1e-3)


def test_between_it_and_the_arena_bytes_cost_nothing() -> None:
    costs = copy_costs([Target.of(place) for place in ("cpu:0", "arena:cpu", TORCH)])
    assert costs[1, 2].seconds(1 << 40) == costs[1, 2].latency > 0
    assert costs[0, 2].seconds(1 << 40) > costs[0, 2].latency


def test_a_path_says_for_each_operation_who_runs_it(tmp_path: FilePath) -> None:
    program = pcp.trace(lambda x: pcp.exp(pcp.tanh(x)), pcp.spec((300,), "bf16"))
    path = placed(program, {"tanh": TORCH}, pcp.Path.plain(program, {}, "arena"))
    path.save(tmp_path / "path.json")
    plan = pcp.plan(program, path=pcp.Path.load(tmp_path / "path.json"))
    assert "regions     2: 1 on cpu:0 by torch, 1 on cpu:0 by arena; 0 values of 0 bytes are copied" in str(
        plan
    )
    x = np.linspace(-2, 2, 300).astype(ml_dtypes.bfloat16)
    exact = np.exp(np.tanh(x.astype(float)))
    np.testing.assert_allclose(np.asarray(plan.run(x)).astype(float), exact, rtol=2e-2)


def test_a_pytorch_that_cannot_be_imported_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pcp.backends.arena.torch.convolutions", None)
    with pytest.raises(
        CompilationFailed, match=r"PyTorch 2\S* cannot be imported: .*; install one that fits this machine"
    ):
        pcp.plan(pcp.trace(pcp.tanh, pcp.spec((3,), "f32")), TORCH)


@pytest.mark.long
def test_a_search_takes_it_where_it_is_faster(tmp_path: FilePath) -> None:
    """NumPy has no fast product of integers: torch's takes a tenth of its time and less."""
    program = pcp.trace(lambda x, y: pcp.max(x @ y, axis=1), *[pcp.spec((400, 400), "i32")] * 2)
    plan = pcp.plan(
        program, ["arena:cpu", TORCH], tolerance=1e-2, budget=60, database=tmp_path / "profile.db"
    )
    assert "torch" in (plan.path.backend, str(plan.path.placement).rpartition(" on ")[2].partition(":")[0])
    rng = np.random.default_rng(0)
    x, y = (rng.integers(-9, 9, (400, 400)).astype(np.int32) for _ in range(2))
    np.testing.assert_array_equal(plan.run(x, y), (x.astype(np.int64) @ y).max(1))
