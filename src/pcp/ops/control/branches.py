"""Branches as operations of the program: StableHLO's if and case, of which only the chosen branch is computed.

Results are nested containers of Tensors. A branch may use any Tensor of the function around it. A Python number that a branch
returns takes the element type that the other branches have at its place.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.ops.control.loops import end_block, may_become, truth
from pcp.ops.elementwise import clip, convert
from pcp.ops.promotion import promote
from pcp.ops.record import Kind, Supplied, declare
from pcp.tensor import (
    DTypeMismatch,
    Tensor,
    TensorLike,
    TracingError,
    as_tensor,
    current_builder,
    export_operations,
    is_weak,
    operation,
    weak_dtype,
)


class BranchMismatch(TracingError):
    """Branches whose results differ in nesting, shape or element type."""


@operation
def cond(predicate: TensorLike, true: Callable[..., Any], false: Callable[..., Any], *operands: Any) -> Any:
    """`true(*operands)` if the predicate holds, else `false(*operands)`; only one of them is computed.

    Arguments:
        predicate: a boolean scalar.
        true, false: return containers of one nesting, with leaves of the same shapes and element types.
        operands: given to both; nested containers.

    Raises:
        BranchMismatch: the results of the branches differ in nesting, shape or element type; the message names the leaf.
        DTypeMismatch: the predicate is no boolean scalar.
    """
    return _chosen("cond", "stablehlo.if", truth("cond", predicate), (true, false), operands)


@operation
def switch(index: TensorLike, branches: Sequence[Callable[..., Any]], *operands: Any) -> Any:
    """`branches[index](*operands)`; only that branch is computed. An index beyond the ends is clamped to them.

    Arguments:
        index: an integer scalar.
        branches: functions that return containers of one nesting, with leaves of the same shapes and element types.
        operands: given to each; nested containers.

    Raises:
        BranchMismatch: there is no branch, or the results differ in nesting, shape or element type; the message names the leaf.
        DTypeMismatch: the index is no integer scalar.
    """
    place = as_tensor(index)
    if place.shape != () or not place.dtype.is_integer:
        raise DTypeMismatch(f"switch: the index is {place.spec}; expected an integer scalar")
    if not branches:
        raise BranchMismatch("switch: no branches were given; expected at least one")
    last = min(len(branches) - 1, int(np.iinfo(place.dtype.numpy).max))
    clamped = convert(clip(place, 0, last), DType.i32)
    return _chosen("switch", "stablehlo.case", clamped, branches, operands)


def _chosen(
    name: str,
    stablehlo: str,
    choice: Tensor,
    branches: Sequence[Callable[..., Any]],
    operands: tuple[Any, ...],
) -> Any:
    """An operation with one region for each branch, built in a shell first: only then are the types of its results known."""
    builder = current_builder()
    leaves, tree = flatten(operands)
    arguments = tree.unflatten(as_tensor(leaf) for leaf in leaves)
    shell = builder.emit(stablehlo, [choice.value], [], regions=len(branches))
    returned, trees, ends = [], [], []
    try:
        for index, branch in enumerate(branches):
            with builder.region(shell, index, ()):
                results, nesting = flatten(branch(*arguments))
                returned.append([leaf if is_weak(leaf) else as_tensor(leaf) for leaf in results])
                trees.append(nesting)
                ends.append(end_block([]))
        specs = _common_specs(name, trees, returned)
        for end, row in zip(ends, returned, strict=True):
            with builder.before(end):
                values = [
                    (leaf if isinstance(leaf, Tensor) else as_tensor(leaf, spec.dtype)).value
                    for leaf, spec in zip(row, specs, strict=True)
                ]
                end_block(values)
            end.erase()
        op = builder.emit(stablehlo, [choice.value], specs, regions=len(branches))
        for region, built in zip(op.regions, shell.regions, strict=True):
            built.blocks[0].append_to(region)
    finally:
        shell.erase()
    return trees[0].unflatten(
        Tensor(value, builder, spec) for value, spec in zip(op.results, specs, strict=True)
    )


def _common_specs(name: str, trees: Sequence[Tree], returned: Sequence[Sequence[Any]]) -> list[TensorSpec]:
    for number, tree in enumerate(trees):
        if tree != trees[0]:
            raise BranchMismatch(
                f"{name}: branch 0 returns a result nested as {trees[0]}, branch {number} as {tree}; expected one nesting"
            )
    return [
        _common_spec(name, leaf, column)
        for leaf, column in zip(trees[0].names("result"), zip(*returned, strict=True), strict=True)
    ]


def _common_spec(name: str, leaf: str, column: Sequence[Any]) -> TensorSpec:
    strong = {number: entry.spec for number, entry in enumerate(column) if isinstance(entry, Tensor)}
    if not strong:
        return TensorSpec((), functools.reduce(promote, map(weak_dtype, column)))
    first, spec = next(iter(strong.items()))
    for number in range(len(column)):
        weak = number not in strong
        other = TensorSpec((), weak_dtype(column[number])) if weak else strong[number]
        if weak and spec.shape == () and may_become(other.dtype, spec.dtype):
            continue
        if other != spec:
            raise BranchMismatch(
                f"{name}: {leaf} is {spec} in branch {first} and {other} in branch {number}; "
                "expected one shape and element type"
            )
    return spec


declare(
    "case",
    Kind.control,
    derivative=Supplied("pcp.autodiff.rules.branches"),
    batching=Supplied("pcp.batching.rules.control"),
)
declare(
    "if",
    Kind.control,
    derivative=Supplied("pcp.autodiff.rules.branches"),
    batching=Supplied("pcp.batching.rules.control"),
)

export_operations(__name__)
