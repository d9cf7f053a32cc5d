"""Functions of the program under construction, and composites that they decompose."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NoReturn

from pcp.ir import Builder, TensorSpec, Tree
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import Number, emit_composite, private_function
from pcp.ir.composites.records import CompositeRecord
from pcp.ir.toolkit.tensor_types import mlir_type
from pcp.ir.tree import flatten
from pcp.tensor import Tensor, TracingError, as_tensor, building, checked, current_builder, is_weak
from pcp.tracing import result_tensor


class InvalidComposite(TracingError):
    """A composite whose name, arguments or attributes a program cannot hold."""


class InvalidDerivative(TracingError):
    """A derivative of a composite that returns other numbers, shapes or element types than the composite asks for."""


@dataclass(frozen=True, slots=True)
class Traced:
    """A private function of the module that is built.

    Arguments:
        symbol: its name there.
        specs: what it returns.
        tree: how that is nested.
    """

    symbol: str
    specs: tuple[TensorSpec, ...]
    tree: Tree


def traced(
    name: str, form: Callable[..., Any], takes: Sequence[TensorSpec], what: str, is_own: bool = False
) -> Traced:
    """Add what a function of Tensors computes to the module, as a private function.

    Arguments:
        name: what its symbol begins with.
        form: takes one Tensor for each of `takes`, and returns nested Tensors, arrays and numbers.
        what: the composite, for messages.
        is_own: whether it is PCP's own, so that its lines are those of its callers.

    Raises:
        InvalidComposite: it uses a Tensor of the function around it.
    """
    outer = current_builder()
    signatures: list[tuple[tuple[TensorSpec, ...], Tree]] = []

    def refuse(tensor: Tensor) -> NoReturn:
        raise InvalidComposite(
            f"{what} uses {tensor!r} of the function around it; expected its own arguments only: pass it as one"
        )

    def fill(block: ir.Block) -> list[Value]:
        inner = Builder(outer.module, block)
        inner.composites, inner.capture = outer.composites, refuse
        inner.pinned = ir.Location.unknown() if is_own else None
        try:
            with building(inner):
                leaves, tree = flatten(form(*(Tensor(value, inner) for value in block.arguments)))
                results = [checked(result_tensor(leaf)) for leaf in leaves]
                signatures.append((tuple(x.spec for x in results), tree))
                return [x.value for x in results]
        finally:
            inner.close()

    symbol = private_function(outer.module.operation, name, [mlir_type(spec) for spec in takes], fill)
    return Traced(symbol, *signatures[0])


def emitted(
    name: str, function: Traced, operands: Sequence[Tensor], attributes: Mapping[str, Number | ir.Attribute]
) -> Any:
    """The results of a composite that a function of the module decomposes, nested like those of the function."""
    builder = current_builder()
    types = [mlir_type(spec) for spec in function.specs]
    values = emit_composite(builder, name, [x.value for x in operands], types, function.symbol, attributes)
    return function.tree.unflatten(
        Tensor(value, builder, spec) for value, spec in zip(values, function.specs, strict=True)
    )


def named(
    record: CompositeRecord,
    form: Callable[..., Tensor],
    operands: Sequence[Tensor],
    attributes: Mapping[str, Number],
) -> Tensor:
    """One of PCP's own composites.

    Arguments:
        record: its record.
        form: computes it from the operands; it follows from the attributes, shapes and element types alone.
        operands: Tensors of this trace.
        attributes: those of the record.
    """
    composites, name = current_builder().composites, record.name
    key = (name, tuple(sorted(attributes.items())), tuple(x.spec for x in operands))
    if key not in composites:
        composites[key] = traced(name, form, [x.spec for x in operands], name, is_own=True)
    result: Tensor = emitted(name, composites[key], operands, attributes)
    return result


def leaves_along(tree: Tree, value: Any) -> list[Any] | None:
    """The leaves of a value that is nested like a structure; None in the place of a part stands for all leaves of the part.

    Returns:
        One for each leaf of the structure; None if the value is nested otherwise.
    """
    if value is None:
        return [None] * tree.leaf_count
    if tree.kind == "leaf":
        return [value]
    nesting = flatten(value)[1]
    if (nesting.kind, nesting.keys, len(nesting.children)) != (tree.kind, tree.keys, len(tree.children)):
        return None
    parts = [value[key] for key in tree.keys] if tree.kind == "dict" else list(value)
    leaves: list[Any] = []
    for child, part in zip(tree.children, parts, strict=True):
        inner = leaves_along(child, part)
        if inner is None:
            return None
        leaves += inner
    return leaves


def is_tensor_like(value: Any) -> bool:
    """Whether a value is a Tensor, an array or a number."""
    return isinstance(value, Tensor) or is_weak(value) or hasattr(value, "__array__")


def tensor_of(value: Any, spec: TensorSpec) -> Tensor:
    """A Tensor, array or number as a Tensor; a number takes the element type of `spec`."""
    return as_tensor(value, spec.dtype if is_weak(value) else None)
