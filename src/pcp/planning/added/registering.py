"""Added kernels enter the families, so that plans choose them like any other."""

import logging
from collections.abc import Callable, Sequence

from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.registry import register_kernel
from pcp.planning.added.fitting import fit_of
from pcp.planning.added.lowering import KernelNotLowered, lowered
from pcp.planning.added.store import Added, Store
from pcp.tensor import Tensor
from pcp.tracing import call

log = logging.getLogger("pcp.planning.added")


def register_added(store: Store | None = None) -> list[Kernel]:
    """Enter the kernels of a store into their families, and take out those that are not there any more."""
    every = {each.name: each for each in (store or Store()).all()}
    for family in FAMILIES.values():
        for name in [name for name in family.kernels if "#" in name and name not in every]:
            del family.kernels[name]
    made = []
    for name, added in every.items():
        kernels = FAMILIES[added.candidate.family].kernels
        made.append(kernels[name] if name in kernels else register_kernel(_kernel(added)))
    return made


def _kernel(added: Added) -> Kernel:
    candidate = added.candidate
    return Kernel(
        added.name,
        candidate.effect,
        candidate.about,
        _applies(added),
        StableHLO(_build(added)),
        version=candidate.version,
        nonfinite=candidate.nonfinite,
    )


def _applies(added: Added) -> Callable[[ir.Operation], bool]:
    def applies(op: ir.Operation) -> bool:
        fit = fit_of(added.candidate, op)
        if fit is None:
            return False
        try:
            lowered(added, fit.problem, fit.told)
        except KernelNotLowered as error:
            log.warning("an added kernel is left out: %s", error)
            return False
        return True

    return applies


def _build(added: Added) -> Callable[[ir.Operation], Sequence[Tensor]]:
    def build(op: ir.Operation) -> Sequence[Tensor]:
        fit = fit_of(added.candidate, op)
        if fit is None:
            raise KernelNotLowered(f"{added.name} does not fit {op.name} as it stands there; plan again")
        program = lowered(added, fit.problem, fit.told)
        made = call(program, *fit.operands())
        return [fit.result(made[0] if isinstance(made, tuple) else made)]

    return build
