"""All kernels by family. The reference of a family is the operation itself, so it is no kernel here."""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from pcp.errors import PCPError
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Artifact
from pcp.kernels.kernel import Kernel
from pcp.kernels.native import Library
from pcp.kernels.storage import STORAGES
from pcp.kernels.widening import Widened
from pcp.rewrite.terms import Pattern


class UnknownKernel(PCPError):
    """A name under which no kernel is registered."""


class KernelNotAdded(UnknownKernel):
    """A kernel from outside that a path names by its content, and that was not added on this machine."""


class KernelUnavailable(UnknownKernel):
    """A kernel that a path names, and for which this machine lacks something."""


class InvalidKernel(PCPError):
    """A kernel that cannot be registered."""


@dataclass(slots=True)
class Family:
    """One thing to compute, and every way to do it.

    Arguments:
        name: `product`.
        about: one sentence for people.
        matches: whether an operation computes this.
        kernels: by name, each in every storage that it can take, in the order of registration.
        gradient: the family of its gradient; empty where that is made of operations of other families.
        pattern: of the operations that compute this, where they are several; the composite of its name stands for them then.
        ranges: of inputs of the pattern that have no other values, by their names; what is measured and verified draws from
            them.
        saturates: whether sound kernels lose all bits where large operands saturate it, as exp(x - logsumexp(x)) does in the
            gradient of attention: there only what is not finite counts when they are verified.
    """

    name: str
    about: str
    matches: Callable[[ir.Operation], bool]
    kernels: dict[str, Kernel] = field(default_factory=dict)
    gradient: str = ""
    pattern: Pattern | None = None
    ranges: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    saturates: bool = False

    def fitting(self, op: ir.Operation, platform: str) -> list[Kernel]:
        """The kernels for a kind of device that can stand in the place of an operation."""
        wide, _module = Widened.alone(op)
        return [each for each in self.kernels.values() if each.is_for(platform) and each.applies_to(op, wide)]


FAMILIES: dict[str, Family] = {}
"""Every family by its name."""


def register_family(family: Family) -> None:
    """Enter a family; its kernels follow by `register_kernel`."""
    FAMILIES[family.name] = family


def register_kernel(kernel: Kernel) -> Kernel:
    """Enter a kernel into its family, in each of its storages.

    Raises:
        InvalidKernel: its family is not there, or its name is taken.
    """
    family = FAMILIES.get(kernel.family)
    if family is None:
        raise InvalidKernel(
            f"kernel {kernel.name!r} does not belong to a family; its name must begin with one of "
            f"{', '.join(FAMILIES)} and a dot"
        )
    stored = {each.name: each for each in kernel.in_storages()}
    for name in family.kernels.keys() & stored:
        raise InvalidKernel(f"a kernel named {name!r} is registered already; choose another name")
    family.kernels |= stored
    return kernel


def register_with_gradient(kernel: Kernel, gradient: Artifact, **others: Any) -> None:
    """Enter a kernel, and that of its gradient, of the same name in the family of that, which takes what the first hands on.

    Arguments:
        gradient: what computes the gradient.
        others: fields of the gradient's kernel that differ.
    """
    register_kernel(kernel)
    name = FAMILIES[kernel.family].gradient + kernel.name.removeprefix(kernel.family)
    register_kernel(
        replace(kernel, **{"name": name, "artifact": gradient, "hands": (), "takes": kernel.hands, **others})
    )


_KEPT = re.compile(
    rf"(?:^|_)({'|'.join(name.replace('+', '_') for name in sorted(STORAGES, reverse=True))})(?=_|$)"
)
_RENAMED = {"normalisation.bf16": "normalisation.two_passes:bf16"} | {
    f"{family}.{old}": f"{family}.cudnn:{new}"
    for family in ("attention", "attention_gradient")
    for old, new in (("cudnn", "bf16+result"), ("cudnn_centred:bf16", "bf16_centred"))
}
"""Kernels to which the rule of `current_name` does not lead from an older name."""


def current_name(name: str) -> str:
    """What a kernel is called of which this is a name, or was one; any other text stays as it is.

    Storages were words of names: the one in `product.native_bf16` goes behind a colon, and where no word is left, as in
    `product.tf32`, the kernel is `xla`. A name without one, as `attention.cudnn`, is of the only storage that fits.
    """
    name = _RENAMED.get(name, name)
    family, _, words = name.partition(".")
    kernels = FAMILIES[family].kernels if family in FAMILIES else {}
    if name in kernels or "#" in name:
        return name
    kept = _KEPT.search(words)
    storage = (
        "" if kept is None else kept[1].replace("bf16_", "bf16+") if kept[1] not in STORAGES else kept[1]
    )
    rest = words if kept is None else (words[: kept.start()] + words[kept.end() :]).strip("_")
    plain = f"{family}.{rest or 'xla'}"
    if f"{plain}:{storage}" in kernels:
        return f"{plain}:{storage}"
    fitting = [each for each in kernels if each.startswith(f"{plain}:{storage and storage + '+'}")]
    return fitting[0] if len(fitting) == 1 else name


def kernel_named(name: str) -> Kernel:
    """The kernel of that name, which may be one that it had in an older version of PCP.

    Raises:
        UnknownKernel: there is none.
        KernelNotAdded: it is a kernel from outside that was added elsewhere.
    """
    name = current_name(name)
    family = FAMILIES.get(name.partition(".")[0])
    own, _, content = name.partition("#")
    if content and (family is None or name not in family.kernels):
        raise KernelNotAdded(
            f"the kernel {own} with content {content} was added where the path was made, and not here; get its folder and run "
            "`pcp kernels add FOLDER`, or plan again"
        )
    if family is None or name not in family.kernels:
        known = ", ".join(other for each in FAMILIES.values() for other in each.kernels)
        raise UnknownKernel(f"there is no kernel {name!r}; choose one of {known}")
    return family.kernels[name]


def missing_here(platform: str, family: str | None = None) -> dict[str, str]:
    """The kernels for a kind of device that this machine lacks something for: by name, what it lacks. Libraries are built.

    Arguments:
        family: of this one only, so that only its libraries are built.
    """
    reasons = {
        kernel.name: kernel.lacks(platform)
        for each in (FAMILIES.values() if family is None else [FAMILIES[family]])
        for kernel in each.kernels.values()
        if kernel.is_for(platform)
    }
    return {name: reason for name, reason in reasons.items() if reason}


def kernels_of(library: Library) -> list[Kernel]:
    """The kernels that call a native library."""
    every = (kernel for family in FAMILIES.values() for kernel in family.kernels.values())
    return [kernel for kernel in every if library.name in kernel.libraries]


def family_of(op: ir.Operation) -> Family | None:
    """The family that an operation belongs to."""
    return next((family for family in FAMILIES.values() if family.matches(op)), None)
