"""Calls of native handlers in programs, as custom calls of XLA's typed foreign function interface."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType

from pcp.ir import TensorSpec
from pcp.ir.bindings import ir
from pcp.kernels.native.building import Build, build_here
from pcp.kernels.native.libraries import Library
from pcp.tensor import Tensor, current_builder

TYPED = 4
"""The version of the custom call interface that checks types and takes attributes."""


def native_call(
    library: Library,
    handler: str,
    operands: Sequence[Tensor],
    results: Sequence[TensorSpec],
    attributes: Mapping[str, float | Sequence[int]],
    in_place: Mapping[int, int] = MappingProxyType({}),
) -> list[Tensor]:
    """Call a handler of the build that this machine has.

    Arguments:
        library: that defines it.
        handler: its name there.
        operands: dense arrays, row by row, as all that XLA hands over.
        results: shapes and element types of what it writes.
        attributes: floats, as float32, integers, as int64, and lists of those, by the names that it binds.
        in_place: places of operands, and of the results that are written over them. XLA copies an operand that is used later.

    Raises:
        NativeUnavailable: the library cannot be had here.
    """
    return call_build(build_here(library.name), handler, operands, results, attributes, in_place)


def call_build(
    build: Build,
    handler: str,
    operands: Sequence[Tensor],
    results: Sequence[TensorSpec],
    attributes: Mapping[str, float | Sequence[int]] = MappingProxyType({}),
    in_place: Mapping[int, int] = MappingProxyType({}),
) -> list[Tensor]:
    """Call a handler of a build; as `native_call`."""
    builder = current_builder()
    with builder.location:
        config: dict[str, ir.Attribute] = {name: _attribute(value) for name, value in attributes.items()}
        described = {
            "call_target_name": target_of(handler, build.digest),
            "api_version": ir.IntegerAttr.get(ir.IntegerType.get_signless(32), TYPED),
            "backend_config": ir.DictAttr.get(config),
        }
        if in_place:
            described["output_operand_aliases"] = ir.ArrayAttr.get(
                [_alias(result, operand, len(results)) for operand, result in in_place.items()]
            )
        op = builder.emit(
            "stablehlo.custom_call", [operand.value for operand in operands], list(results), described
        )
    return [Tensor(value, builder) for value in op.results]


def _attribute(value: float | Sequence[int]) -> ir.Attribute:
    if isinstance(value, Sequence):
        return ir.DenseI64ArrayAttr.get(list(value))
    if isinstance(value, float):
        return ir.FloatAttr.get(ir.F32Type.get(), value)
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _alias(result: int, operand: int, results: int) -> ir.Attribute:
    place = f"[{result}]" if results > 1 else "[]"
    return ir.Attribute.parse(
        f"#stablehlo.output_operand_alias<output_tuple_indices = {place}, operand_index = {operand}, "
        "operand_tuple_indices = []>"
    )


def target_of(handler: str, digest: str) -> str:
    """What a handler of a build is called in programs."""
    return f"pcp.{handler}@{digest}"
