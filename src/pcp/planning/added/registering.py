"""Added kernels enter the families, so that plans choose them like any other."""

import logging
from collections.abc import Sequence

from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.registry import register_kernel
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.posing import Posed, posed_at
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
    registered = []
    for name, added in every.items():
        kernels = FAMILIES[added.candidate.family].kernels
        registered.append(kernels[name] if name in kernels else register_kernel(_kernel(added)))
    return registered


def _kernel(added: Added) -> Kernel:
    candidate = added.candidate

    def applies(op: ir.Operation) -> bool:
        posed = posed_at(candidate, op)
        return posed is not None and _is_lowered(added, posed)

    def build(op: ir.Operation) -> Sequence[Tensor]:
        posed = posed_at(candidate, op)
        if posed is None:
            raise KernelNotLowered(f"{added.name} does not fit {op.name} as it stands there; plan again")
        computed = call(lowered(candidate, added.digest, posed.problem), *posed.operands())
        result = posed.result(*computed) if isinstance(computed, tuple) else posed.result(computed)
        return [result] if isinstance(result, Tensor) else result

    return Kernel(
        added.name,
        candidate.about,
        applies,
        StableHLO(build),
        candidate.needs,
        effect=candidate.effect,
        version=candidate.version,
        nonfinite=candidate.nonfinite,
    )


def _is_lowered(added: Added, posed: Posed) -> bool:
    try:
        lowered(added.candidate, added.digest, posed.problem)
    except KernelNotLowered as error:
        log.warning("an added kernel is left out: %s", error)
        return False
    return True
