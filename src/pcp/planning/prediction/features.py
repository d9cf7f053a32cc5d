"""What a region looks like to the cost model: a few numbers, each of which is one larger where something doubles."""

import functools
import math

import numpy as np
import numpy.typing as npt

from pcp.autodiff.flops import flops_of
from pcp.autodiff.loops.trips import trips_around
from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ops.linear.dot_axes import DotAxes
from pcp.planning.instrument import flat
from pcp.planning.prediction.cost_model import estimated_seconds

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
