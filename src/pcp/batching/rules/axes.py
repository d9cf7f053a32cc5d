"""Batching of operations that name axes in their attributes: every axis moves up by one, behind that of the samples."""

from collections.abc import Callable, Sequence
from typing import Any

from pcp.batching.rule import Batched, BatchingRule, register_batching
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integer_elements, integer_of, integers_of
from pcp.ops.windows import pairs_attribute
from pcp.tensor import Tensor

Change = Callable[[ir.Attribute, int], Any]
"""An attribute for all samples, from that for one and the number of samples."""


def _next(attribute: ir.Attribute, _: int) -> int:
    return integer_of(attribute) + 1


def _shifted(attribute: ir.Attribute, _: int) -> tuple[int, ...]:
    return tuple(axis + 1 for axis in integers_of(attribute))


def _behind_the_first(attribute: ir.Attribute, size: int) -> tuple[int, ...]:
    return (0, *_shifted(attribute, size))


def _led_by(number: int) -> Change:
    return lambda attribute, _: (number, *integers_of(attribute))


def _led_by_size(attribute: ir.Attribute, size: int) -> tuple[int, ...]:
    return (size, *integers_of(attribute))


def _unpadded_first(attribute: ir.Attribute, _: int) -> ir.Attribute:
    flat = integer_elements(attribute)
    return pairs_attribute([(0, 0), *zip(flat[::2], flat[1::2], strict=True)])


_WINDOWS: dict[str, Change] = {
    "window_dimensions": _led_by(1),
    "window_strides": _led_by(1),
    "base_dilations": _led_by(1),
    "window_dilations": _led_by(1),
    "padding": _unpadded_first,
}

# Where every operand has the axis of samples.
WHOLE: dict[str, dict[str, Change]] = {
    "transpose": {"permutation": _behind_the_first},
    "reshape": {},
    "broadcast_in_dim": {"broadcast_dimensions": _behind_the_first},
    "concatenate": {"dimension": _next},
    "slice": {"start_indices": _led_by(0), "limit_indices": _led_by_size, "strides": _led_by(1)},
    "reverse": {"dimensions": _shifted},
    "sort": {"dimension": _next},
    "map": {"dimensions": _behind_the_first},
    "bitcast_convert": {},
    "convert": {},
    "cholesky": {},
    "triangular_solve": {},
    "fft": {},
    "chlo.top_k": {},
    "all_reduce": {},
    "collective_permute": {},
    "all_gather": {"all_gather_dim": _next},
    "reduce_scatter": {"scatter_dimension": _next},
    "all_to_all": {"split_dimension": _next, "concat_dimension": _next},
}

# Where the last operands are scalars that must be the same for all samples: how many are not.
WITH_SCALARS: dict[str, tuple[Callable[[int], int], dict[str, Change]]] = {
    "pad": (
        lambda _: 1,
        {name: _led_by(0) for name in ("edge_padding_low", "edge_padding_high", "interior_padding")},
    ),
    "reduce": (lambda count: count // 2, {"dimensions": _shifted}),
    "reduce_window": (lambda count: count // 2, _WINDOWS),
    "select_and_scatter": (lambda _: 2, _WINDOWS),
}


def _row(wholes: Callable[[int], int], changes: dict[str, Change]) -> BatchingRule:
    def apply(batched: Batched) -> Sequence[Tensor] | None:
        count = wholes(len(batched.flags))
        if batched.captured or any(batched.flags[count:]):
            return None
        operands = [
            batched.operand_with_samples(i) if i < count else batched.operand(i)
            for i in range(len(batched.flags))
        ]
        known = batched.op.attributes
        changed = {
            name: change(known[name], batched.size) for name, change in changes.items() if name in known
        }
        return batched.clone_with(operands, changed)

    return apply


register_batching({name: _row(lambda count: count, changes) for name, changes in WHOLE.items()})
register_batching({name: _row(wholes, changes) for name, (wholes, changes) in WITH_SCALARS.items()})
