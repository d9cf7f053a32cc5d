"""Activations of gates times what they let pass (SwiGLU, GEGLU), and their gradients, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the weight of the forward pass for the gradient, in float32; here it is computed again from what the product wrote.
The gradient of what passes is the activation of the gate times the cotangent: a site of the first family where the gradient of
the gate is not taken as well.

Source: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.activations.native import applies_to_floats, with_earlier
from pcp.kernels.activations.triton import LEAST, Elementwise, activated, slope_of
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named
from pcp.kernels.pallas import Array, is_numbered_in_32_bits
from pcp.kernels.registry import register_kernel
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gated(Elementwise):
    """From gate and up to the activation of gate, times up; with a cotangent as well, to the cotangent of gate, or of both.

    Arguments:
        function: the activation.
    """

    function: str = "silu"

    def computed(self, *operands: Array) -> Sequence[Array]:
        """Of gate, what passes and perhaps a cotangent, each (n,)."""
        x, passed, *more = operands
        if not more:
            return (activated(self.function, x) * passed,)
        of_gate = more[0] * passed * slope_of(self.function, x)
        return (more[0] * activated(self.function, x), of_gate)[-self.results :]


def _describe(op: ir.Operation, storage: Storage) -> Application:
    (part,) = parts_of(op)
    operands = [part.inputs[name] for name in ("gate", "up", "cotangent") if name in part.inputs]
    shape = operands[0].shape

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        *others, last = (reshape(widened(each), shape) for each in outputs)
        return [*others, with_earlier(part, last)]

    return Application(
        Gated(storage is BF16, len(op.results), function=attributes_of(op)["function"]),
        [reshape(as_kept(each), (-1,)) for each in operands],
        results,
    )


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].size % LEAST == 0


for _name in ("gated_silu", "gated_silu_gradient"):
    register_kernel(
        Kernel(
            f"{_name}.triton",
            "read once",
            _applies,
            Lowered(_describe, "cuda"),
            requires=("sm_80",),
            version=2,
            storages=(F32, BF16),
            keeps="the results",
        )
    )
