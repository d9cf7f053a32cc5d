"""Batching of products: samples become a batching or a free axis of a dot, images or groups of a convolution."""

import re

from pcp.batching.rule import Batched, register_batching
from pcp.ir import TensorSpec
from pcp.ir.toolkit.attributes import dimension_numbers, integer_of
from pcp.ops.arrangement import moveaxis
from pcp.ops.movement import reshape
from pcp.tensor import Tensor


def _dot_general(batched: Batched) -> list[Tensor]:
    numbers = dimension_numbers(str(batched.op.attributes["dot_dimension_numbers"]))
    axes = [
        [numbers.get(f"{side}_{kind}_dimensions", ()) for kind in ("batching", "contracting")]
        for side in ("lhs", "rhs")
    ]
    both = all(batched.flags)
    for side, flag in zip(axes, batched.flags, strict=True):
        if flag:
            side[:] = [tuple(axis + 1 for axis in kind) for kind in side]
        if both:
            side[0] = (0, *side[0])
    (left_batch, left_contract), (right_batch, right_contract) = axes
    text = (
        f"#stablehlo.dot<lhs_batching_dimensions = {list(left_batch)}, rhs_batching_dimensions = {list(right_batch)}, "
        f"lhs_contracting_dimensions = {list(left_contract)}, rhs_contracting_dimensions = {list(right_contract)}>"
    )
    # The axis of samples of one side alone is the first of its free axes.
    place = 0 if both else len(left_batch)
    if not batched.flags[0]:
        place += len(batched.spec(0).shape) - len(left_batch) - len(left_contract)
    (spec,) = batched.specs
    shape = (*spec.shape[:place], batched.size, *spec.shape[place:])
    operands = [batched.operand(0), batched.operand(1)]
    (made,) = batched.clone_with(operands, {"dot_dimension_numbers": text}, [TensorSpec(shape, spec.dtype)])
    return [moveaxis(made, place, 0)]


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


register_batching({"dot_general": _dot_general, "convolution": _convolution})
