"""Builder: a program under construction, one operation after another at an insertion point."""

import functools
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np

from pcp.ir.bindings import InvalidProgram, Value, context, inline_function, ir
from pcp.ir.nesting import FLATTER, REGIONS, check_depth
from pcp.ir.toolkit.tensor_types import element_type, mlir_type
from pcp.ir.types import DType, TensorSpec, dtype_of


class Scope:
    """A block that operations are being added to; values made in it may be used while it is open."""

    __slots__ = ("block", "open")

    def __init__(self, block: ir.Block) -> None:
        self.block = block
        self.open = True


class Builder:
    """Adds operations at the end of a block, of `main` or of a region, and remembers which blocks are open.

    Arguments:
        module: the module that is built; it lives as long as the builder.
        block: where the first operations go.

    While `pinned` is a location, operations on Tensors get it instead of the user's line. `capture` makes a Tensor of an
    enclosing trace one of this; without it, such a Tensor is refused. `composites` are functions that the module has already.
    """

    def __init__(self, module: ir.Module, block: ir.Block) -> None:
        self.module = module
        self.location: ir.Location = ir.Location.unknown(context())
        self.pinned: ir.Location | None = None
        self.capture: Callable[[Any], Any] | None = None
        self.composites: dict[Any, Any] = {}
        self.scopes = [Scope(block)]
        self._insertion = ir.InsertionPoint(block)

    @property
    def scope(self) -> Scope:
        """The innermost open block."""
        return self.scopes[-1]

    @property
    def insertion(self) -> ir.InsertionPoint:
        """Where the next operation goes."""
        return self._insertion

    def emit(
        self,
        name: str,
        operands: Sequence[Value],
        results: Sequence[TensorSpec] | None = None,
        attributes: Mapping[str, Any] | None = None,
        regions: int = 0,
    ) -> ir.Operation:
        """Append one operation.

        Arguments:
            name: its full name, `stablehlo.add`.
            operands: values it takes.
            results: shapes and element types it returns; None where StableHLO infers them.
            attributes: by their StableHLO names; Python values are converted (see `attribute`).
            regions: how many empty regions it has.

        Raises:
            InvalidProgram: the operation refuses its operands.
        """
        with self.location:
            types = None if results is None else [mlir_type(spec) for spec in results]
            held = {key: attribute(value) for key, value in attributes.items()} if attributes else None
            try:
                return ir.Operation.create(
                    name, types, operands, held, regions=regions, infer_type=types is None, ip=self._insertion
                )
            except (ir.MLIRError, ValueError) as error:
                raise InvalidProgram(
                    f"{name} refuses its operands {[str(o.type) for o in operands]}: {error}"
                ) from None

    @contextmanager
    def region(self, op: ir.Operation, index: int, arguments: Sequence[TensorSpec]) -> Iterator[list[Value]]:
        """Build inside a new block of region `index` of `op`; yields the block's arguments."""
        check_depth(len(self.scopes), REGIONS, FLATTER)
        with self.location:
            block = op.regions[index].blocks.append(*[mlir_type(spec) for spec in arguments])
        outer = self._insertion
        self.scopes.append(Scope(block))
        self._insertion = ir.InsertionPoint(block)
        try:
            yield list(block.arguments)
        finally:
            self.scopes.pop().open = False
            self._insertion = outer

    @contextmanager
    def before(self, op: ir.Operation) -> Iterator[None]:
        """Build just before an operation of an open block."""
        outer = self._insertion
        self._insertion = ir.InsertionPoint(op)
        try:
            yield
        finally:
            self._insertion = outer

    def constant(self, array: np.ndarray[Any, Any]) -> Value:
        """A constant with the elements of `array`; equal elements are stored once."""
        spec = TensorSpec(array.shape, dtype_of(array.dtype))
        with self.location:
            value = dense(array, spec)
            op = ir.Operation.create(
                "stablehlo.constant", [mlir_type(spec)], [], {"value": value}, ip=self._insertion
            )
        result: Value = op.results[0]
        return result

    def inline(self, function: ir.Operation, arguments: Sequence[Value]) -> list[Value]:
        """Copy the body of a single-block function, of any module, here; returns what it returns."""
        with self.location, self._insertion:
            return inline_function(function, arguments)

    def close(self) -> None:
        """End construction: values made so far can no longer be used."""
        for scope in self.scopes:
            scope.open = False


def dense(array: np.ndarray[Any, Any], spec: TensorSpec) -> ir.Attribute:
    """The elements of an array, of any byte order, as an MLIR attribute, in the current context."""
    element = element_type(spec.dtype)
    array = np.ascontiguousarray(array, spec.dtype.numpy)
    flat = array.reshape(-1)
    if flat.size and spec.dtype.kind not in ("complex", "storage") and (flat.size == 1 or _all_equal(flat)):
        scalar = _scalar_attribute(
            spec.dtype, flat[0].item() if spec.dtype is not DType.bf16 else float(flat[0])
        )
        return ir.DenseElementsAttr.get_splat(mlir_type(spec), scalar)
    elements: Any = array  # NumPy's types call it a buffer from Python 3.12 on only
    return ir.DenseElementsAttr.get(elements, type=element, shape=spec.shape)


def _all_equal(flat: np.ndarray[Any, Any]) -> bool:
    raw = flat.view(np.uint8).reshape(flat.size, -1)
    return bool((raw == raw[0]).all())


def _scalar_attribute(dtype: DType, value: float | int | bool) -> ir.Attribute:
    if dtype.is_float:
        return ir.FloatAttr.get(element_type(dtype), value)
    # The bindings take a signed 64-bit number and keep its bits.
    return ir.IntegerAttr.get(element_type(dtype), int(np.asarray(value, dtype.numpy).astype(np.int64)))


def attribute(value: Any) -> ir.Attribute:
    """An MLIR attribute from a Python value, in the current context.

    Booleans, strings and tuples of integers (as `array<i64>`) are converted; a string starting with `#` is MLIR syntax;
    an attribute stays as it is.
    """
    if isinstance(value, ir.Attribute):
        return value
    if isinstance(value, bool):
        return ir.BoolAttr.get(value)
    if isinstance(value, int):
        return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)
    if isinstance(value, str):
        return _parsed(value) if value.startswith("#") else ir.StringAttr.get(value)
    if isinstance(value, tuple):
        return ir.DenseI64ArrayAttr.get(value)
    raise TypeError(f"{value!r} of type {type(value).__name__} has no MLIR attribute")


@functools.cache
def _parsed(text: str) -> ir.Attribute:
    return ir.Attribute.parse(text, context())
