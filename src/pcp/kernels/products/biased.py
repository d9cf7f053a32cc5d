"""Products with a bias for NVIDIA GPUs, completed by cuBLASLt before they are stored.

Where the program cuts the result, as into queries, keys and values, each part is a product of its own: it is stored where it is
needed, and not copied there. XLA leaves them apart, and gives the bias to cuBLASLt, by options of `pcp.backends.xla`.
"""

from pcp.ir import DType
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import result_owner, users_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.groups import parts_of, places_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named
from pcp.kernels.products.epilogue import product_of
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16_RESULT
from pcp.ops.elementwise import convert
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import broadcast_to, concatenate, reshape
from pcp.ops.movement.joining import narrow
from pcp.tensor import Tensor

MOST, LEAST = 3, 512
"""Parts that a result is cut into, at most, and columns of one, at least: smaller products are slower."""


def cuts_of(x: Value) -> list[ir.Operation]:
    """The operations that cut all of a tensor into equal parts along its last axis, in order; none if anything else uses it."""
    *rows, width = spec_of(x.type).shape
    users = list(users_of(result_owner(x)))
    if not 1 < len(users) <= MOST or any(user.name != "stablehlo.slice" for user in users):
        return []
    part = width // len(users)
    if part * len(users) != width or part < LEAST:
        return []
    cuts = {_bounds(user): user for user in users}
    wanted = [(*((0, size, 1) for size in rows), (i * part, (i + 1) * part, 1)) for i in range(len(users))]
    return [cuts[each] for each in wanted] if cuts.keys() == set(wanted) else []


def _bounds(cut: ir.Operation) -> tuple[tuple[int, ...], ...]:
    names = ("start_indices", "limit_indices", "strides")
    return tuple(zip(*(integers_of(cut.attributes[name]) for name in names), strict=True))


def _biased(op: ir.Operation) -> list[Tensor]:
    product, (part,) = product_of(op), parts_of(op)
    left, right, bias = (convert(part.inputs[name], DType.bf16) for name in ("left", "right", "bias"))
    rows, (axis,) = reshape(left, (-1, left.shape[-1])), product.contract[1]
    shape = spec_of(op.results[0].type).shape

    def multiplied(right: Tensor, bias: Tensor) -> Tensor:
        y = dot_general(rows, right, ((1,), (axis,)), dtype=DType.bf16)
        y = y + broadcast_to(reshape(bias, (1, -1)), y.shape)
        return convert(reshape(y, (*shape[:-1], -1)), DType.f32)

    cuts, vector = cuts_of(op.results[0]), reshape(bias, (-1,))
    if not cuts:
        return [multiplied(right, vector)]
    width = shape[-1] // len(cuts)
    parts = [
        multiplied(narrow(right, 1 - axis, first, first + width), narrow(vector, 0, first, first + width))
        for first in range(0, shape[-1], width)
    ]
    for cut, value in zip(cuts, parts, strict=True):
        cut.results[0].replace_all_uses_with(value.value)
    return [concatenate(parts, -1)]


def _applies(op: ir.Operation) -> bool:
    product, ((form, inputs),) = product_of(op), places_of(op)
    return (
        form == "none, bias"
        and product.is_f32
        and Named.of(op).is_f32
        and 0 not in (*product.x.shape, *product.y.shape)
        and product.batch == ((), ())
        and product.contract[0] == (len(product.x.shape) - 1,)
        and len(product.y.shape) == 2
        and not isinstance(inputs["bias"], float)
    )


register_kernel(
    Kernel(
        "product_epilogue.xla",
        "by cuBLASLt, which adds the bias before it stores the result; in parts where the program cuts that",
        _applies,
        StableHLO(_biased),
        storages=(BF16_RESULT,),
        together=lambda _: 1,
    )
)
