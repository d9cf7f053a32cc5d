"""Convolutions by cuDNN on tensor cores: operands and result in bfloat16, sums in float32; or operands rounded to TF32.

XLA gives cuDNN images in bfloat16 with their channels last, whatever order of axes the program has, and lays out what it fuses
between two convolutions as they do. It knows the gradient of the input by a kernel that is turned around as the last thing
before the convolution, so the kernel is rounded before that.
"""

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import integers_of
from pcp.ir.toolkit.dataflow import defining_op, result_owner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.convolution import native as native  # which registers the family
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16_RESULT, TF32, Storage, widened
from pcp.ops.elementwise import convert
from pcp.ops.movement import reverse
from pcp.ops.windows.convolution_rules import Convolution, is_turned
from pcp.tensor import Tensor, current_builder

MOST_AXES = 3
"""Of space, that cuDNN takes."""
_ALLOWS_TF32 = "[#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]"


def _build(op: ir.Operation, storage: Storage) -> list[Tensor]:
    conv, operands = Convolution.read(op), tensors(op)
    if storage is not TF32:
        return [widened(conv.windows(*map(_rounded, operands)))]
    result = conv.windows(*operands)
    result_owner(result.value).attributes["precision_config"] = ir.Attribute.parse(_ALLOWS_TF32)
    return [result]


def _rounded(x: Tensor) -> Tensor:
    turned = defining_op(x.value)
    if turned is None or turned.name != "stablehlo.reverse":
        return convert(x, DType.bf16)
    source = Tensor(turned.operands[0], current_builder())
    return reverse(convert(source, DType.bf16), integers_of(turned.attributes["dimensions"]))


def _applies(op: ir.Operation) -> bool:
    specs = [spec_of(value.type) for value in (*op.operands, *op.results)]
    precise = "precision_config" in op.attributes and "HIGH" in str(op.attributes["precision_config"])
    return (
        {spec.dtype for spec in specs} == {DType.f32}
        and all(spec.size for spec in specs)
        and 2 < len(specs[0].shape) <= 2 + MOST_AXES
        and not (precise or is_turned(op))
    )


register_kernel(
    Kernel(
        "convolution.xla",
        "by cuDNN, sums in float32, channels last where it is in bfloat16",
        _applies,
        StableHLO(_build),
        requires=("cuda", "sm_80"),
        storages=(BF16_RESULT, TF32),
        together=lambda _: 0,
    )
)
