"""Batching of convolutions: samples become images or groups of a convolution."""

import re

from pcp.ir import TensorSpec
from pcp.ir.toolkit.attributes import integer_of
from pcp.ops.batching import Batched
from pcp.ops.movement import moveaxis, reshape
from pcp.ops.record import supply_batching
from pcp.tensor import Tensor


def _convolution(batched: Batched) -> list[Tensor]:
    attributes = batched.op.attributes
    named = [
        group.split(", ")
        for group in re.findall(r"\[([^]]*)\]", str(attributes["dimension_numbers"]).partition("<")[2])
    ]
    x_axes, kernel_axes, result_axes = (
        {letter: names.index(letter) for letter in names if letter.isalpha()} for names in named
    )
    groups = {n: integer_of(attributes[n]) for n in ("feature_group_count", "batch_group_count")}
    x, kernel = batched.operand(0), batched.operand(1)
    grown = result_axes["f"]
    if batched.flags == [True, False] and groups["batch_group_count"] == 1:
        x, grown = _folded(x, x_axes["b"]), result_axes["b"]
    elif batched.flags == [False, True] and set(groups.values()) == {1}:
        kernel = _folded(kernel, kernel_axes["o"])
    else:
        # Every sample is a group of its own.
        kind = "batch" if groups["batch_group_count"] > 1 else "feature"
        x = _folded(batched.operand_with_samples(0), x_axes[kind[0]])
        kernel = _folded(batched.operand_with_samples(1), kernel_axes["o"])
        groups[f"{kind}_group_count"] *= batched.size
    (spec,) = batched.specs
    shape = list(spec.shape)
    shape[grown] *= batched.size
    (made,) = batched.clone_with([x, kernel], groups, [TensorSpec(tuple(shape), spec.dtype)])
    shape[grown : grown + 1] = [batched.size, spec.shape[grown]]
    return [moveaxis(reshape(made, shape), grown, 0)]


def _folded(tensor: Tensor, axis: int) -> Tensor:
    """The first axis as the slower part of another, which is counted without it."""
    shape = list(tensor.shape[1:])
    shape[axis] *= tensor.shape[0]
    return reshape(moveaxis(tensor, 0, axis), shape)


supply_batching({"convolution": _convolution})
