"""Activations of gates times what they let pass (SwiGLU, GEGLU), and their gradients, for NVIDIA GPUs, in Pallas by Triton.

XLA keeps the weight of the forward pass for the gradient, in float32; here it is computed again from what the product wrote,
and so is the product of both, where the gradient of a weight reads it. The gradient of what passes is the activation of the
gate times the cotangent: a site of the first family where the gradient of the gate is not taken as well.

Source: Shazeer, "GLU Variants Improve Transformer", 2020, equation 6.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import Value, ir
from pcp.kernels.activations.native import applies_to_floats, with_earlier
from pcp.kernels.activations.triton import LEAST, Elementwise, activated, slope_of
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.groups import attributes_of, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named
from pcp.kernels.pallas import Array, is_numbered_in_32_bits
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16, F32, Storage, as_kept, widened
from pcp.ops.movement import reshape
from pcp.rewrite.again import Again
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gated(Elementwise):
    """From gate and up to the activation of gate, times up; with a cotangent as well, to the cotangent of gate, or of both.

    Arguments:
        function: the activation.
        again: whether a gradient returns that product in front of its results.
    """

    function: str = "silu"
    again: bool = False

    def computed(self, *operands: Array) -> Sequence[Array]:
        """Of gate, what passes and perhaps a cotangent, each (n,)."""
        x, passed, *more = operands
        if not more:
            return (activated(self.function, x) * passed,)
        weighted = activated(self.function, x)
        of_gate = more[0] * passed * slope_of(self.function, x)
        cotangents = (more[0] * weighted, of_gate)[self.again - self.results :]
        return (weighted * passed, *cotangents) if self.again else cotangents


def _forward(op: ir.Operation, storage: Storage) -> Application:
    (part,) = parts_of(op)
    gate, up = part.inputs["gate"], part.inputs["up"]

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        product = reshape(widened(outputs[0]), gate.shape)
        return [product, product, up]

    function = attributes_of(op)["function"]
    return Application(Gated(storage is BF16, function=function), _flat(gate, up), results)


def _gradient(op: ir.Operation, handed: Sequence[Tensor], storage: Storage) -> Application:
    (part,) = parts_of(op)
    gate, up, cotangent = (part.inputs[name] for name in ("gate", "up", "cotangent"))
    again = Again.of(op, handed, up)

    def results(outputs: Sequence[Tensor]) -> list[Tensor]:
        cotangents = [reshape(widened(each), gate.shape) for each in outputs]
        if again is not None:
            again.replaced(cotangents.pop(0))
        *others, last = cotangents
        return [*others, with_earlier(part, last)]

    is_again = again is not None
    function = attributes_of(op)["function"]
    return Application(
        Gated(storage is BF16, len(op.results) + is_again, function=function, again=is_again),
        _flat(gate, up, cotangent),
        results,
    )


def _flat(*operands: Tensor) -> list[Tensor]:
    return [reshape(as_kept(each), (-1,)) for each in operands]


def _applies(op: ir.Operation) -> bool:
    fits = applies_to_floats(op) and is_numbered_in_32_bits(op)
    return fits and Named.of(op).results[0].size % LEAST == 0


def _gate(op: ir.Operation, _: object) -> tuple[Value]:
    return (parts_of(op)[0].inputs["gate"].value,)


register_with_gradient(
    Kernel(
        "gated_silu.triton",
        "read once",
        _applies,
        Lowered(_forward, "cuda"),
        requires=("sm_80",),
        version=2,
        hands=("gated_silu.triton_product",),
        hands_to=_gate,
        storages=(F32, BF16),
        keeps="the results",
    ),
    Lowered(_gradient, "cuda"),
    version=3,
)
