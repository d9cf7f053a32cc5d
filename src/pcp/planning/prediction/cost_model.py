"""How long a program may take, from shapes and element types alone: a guess that says what is worth measuring first; and what a
region looks like to the model of measured ones: a few numbers, each of which is one larger where something doubles."""

import functools
import math
from collections.abc import Iterable, Iterator

import numpy as np
import numpy.typing as npt

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import static_trips, trips_around
from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.record import Kind, is_bilinear, kind_of
from pcp.planning.instrument import flat

FLOPS = {2: 4e11, 4: 2e11, 8: 1e11}
"""Floating-point operations of products in a second, by the bytes of an operand's element; only ratios matter."""
BYTES = 2e10
"""Bytes moved in a second by everything else, as if half of it were fused."""


def estimated_seconds(program: Program) -> float:
    """The time of one call, for comparing programs with one another."""
    module = flat(program).module()
    return sum(_block(entry_block(module)))


def _block(block: ir.Block) -> Iterator[float]:
    for view in block.operations:
        op = view.operation
        if kind_of(op.name) is Kind.control:
            trips = static_trips(op) if op.name == "stablehlo.while" else None
            inner = [sum(_block(each)) for region in op.regions for each in region.blocks]
            yield trips * sum(inner) if isinstance(trips, int) else max(inner)
        elif is_bilinear(op.name):
            width = max(1, bytes_of([op.operands[0]]) // max(1, spec_of(op.operands[0].type).size))
            yield flops_of(op) / FLOPS.get(width, FLOPS[8]) + bytes_of([*op.operands, *op.results]) / BYTES
        elif op.name not in ("stablehlo.constant", "stablehlo.reshape", "func.return", "stablehlo.return"):
            yield bytes_of([*op.operands, *op.results]) / BYTES


def bytes_of(values: Iterable[Value]) -> int:
    """The bytes of values; a token has none."""
    return sum(spec.bytes for value in values if (spec := spec_if_tensor(value.type)))


Features = npt.NDArray[np.float64]

NAMES = (
    "seconds by the analytic model",
    "operations of products",
    "operations of the others",
    "bytes of arguments",
    "bytes of results",
    "elements that are contracted in the largest product",
    "elements of its left operand that are not",
    "elements of its right operand that are not",
    "elements of its batch",
    "last dimension of its left operand contracted",
    "last dimension of its right operand contracted",
    "bytes of an element",
    "kinds of operations",
)


@functools.lru_cache(maxsize=1024)
def features_of(program: Program) -> Features:
    """The features of a region, in the order of `NAMES`; logarithms to base 2."""
    module = flat(program).module()
    products: list[tuple[float, ir.Operation]] = []
    others, kinds = 0.0, set()
    loops: dict[ir.Operation, int] = {}
    for op in walk_block(entry_block(module)):
        trips = trips_around(op, loops)
        kinds.add(op.name)
        if op.name == "stablehlo.dot_general":
            products.append((trips * flops_of(op), op))
        else:
            others += trips * flops_of(op)
    sizes = [entry.spec.bytes / max(1, entry.spec.size) for entry in program.arguments]
    largest = max(products, key=lambda each: each[0], default=None)
    return np.array(
        [
            math.log2(max(estimated_seconds(program), 1e-9)),
            _log(sum(flops for flops, _ in products)),
            _log(others),
            _log(sum(entry.spec.bytes for entry in program.arguments)),
            _log(sum(entry.spec.bytes for entry in program.results)),
            *(_product(largest[1]) if largest else [0.0] * 6),
            _log(max(sizes, default=0.0)),
            _log(len(kinds)),
        ]
    )


def _product(op: ir.Operation) -> list[float]:
    """Sizes of a product, and which way its operands lie in memory."""
    axes = DotAxes.of(op)
    left, right = (spec_of(value.type).shape for value in op.operands)
    contracted, others = axes.contract
    depth = math.prod(left[axis] for axis in contracted)
    batches = math.prod(left[axis] for axis in axes.batch[0])
    return [
        _log(depth),
        _log(math.prod(left) / max(1, depth * batches)),
        _log(math.prod(right) / max(1, depth * batches)),
        _log(batches),
        float(len(left) - 1 in contracted),
        float(len(right) - 1 in others),
    ]


def _log(count: float) -> float:
    return math.log2(1.0 + count)
