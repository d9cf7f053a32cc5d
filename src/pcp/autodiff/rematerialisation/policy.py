"""Which values of the forward pass a gradient may keep: policies by name, as in JAX."""

from collections.abc import Callable

from pcp.errors import PCPError
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.record import Kind, kind_of
from pcp.ops.tapping import TAP

Policy = Callable[[ir.Operation], bool]
"""From an operation of the forward pass to whether its results may be kept for the backward pass."""


class UnknownPolicy(PCPError):
    """A `remat` that names no policy."""


Remat = str | Policy
"""What decides about residuals: the name of a policy, or a function."""


def _is_product(op: ir.Operation) -> bool:
    return kind_of(op.name) is Kind.product


def _is_product_without_batch(op: ir.Operation) -> bool:
    return op.name == "stablehlo.dot_general" and not DotAxes.of(op).batch[0]


def save_only_these_names(*names: str) -> Policy:
    """The policy that keeps what `pcp.tap` has given one of these names, and nothing else."""
    return lambda op: TAP in op.attributes and string_of(op.attributes[TAP]) in names


POLICIES: dict[str, Policy] = {
    "everything_saveable": lambda _: True,
    "nothing_saveable": lambda _: False,
    "dots_saveable": _is_product,
    "dots_with_no_batch_dims_saveable": _is_product_without_batch,
}
"""Every policy by its name."""
POLICIES |= {
    "everything": POLICIES["everything_saveable"],
    "nothing": POLICIES["nothing_saveable"],
    "checkpoint_dots": POLICIES["dots_saveable"],
    "checkpoint_dots_with_no_batch_dims": POLICIES["dots_with_no_batch_dims_saveable"],
}


def policy_of(remat: Remat | None) -> Policy:
    """The policy that is meant; None keeps everything.

    Raises:
        UnknownPolicy: there is none of that name.
    """
    if remat is None:
        return POLICIES["everything_saveable"]
    if isinstance(remat, str) and remat in POLICIES:
        return POLICIES[remat]
    if callable(remat):
        return remat
    raise UnknownPolicy(
        f"remat={remat!r} is not the name of a policy; choose one of {', '.join(POLICIES)}; a number of bytes is for the plan: "
        "pcp.plan(program, memory='2GiB')"
    )
