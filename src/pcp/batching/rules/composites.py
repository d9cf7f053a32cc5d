"""Batching of composites, which stay composites.

One of PCP's own keeps its name where its attributes can say what it computes for all samples: these are one more axis of its
operands then. Any other is named `NAME.batched`, and its attribute `samples` lists the operands that have a first axis of
samples; a kernel that knows that name takes it. What a composite computes, and the derivative that it brings along, are batched
alike.
"""

from collections.abc import Sequence
from typing import Any

from pcp.batching.engine import Batching
from pcp.ir import Builder, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import (
    Number,
    composite_attributes,
    composite_name,
    decomposition_of,
    emit_composite,
    gradient_operands,
    known_attributes,
    primal_count,
    private_function,
)
from pcp.ir.composites.records import COMPOSITES, GRADIENT, Axes, CompositeRecord, Samples
from pcp.ir.custom_derivatives import attributes_of_derivative, derivative_functions
from pcp.ir.toolkit.attributes import symbol_name
from pcp.ir.toolkit.editing import taken_out
from pcp.ir.toolkit.inlining import has_custom_derivative
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.batching import Batched, widened
from pcp.ops.record import supply_batching
from pcp.tensor import Tensor, building

BATCHED = ".batched"
"""What the name of a composite for many samples ends with, where its own does not say that."""


def _composite(batched: Batched) -> list[Tensor]:
    op = batched.op
    every = range(len(batched.specs))
    if has_custom_derivative(op):
        # All operands get samples: the cotangent of one that is the same for all is then the sum over its copies.
        return _renamed(batched, [True] * len(batched.flags), every)
    attributes = known_attributes(op)
    kept = _of_the_same_name(batched, attributes)
    if kept is None:
        return _renamed(batched, batched.flags, every)
    flags, named, same = kept
    by_result = dict(zip(same, _emitted(batched, composite_name(op), named, flags, same), strict=True))
    others = [i for i in every if i not in by_result]
    if others:  # cotangents of what is the same for all samples, one for each
        by_result |= zip(others, _renamed(batched, flags, others), strict=True)
    return [by_result[i] for i in every]


def _of_the_same_name(
    batched: Batched, attributes: dict[str, Any]
) -> tuple[list[bool], dict[str, Number], list[int]] | None:
    """Which operands get samples, the attributes, and the results, of a composite of the same name; None if there is none."""
    record = COMPOSITES.get(composite_name(batched.op).removesuffix(GRADIENT))
    if record is None or record.samples is Samples.renamed:
        return None
    flags, always = list(batched.flags), len(record.operands)
    if not all(flags[:always]):
        return None
    results, count = [0], primal_count(batched.op)
    gradient = gradient_operands(batched.op)
    if gradient is not None:
        wrt, added = gradient
        results = [i for i, operand in enumerate(wrt) if flags[operand]]
        flags[count] = True
        for place, operand in enumerate(added, start=count + 1):
            flags[place] = flags[operand] or flags[place]
        attributes = attributes | {"wrt": tuple(wrt[i] for i in results)}
    if not results or (record.samples is Samples.further_alike and any(flags[always:count])):
        return None
    return flags, _with_samples(record, attributes, flags[always:count]), results


def _with_samples(
    record: CompositeRecord, attributes: dict[str, Any], flags: Sequence[bool]
) -> dict[str, Number]:
    """The attributes, with the samples along axis 0 of the operands that have them; flags are of further operands."""
    further = [kind for kind in record.further if kind in attributes]
    without = {kind for kind, flag in zip(further, flags, strict=False) if not flag}
    widened: dict[str, Number] = dict(attributes)
    for key, kind in record.kinds.items():
        if not isinstance(kind, Axes) or key not in attributes:
            continue
        if kind is Axes.names:
            axes = tuple(axis + 1 if axis >= 0 else axis for axis in attributes[key])
            widened[key] = axes if key in without else (0, *axes)
        else:
            widened[key] = attributes[key] + 1
    return widened


def _renamed(batched: Batched, flags: Sequence[bool], results: Sequence[int]) -> list[Tensor]:
    """Some results, from a composite whose name says that it is for many samples."""
    attributes = composite_attributes(batched.op)
    key = "samples"
    while key in attributes:
        key = f"outer_{key}"
    attributes[key] = tuple(i for i, flag in enumerate(flags) if flag)
    gradient = gradient_operands(batched.op)
    if gradient is not None:
        attributes["wrt"] = tuple(gradient[0][i] for i in results)
    return _emitted(batched, composite_name(batched.op) + BATCHED, attributes, flags, results)


def _emitted(
    batched: Batched,
    name: str,
    attributes: dict[str, Number],
    flags: Sequence[bool],
    results: Sequence[int],
) -> list[Tensor]:
    """A composite for all samples: some of the results of the one for a single sample."""
    op, builder = batched.op, batched.engine.builder
    operands = [
        batched.operand_with_samples(i) if flag else batched.operand(i) for i, flag in enumerate(flags)
    ]
    function = _function(batched, name, decomposition_of(op), flags, results)
    whole: dict[str, Number | ir.Attribute] = dict(attributes)
    if has_custom_derivative(op):
        named = derivative_functions(op)
        symbols = {kind: _function(batched, f"{name}.{kind}", each) for kind, each in named.items()}
        with builder.location:
            whole |= attributes_of_derivative(symbols)
    types = [mlir_type(batched.widened()[i]) for i in results]
    values = emit_composite(builder, name, [x.value for x in operands], types, function, whole)
    return [Tensor(value, builder) for value in values]


def _function(
    batched: Batched,
    name: str,
    function: ir.Operation,
    flags: Sequence[bool] | None = None,
    results: Sequence[int] | None = None,
) -> str:
    """Add a function for all samples to the module; returns its symbol.

    Arguments:
        function: for a single sample.
        flags: which arguments have samples; None for all.
        results: those that it returns; None for all.
    """
    module = batched.engine.builder.module
    samples = [spec_of(argument.type) for argument in function.regions[0].blocks[0].arguments]
    flags = [True] * len(samples) if flags is None else list(flags)
    chosen = None if results is None else tuple(results)
    key = (name, symbol_name(function), tuple(flags), chosen)
    symbols = batched.engine.functions
    if key not in symbols:
        types = [
            mlir_type(widened(spec, batched.size) if flag else spec)
            for spec, flag in zip(samples, flags, strict=True)
        ]

        def fill(block: ir.Block) -> list[Value]:
            _batch(
                module,
                block,
                function,
                [s if flag else None for s, flag in zip(samples, flags, strict=True)],
                batched.size,
                chosen,
            )
            return taken_out(block, len(types))  # those behind them stood for samples

        symbols[key] = private_function(module.operation, name, types, fill)
    return symbols[key]


def _batch(
    module: ir.Module,
    block: ir.Block,
    function: ir.Operation,
    samples: Sequence[TensorSpec | None],
    size: int,
    results: Sequence[int] | None,
) -> None:
    """Fill a block with a function for all samples.

    Arguments:
        block: empty; its arguments are those of the function, with samples, and it gets more, which nothing will use.
        samples: of each argument that has samples, shape and element type of one.
    """
    builder = Builder(module, block)
    builder.pinned = ir.Location.unknown()
    with building(builder):
        engine = Batching(builder, block, size)
        inputs = []
        for value, spec in zip(list(block.arguments), samples, strict=True):
            inputs.append(value if spec is None else engine.placeholder(mlir_type(spec)))
            if spec is not None:
                engine.batched[inputs[-1]] = Tensor(value, builder)
        returned = builder.inline(function, inputs)
        engine.push([view.operation for view in block.operations])
        chosen = returned if results is None else [returned[i] for i in results]
        builder.emit("func.return", [engine.with_samples(value).value for value in chosen], ())


supply_batching({"composite": _composite})
