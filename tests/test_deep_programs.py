"""Programs of many operations, each of which depends on the one before: no walk's depth is that of the program.

They have twenty thousand operations in the long tests. Else an eighth of that is enough, because the stack is an eighth, too:
neither a walk of Python nor one of MLIR that calls itself ends well there.
"""

import functools
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.ir import NestedTooDeeply
from pcp.ir.operations import operations_of
from pcp.planning.diagnostics.cost import estimate_cost
from pcp.rewrite.raising import raised
from pcp.rewrite.simplify import simplify
from tests.execution import run

MANY = 20_000
LENGTH = MANY // 8
STACK, CALLS = 1 << 20, 400
"""Bytes of a little stack, and how many calls of Python are inside of one another there."""


def on_a_little_stack(test: Callable[..., None]) -> Callable[..., None]:
    """The test, run by a thread of its own that has one."""

    @functools.wraps(test)
    def run(*arguments: Any, **named: Any) -> None:
        raised: list[BaseException] = []

        def inside() -> None:
            try:
                test(*arguments, **named)
            except BaseException as error:
                raised.append(error)

        limit, size = sys.getrecursionlimit(), threading.stack_size(STACK)
        sys.setrecursionlimit(CALLS)
        try:
            thread = threading.Thread(target=inside)
            thread.start()
            threading.stack_size(size)
            thread.join()
        finally:
            sys.setrecursionlimit(limit)
        if raised:
            raise raised[0]

    return run


@on_a_little_stack
def test_a_little_stack_is_little() -> None:
    def deep(count: int) -> int:
        return 1 + deep(count - 1) if count else 0

    assert deep(CALLS // 2) == CALLS // 2
    with pytest.raises(RecursionError):
        deep(CALLS)


def chain(step: Callable[[pcp.Tensor], pcp.Tensor], length: int) -> Callable[..., pcp.Tensor]:
    def function(x: pcp.Tensor) -> pcp.Tensor:
        for _ in range(length):
            x = step(x)
        return x.sum()

    return function


def check_a_chain(length: int, folder: Path) -> None:
    """It is traced, known, saved, listed, simplified and transformed."""
    program = pcp.trace(chain(lambda x: x * 1.0001, length), pcp.spec((3,), "f32"))
    program.save(folder / "chain.mlir")
    assert pcp.Program.load(folder / "chain.mlir").digest == program.digest
    assert len(operations_of(program)) > length
    assert estimate_cost(program).kinds["multiply"].count == length
    assert simplify(program).digest == program.digest
    for made in (pcp.value_and_grad(program), pcp.jvp(program), pcp.vmap(program, size=2)):
        assert len(operations_of(made)) > length


@on_a_little_stack
def test_a_chain_takes_no_stack(tmp_path: Path) -> None:
    check_a_chain(LENGTH, tmp_path)


@pytest.mark.long
def test_a_chain_of_many_takes_no_stack(tmp_path: Path) -> None:
    check_a_chain(MANY, tmp_path)


@on_a_little_stack
def test_patterns_look_back_a_few_operations_only() -> None:
    """Sums of constants, masks and biases before a softmax: where patterns are sought, however long the way back is."""

    def masked(x: pcp.Tensor, mask: pcp.Tensor) -> pcp.Tensor:
        count, doubled = ops.iota((4, 4), 1), ops.full((), 1, "i32")
        for _ in range(LENGTH // 5):
            count, doubled = count + 1, doubled + doubled
            x, mask = x + x, ops.bitwise_and(mask, mask)
        seen = ops.bitwise_and(mask, count >= doubled)
        return ops.softmax(ops.where(seen, x, -1e30)) @ x

    program = pcp.trace(masked, pcp.spec((4, 4), "f32"), pcp.spec((4, 4), "bool"))
    assert len(operations_of(raised(program))) > LENGTH // 5


@on_a_little_stack
def test_a_condition_of_many_parts_and_a_step_of_many_sums_are_read_at_once() -> None:
    """Each value is used twice, so a walk that forgets what it has seen doubles its work at every operation."""

    def counting(x: pcp.Tensor) -> pcp.Tensor:
        def more(carry: tuple[pcp.Tensor, pcp.Tensor]) -> pcp.Tensor:
            goes_on = carry[0] < 5
            for _ in range(LENGTH):
                goes_on = ops.bitwise_and(goes_on, goes_on)
            return goes_on

        def step(carry: tuple[pcp.Tensor, pcp.Tensor]) -> tuple[pcp.Tensor, pcp.Tensor]:
            one = ops.full((), 1, "i32")
            for _ in range(30):
                one = ops.maximum(one, one)
            return carry[0] + one, ops.sin(carry[1])

        found: tuple[pcp.Tensor, pcp.Tensor] = ops.while_loop(more, step, (ops.full((), 0, "i32"), x))
        return found[1].sum()

    x = np.random.default_rng().standard_normal(3).astype(np.float32)
    expected = x
    for _ in range(5):
        expected = np.sin(expected)
    value, _ = run(pcp.value_and_grad(pcp.trace(counting, x)), x)
    np.testing.assert_allclose(value, expected.sum(), rtol=1e-5)


def branches(depth: int) -> str:
    """A program of conditionals inside of one another."""
    inner = "stablehlo.return %x : tensor<f32>"
    ends = "{ stablehlo.return %x : tensor<f32> }) : (tensor<i1>) -> tensor<f32>"
    text = '%y = "stablehlo.if"(%p) ({\n' * depth + inner
    text += f"\n}}, {ends}\n stablehlo.return %y : tensor<f32>" * (depth - 1) + f"\n}}, {ends}\n"
    head = "func.func public @main(%x: tensor<f32>, %p: tensor<i1>) -> tensor<f32>"
    return f"{head} {{\n{text} return %y : tensor<f32> }}"


def test_regions_that_a_compiler_bears_are_differentiated() -> None:
    assert pcp.grad(pcp.Program.parse(branches(100))).results


@pytest.mark.parametrize("depth", [101, 2_000, 50_000])
def test_regions_that_would_end_the_compiler_are_refused(depth: int) -> None:
    with pytest.raises(
        NestedTooDeeply, match=r"the regions of operations .* nested more than 100 deep.*fewer"
    ):
        pcp.Program.parse(branches(depth))


def test_branches_that_are_traced_inside_of_one_another_are_refused() -> None:
    def nested(x: pcp.Tensor, depth: int = 2_000) -> pcp.Tensor:
        return ops.cond(x > 0, lambda x: nested(x, depth - 1), lambda x: x, x) if depth else x

    with pytest.raises(NestedTooDeeply, match="nested more than 100 deep"):
        pcp.trace(lambda x: nested(x), pcp.spec((), "f32"))


def test_containers_in_containers() -> None:
    deep: Any = pcp.spec((2,), "f32")
    for _ in range(2_000):
        deep = [deep]
    with pytest.raises(NestedTooDeeply, match=r"containers are nested more than 100 deep.*flatter"):
        pcp.trace(lambda x: x, deep)
    itself: list[Any] = []
    itself.append(itself)
    with pytest.raises(NestedTooDeeply, match="containers are nested"):
        pcp.trace(lambda x: x, itself)


def calls(depth: int, around: str = "{}") -> str:
    """A program of functions of which each calls the next one, and adds 1 to what that returns."""
    kind = "(tensor<f32>) -> tensor<f32>"
    head = "func.func {}(%x: tensor<f32>) -> tensor<f32> {{"
    functions = [f"{head.format('public @main')} %y = func.call @f1(%x) : {kind}"]
    functions[0] += "\n return %y : tensor<f32> }"
    for i in range(1, depth):
        call = around.format(f"%y = func.call @f{i + 1}(%x) : {kind}")
        functions.append(
            f"{head.format(f'private @f{i}')} {call}\n %one = stablehlo.constant dense<1.0> : tensor<f32>"
            "\n %z = stablehlo.add %y, %one : tensor<f32>\n return %z : tensor<f32> }"
        )
    functions.append(
        f"{head.format(f'private @f{depth}')} %z = stablehlo.sine %x : tensor<f32>\n return %z : tensor<f32> }}"
    )
    return "\n".join(functions)


@pytest.mark.parametrize("depth", [49, CALLS + 100, pytest.param(1_000, marks=pytest.mark.long)])
@on_a_little_stack
def test_functions_that_call_one_another(depth: int) -> None:
    program = pcp.Program.parse(calls(depth))
    x = np.float32(0.5)
    np.testing.assert_allclose(run(program, x), np.sin(x) + depth - 1, rtol=1e-6)
    value, gradient = run(pcp.value_and_grad(program), x)
    np.testing.assert_allclose([value, gradient], [np.sin(x) + depth - 1, np.cos(x)], rtol=1e-6)
    assert simplify(program).results


IN_A_BRANCH = """%p = stablehlo.compare GT, %x, %x : (tensor<f32>, tensor<f32>) -> tensor<i1>
%y = "stablehlo.if"(%p) ({{ {} stablehlo.return %y : tensor<f32> }}, {{ stablehlo.return %x : tensor<f32> }})
  : (tensor<i1>) -> tensor<f32>"""


@pytest.mark.parametrize("work", [pcp.plan, pcp.grad, simplify, lambda program: program.digest])
def test_calls_in_branches_of_functions_that_are_called_in_branches(
    work: Callable[[pcp.Program], Any],
) -> None:
    work(pcp.Program.parse(calls(20, IN_A_BRANCH)))
    with pytest.raises(
        NestedTooDeeply, match=r"that call one another's functions are nested more than 100 deep.*fewer"
    ):
        work(pcp.Program.parse(calls(400, IN_A_BRANCH)))
