"""Added kernels enter the families, so that plans choose them like any other."""

import logging
from collections.abc import Callable, Sequence

from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import values_from_outside
from pcp.kernels import FAMILIES, Kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.candidate import Candidate
from pcp.kernels.region_candidate import RegionCandidate
from pcp.kernels.registry import register_kernel
from pcp.planning.added.lowering import KernelNotLowered, lowered
from pcp.planning.added.posing import posed_at
from pcp.planning.added.region_program import is_region, region_program
from pcp.planning.added.store import Added, Store
from pcp.tensor import Tensor, current_builder
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
    for_region = isinstance(candidate, RegionCandidate)
    applies, build = (_applies_to_region, _build_of_region) if for_region else (_applies, _build)
    return Kernel(
        added.name,
        candidate.effect,
        candidate.about,
        applies(added),
        StableHLO(build(added)),
        candidate.needs if isinstance(candidate, RegionCandidate) else (),
        version=candidate.version,
        nonfinite=candidate.nonfinite,
    )


def _applies(added: Added) -> Callable[[ir.Operation], bool]:
    candidate = added.candidate
    assert isinstance(candidate, Candidate)

    def applies(op: ir.Operation) -> bool:
        posed = posed_at(candidate, op)
        return posed is not None and _is_lowered(lambda: lowered(added, posed.problem, posed.told))

    return applies


def _build(added: Added) -> Callable[[ir.Operation], Sequence[Tensor]]:
    candidate = added.candidate
    assert isinstance(candidate, Candidate)

    def build(op: ir.Operation) -> Sequence[Tensor]:
        posed = posed_at(candidate, op)
        if posed is None:
            raise KernelNotLowered(f"{added.name} does not fit {op.name} as it stands there; plan again")
        program = lowered(added, posed.problem, posed.told)
        made = call(program, *posed.operands())
        return [posed.result(made[0] if isinstance(made, tuple) else made)]

    return build


def _applies_to_region(added: Added) -> Callable[[ir.Operation], bool]:
    candidate = added.candidate
    assert isinstance(candidate, RegionCandidate)

    def applies(op: ir.Operation) -> bool:
        return is_region(candidate, op) and _is_lowered(lambda: region_program(candidate, added.digest))

    return applies


def _build_of_region(added: Added) -> Callable[[ir.Operation], Sequence[Tensor]]:
    candidate = added.candidate
    assert isinstance(candidate, RegionCandidate)

    def build(op: ir.Operation) -> Sequence[Tensor]:
        builder = current_builder()
        taken = dict.fromkeys((*op.operands, *values_from_outside(op)))
        made = call(region_program(candidate, added.digest), *(Tensor(each, builder) for each in taken))
        return made if isinstance(made, tuple) else (made,)

    return build


def _is_lowered(lower: Callable[[], object]) -> bool:
    try:
        lower()
    except KernelNotLowered as error:
        log.warning("an added kernel is left out: %s", error)
        return False
    return True
