"""How many floating-point operations an operation takes, from its shapes alone."""

import math

from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import dimension_numbers
from pcp.ir.toolkit.tensor_types import spec_if_tensor, spec_of

# Operations that move, name or draw data, and so compute nothing that is counted.
_MOVEMENT = {
    "constant", "iota", "reshape", "transpose", "broadcast_in_dim", "slice", "dynamic_slice", "dynamic_update_slice",
    "concatenate", "pad", "reverse", "gather", "convert", "bitcast_convert", "sort", "rng", "rng_bit_generator", "tuple",
    "get_tuple_element", "optimization_barrier", "custom_call", "real", "imag", "complex", "after_all", "partition_id",
    "replica_id", "all_gather", "all_to_all", "collective_permute",
}  # fmt: skip


def flops_of(op: ir.Operation) -> int:
    """Floating-point operations of one operation; of a loop or a branch, one for each element of its results."""
    name = op.name.removeprefix("stablehlo.")
    size = sum(map(_size, op.results))
    if name == "dot_general":
        contracted = dimension_numbers(str(op.attributes["dot_dimension_numbers"]))
        shape = spec_of(op.operands[0].type).shape
        return 2 * size * math.prod(shape[axis] for axis in contracted.get("lhs_contracting_dimensions", ()))
    if name == "convolution":
        # The kernel has one weight for each input it combines and each output feature.
        kernel = spec_of(op.operands[1].type).shape
        layout = str(op.attributes["dimension_numbers"]).split("x[")[1].split("]")[0].replace(" ", "")
        outputs = kernel[layout.split(",").index("o")]
        return 2 * size * math.prod(kernel) // outputs
    if name == "reduce":  # operands, then as many initial values
        return sum(_size(value) for value in list(op.operands)[: len(op.results)])
    if name == "scatter":  # operands, indices, updates
        return sum(_size(value) for value in list(op.operands)[-len(op.results) :])
    if name == "reduce_window":
        return size * math.prod(ir.DenseI64ArrayAttr(op.attributes["window_dimensions"]))
    return 0 if name in _MOVEMENT else size


def _size(value: Value) -> int:
    spec = spec_if_tensor(value.type)
    return spec.size if spec else 0  # a token
