"""Blocks of a traced function whose inner values the gradient makes again: marks on their operations."""

import functools
from collections.abc import Callable, Sequence
from typing import Any

from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.autodiff.rematerialisation.policy import POLICIES, Policy, UnknownPolicy
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.tensor import current_builder, is_tracing

CHECKPOINT = "pcp.checkpoint"
"""The attribute of an operation in a block: its policy and the number of the block, `dots_saveable 3`."""


def checkpoint(function: Callable[..., Any], *, policy: str = "nothing_saveable") -> Callable[..., Any]:
    """A function of Tensors of which a gradient keeps only what goes in and what comes out.

    What it computes is the same. The backward pass makes its inner values again where it needs them, whatever `remat` the
    gradient is asked for with. Each call is a block of its own; inside another block, the inner mark counts.

    Arguments:
        function: takes and returns nested Tensors.
        policy: the name of what is kept inside: see `pcp.value_and_grad`.

    Raises:
        UnknownPolicy: there is no policy of that name.

    Source: `jax.checkpoint`; Chen, Xu, Zhang and Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
    """
    if policy not in POLICIES:
        raise UnknownPolicy(
            f"policy={policy!r} is not the name of a policy; choose one of {', '.join(POLICIES)}"
        )

    @functools.wraps(function)
    def marked(*arguments: Any, **named: Any) -> Any:
        if not is_tracing():
            return function(*arguments, **named)
        block = current_builder().scope.block
        before = len(list(block.operations))
        result = function(*arguments, **named)
        operations = [op.operation for op in list(block.operations)[before:]]
        for op in operations:
            if CHECKPOINT not in op.attributes:
                op.attributes[CHECKPOINT] = ir.StringAttr.get(f"{policy} {before}", op.context)
        return result

    return marked


def has_blocks(operations: Sequence[ir.Operation]) -> bool:
    """Whether any operation stands in a block."""
    return any(CHECKPOINT in op.attributes for op in operations)


def saved_in_blocks(graph: JointGraph, operations: Sequence[ir.Operation]) -> frozenset[int]:
    """The values of the forward pass that the marked blocks let be kept: results of blocks, and what stands in none."""
    marks = [
        string_of(op.attributes[CHECKPOINT]) if CHECKPOINT in op.attributes else None
        for op in operations[: graph.forward]
    ]
    leaving = {
        value
        for index, mark in enumerate(marks)
        for value in graph.reads[index]
        if value in graph.maker and marks[graph.maker[value]] != mark
    } | set(graph.returned)

    def is_saved(value: int, index: int) -> bool:
        mark = marks[index]
        return (
            mark is None
            or value in leaving
            or may_be_kept(POLICIES[mark.split()[0]], graph, operations, value)
        )

    return frozenset(
        value for value, index in graph.maker.items() if index < graph.forward and is_saved(value, index)
    )


def may_be_kept(policy: Policy, graph: JointGraph, operations: Sequence[ir.Operation], value: int) -> bool:
    """Whether a policy lets a value be kept; of composites it is asked about the operations inside that make it."""
    return all(map(policy, graph.inside.get(value, [operations[graph.maker[value]]])))
