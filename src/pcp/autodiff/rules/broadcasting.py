"""Derivatives of CHLO's operations with implicit broadcasting: a broadcast and the operation without."""

from collections.abc import Sequence

from pcp.autodiff.rule import Expansion, Primal, register_rules
from pcp.ops.movement import broadcast_in_dim
from pcp.tensor import Tensor, current_builder

BROADCASTING = (
    "add", "atan2", "complex", "divide", "maximum", "minimum", "multiply", "polygamma", "power", "remainder", "select",
    "subtract", "zeta",
)  # fmt: skip
OF_CHLO = ("polygamma", "zeta")


def _broadcast(primal: Primal) -> Sequence[Tensor]:
    name = primal.op.name.removeprefix("chlo.broadcast_")
    result, builder = primal.output(), current_builder()
    given = primal.integers("broadcast_dimensions")
    widened = []
    for tensor in primal.inputs:
        last = tuple(range(result.ndim - tensor.ndim, result.ndim))
        axes = given if given and tensor.ndim < result.ndim else last
        widened.append(broadcast_in_dim(tensor, result.shape, axes[: tensor.ndim]).value)
    kept = {key: value for key, value in primal.op.attributes.items() if key != "broadcast_dimensions"}
    dialect = "chlo" if name in OF_CHLO else "stablehlo"
    op = builder.emit(f"{dialect}.{name}", widened, (result.spec,), kept)
    return [Tensor(op.results[0], builder)]


register_rules({f"chlo.broadcast_{name}": Expansion(_broadcast) for name in BROADCASTING})
