"""Values that depend on no argument, computed here as far as they are few: what a front end writes in many operations to say a
mask is known before anything runs.

Only operations count whose results IEEE 754 defines to the last bit. An array is a view without copies along axes where all is
the same, and no operation computes such an axis more than once.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integer_elements, integers_of
from pcp.ir.toolkit.constants import splat_of
from pcp.ir.toolkit.dataflow import defining_op
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.record import RECORDS, Kind
from pcp.rewrite.pattern import is_beyond_rows, is_default_accuracy

Array = np.ndarray[Any, Any]

LARGEST = 1 << 26
"""Elements of one value, at most, those that are repeated counted once."""
MOST = 1 << 28
"""Elements of all values that are computed for one program."""

_JOINED = {
    "and": np.logical_and,
    "or": np.logical_or,
    "maximum": np.maximum,
    "minimum": np.minimum,
    "add": np.add,
}
"""By what a reduction joins two elements, the function of NumPy that does; sums are of integers alone."""


@dataclass(eq=False, slots=True)
class _Node:
    """An operation that depends on no argument, with those that it takes; equal ones are one."""

    op: ir.Operation
    operands: "tuple[_Node, ...]"
    array: Array | None = None
    is_tried: bool = False


@dataclass(eq=False, slots=True)
class Known:
    """What is known of the values of one program, as long as nothing in it changes."""

    _nodes: dict[Value, _Node | None] = field(default_factory=dict)
    _equal: dict[Hashable, _Node] = field(default_factory=dict)
    _computed: int = 0

    def is_free(self, value: Value) -> bool:
        """Whether a value depends on no argument, through operations that can be computed here."""
        return self._node(value) is not None

    def of(self, value: Value) -> Array | None:
        """The elements of a value; None if it depends on an argument, or they are too many."""
        start = self._node(value)
        if start is None:
            return None
        waiting = [start]
        while waiting:
            node = waiting[-1]
            missing = [] if node.is_tried else [each for each in node.operands if not each.is_tried]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            if not node.is_tried:
                node.is_tried = True
                arrays = [each.array for each in node.operands]
                if all(array is not None for array in arrays):
                    node.array = self._result(node.op, [array for array in arrays if array is not None])
        return start.array

    def _node(self, value: Value) -> _Node | None:
        nodes, waiting = self._nodes, [value]
        while waiting:
            each = waiting[-1]
            op = None if each in nodes else defining_op(each)
            if op is None or not _is_computed(op) or any(nodes.get(x, 0) is None for x in op.operands):
                nodes.setdefault(waiting.pop(), None)
                continue
            missing = next((operand for operand in op.operands if operand not in nodes), None)
            if missing is not None:
                waiting.append(missing)
                continue
            operands = tuple(node for x in op.operands if (node := nodes[x]) is not None)
            named = (entry if isinstance(entry, str) else entry.name for entry in op.attributes)
            said = frozenset((name, op.attributes[name]) for name in named)
            joined = combiner(op.regions[0]) if len(op.regions) else ""
            key = (op.name, said, joined, each.type, tuple(map(id, operands)))
            nodes[waiting.pop()] = self._equal.setdefault(key, _Node(op, operands))
        return nodes[value]

    def _result(self, op: ir.Operation, arrays: Sequence[Array]) -> Array | None:
        result = _computed(op, arrays)
        if result is None:
            return None
        self._computed += stored(result)
        return result if self._computed <= MOST else None


def stored(array: Array) -> int:
    """How many elements an array holds, those that are repeated counted once."""
    return int(
        np.prod([size for size, step in zip(array.shape, array.strides, strict=True) if step], dtype=np.int64)
    )


def narrow(array: Array, *others: Array) -> Array:
    """An array of which axes are left out, one element being left, along which it and others of its shape are repeated."""
    alike = [
        all(x.strides[axis] == 0 or x.shape[axis] == 1 for x in (array, *others))
        for axis in range(array.ndim)
    ]
    return array[tuple(slice(0, 1) if same else slice(None) for same in alike)]


def _is_computed(op: ir.Operation) -> bool:
    if len(op.results) != 1 or is_beyond_rows(op) or spec_of(op.results[0].type).dtype.kind == "complex":
        return False
    if not is_default_accuracy(op):
        return False
    if op.name in ("stablehlo.reduce", "stablehlo.reduce_window"):
        joined = combiner(op.regions[0])
        return joined in _JOINED and (joined != "add" or spec_of(op.results[0].type).dtype.is_integer)
    record = RECORDS.get(op.name)
    return record is not None and (
        record.fold is not None or op.name in ("stablehlo.constant", "stablehlo.iota")
    )


def _computed(op: ir.Operation, arrays: Sequence[Array]) -> Array | None:
    """The result of an operation, from those of its operands."""
    spec = spec_of(op.results[0].type)
    if 0 in spec.shape:
        return None
    name = op.name.removeprefix("stablehlo.")
    if name == "constant":
        return _constant(op, spec)
    if name == "iota":
        axis = ir.IntegerAttr(op.attributes["iota_dimension"]).value
        counted = np.arange(spec.shape[axis], dtype=spec.dtype.numpy)
        along = [-1 if i == axis else 1 for i in range(len(spec.shape))]
        return np.broadcast_to(counted.reshape(along), spec.shape)
    if name == "broadcast_in_dim":
        places = integers_of(op.attributes["broadcast_dimensions"])
        turned = arrays[0].transpose(np.argsort(places))
        sizes = dict(zip(places, arrays[0].shape, strict=True))
        return np.broadcast_to(turned.reshape([sizes.get(i, 1) for i in range(len(spec.shape))]), spec.shape)
    if name == "reduce":
        return _reduced(op, arrays[0], arrays[1])
    if name == "reduce_window":
        return _running(op, arrays[0], arrays[1])
    record = RECORDS[op.name]
    assert record.fold is not None
    if record.kind is Kind.elementwise:
        whole = [np.broadcast_to(array, spec.shape) for array in arrays]
        inputs = [narrow(array, *whole) for array in whole]
        size = int(np.prod(inputs[0].shape, dtype=np.int64)) if inputs else 1
    else:
        inputs = list(arrays)
        size = spec.size if name in ("gather", "pad") else max(map(stored, arrays), default=1)
    if size > LARGEST:
        return None
    with np.errstate(all="ignore"):
        result = record.fold(op, *inputs)
    if result is None:
        return None
    result = np.asarray(result)
    return np.broadcast_to(result.astype(spec.dtype.numpy, copy=False), spec.shape)


def _constant(op: ir.Operation, spec: TensorSpec) -> Array | None:
    attribute = op.attributes["value"]
    number = splat_of(attribute)
    if number is not None:
        return np.broadcast_to(np.asarray(number).astype(spec.dtype.numpy), spec.shape)
    if spec.dtype is DType.bf16 or spec.size > LARGEST or not isinstance(attribute, ir.DenseElementsAttr):
        return None  # the bindings cannot read those
    return np.array(attribute).reshape(spec.shape)


def _reduced(op: ir.Operation, array: Array, start: Array) -> Array | None:
    gone, joined = integers_of(op.attributes["dimensions"]), combiner(op.regions[0])
    assert joined is not None
    function = _JOINED[joined]
    repeated = joined != "add"  # of what is repeated, one is enough
    inner = narrow(array) if repeated else array
    if int(np.prod(inner.shape, dtype=np.int64)) > LARGEST:
        return None
    result = function(function.reduce(inner, axis=tuple(gone), dtype=array.dtype), start).astype(array.dtype)
    return np.broadcast_to(result, [size for axis, size in enumerate(array.shape) if axis not in gone])


def _running(op: ir.Operation, array: Array, start: Array) -> Array | None:
    """A reduction over windows, if each is all before a place and the place itself, as of a running sum."""
    joined, ones = combiner(op.regions[0]), (1,) * array.ndim
    named = ("window_dimensions", "window_strides", "base_dilations", "window_dilations")
    sizes, *steps = (integers_of(op.attributes[each]) if each in op.attributes else ones for each in named)
    before = [size - 1 if place % 2 == 0 else 0 for size in sizes for place in (0, 1)]
    padding = (
        list(integer_elements(op.attributes["padding"]))
        if "padding" in op.attributes
        else [0] * 2 * array.ndim
    )
    long = [axis for axis, size in enumerate(sizes) if size > 1]
    if len(long) != 1 or any(each != ones for each in steps) or sizes[long[0]] != array.shape[long[0]]:
        return None
    if padding != before or stored(array) > LARGEST or joined is None:
        return None
    function = _JOINED[joined]
    summed = function.accumulate(array, axis=long[0], dtype=array.dtype)
    return np.asarray(function(summed, start).astype(array.dtype))
