"""Which values of the forward pass a gradient may keep: policies by name, as in JAX, and a budget of bytes."""

import re
from collections.abc import Callable
from dataclasses import dataclass, replace

from pcp.errors import PCPError
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ops.linear.dot_axes import DotAxes
from pcp.ops.record import Kind, kind_of
from pcp.ops.tapping import TAP

Policy = Callable[[ir.Operation], bool]
"""From an operation of the forward pass to whether its results may be kept for the backward pass."""


class UnknownPolicy(PCPError):
    """A `remat` that names no policy and is no budget."""


class InvalidByteBudget(PCPError):
    """A budget that is no positive number of bytes."""


_UNITS = {"": 1, "B": 1, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12} | {
    unit: 1024**power for power, unit in enumerate(("KiB", "MiB", "GiB", "TiB"), start=1)
}
_SIZE = re.compile(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*")


@dataclass(frozen=True)
class ByteBudget:
    """Bytes that a gradient may take at once: arguments, results and what lies between, as `Plan.memory` counts them.

    Arguments:
        size: a number of bytes, or a text like `"2GiB"`, `"500 MB"`.
        reserved: bytes of it that something else takes.

    Raises:
        InvalidByteBudget: it is no positive number of bytes.
    """

    size: int | str
    reserved: int = 0

    def __post_init__(self) -> None:
        if self.bytes <= 0:
            raise InvalidByteBudget(
                f"{self.size!r} is not a positive number of bytes; give one like {2**30}, '2GiB' or '500MB'"
            )

    @property
    def bytes(self) -> int:
        """The whole budget as a number."""
        match = _SIZE.fullmatch(str(self.size))
        if match is None or match[2] not in _UNITS:
            return 0
        return int(float(match[1]) * _UNITS[match[2]])

    def less(self, count: int) -> "ByteBudget":
        """The same budget, of which something else takes `count` bytes."""
        return replace(self, reserved=self.reserved + count)


Remat = str | int | ByteBudget | Policy
"""What decides about residuals: the name of a policy, a budget of bytes (also as a number or a text), or a function."""


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


def policy_of(remat: Remat | None) -> Policy | ByteBudget:
    """The policy or the budget that is meant; None keeps everything.

    Raises:
        UnknownPolicy: there is none of that name.
        InvalidByteBudget: a number that is no number of bytes.
    """
    if remat is None:
        return POLICIES["everything_saveable"]
    if isinstance(remat, ByteBudget):
        return remat
    if isinstance(remat, int) or (isinstance(remat, str) and remat[:1].isdigit()):
        return ByteBudget(remat)
    if isinstance(remat, str) and remat in POLICIES:
        return POLICIES[remat]
    if callable(remat):
        return remat
    raise UnknownPolicy(
        f"remat={remat!r} is not the name of a policy; choose one of {', '.join(POLICIES)}, or a budget of bytes like '2GiB'"
    )
