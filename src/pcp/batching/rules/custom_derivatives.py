"""Batching of composites with their own derivative: what they compute and their derivative are batched alike."""

from collections.abc import Sequence

from pcp.batching.vmap import vectorised
from pcp.ir import Builder
from pcp.ir.bindings import Value, ir
from pcp.ir.called_functions import copy_functions
from pcp.ir.composites import decomposition_of, emit_composite, private_function
from pcp.ir.custom_derivatives import attributes_of_derivative, derivative_functions, derivative_name
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import CUSTOM_DERIVATIVE
from pcp.ir.toolkit.tensor_types import mlir_type, spec_of
from pcp.ops.batching import Batched
from pcp.ops.record import supply_batching
from pcp.tensor import Tensor, current_builder
from pcp.tracing import spec, trace


def _composite(batched: Batched) -> list[Tensor]:
    # All operands get samples, so that a cotangent of what is the same for all is that of its repetition: a sum.
    op, builder = batched.op, batched.engine.builder
    operands = [x.value for x in batched.operands_with_samples()]
    types = [mlir_type(entry) for entry in batched.widened()]
    name = derivative_name(op)
    functions = {"of": decomposition_of(op), **derivative_functions(op)}
    symbols = {kind: _function(batched, f"{name}.{kind}", function) for kind, function in functions.items()}
    function = symbols.pop("of")
    with builder.location:
        attributes = attributes_of_derivative(name, symbols)
    made = emit_composite(builder, CUSTOM_DERIVATIVE, operands, types, function, attributes)
    return [Tensor(value, builder) for value in made]


def _function(batched: Batched, name: str, function: ir.Operation) -> str:
    """Add the function of many samples to the module; returns its symbol."""
    target, block = batched.engine.builder.module, function.regions[0].blocks[0]

    def one(*sample: Tensor) -> Sequence[Tensor]:
        inner = current_builder()
        copy_functions(target, main_of(target), inner.module)
        return [Tensor(value, inner) for value in inner.inline(function, [x.value for x in sample])]

    samples = [spec_of(argument.type) for argument in block.arguments]
    program = trace(one, *(spec(entry.shape, entry.dtype) for entry in samples))
    whole = vectorised(program, [0] * len(samples), 0, batched.size)
    source = whole.module()
    main = main_of(source)
    copy_functions(source, main, target)

    def fill(block: ir.Block) -> list[Value]:
        return Builder(target, block).inline(main, list(block.arguments))

    return private_function(
        target.operation, name, [mlir_type(entry.spec) for entry in whole.arguments], fill
    )


supply_batching({"composite": _composite})
