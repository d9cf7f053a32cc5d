"""A gradient's kernel beside the forward kernel whose residuals it takes: what is measured is how it would run."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.dataflow import result_owner
from pcp.kernels.kernel import Kernel
from pcp.kernels.registry import FAMILIES
from pcp.kernels.sites import Site
from pcp.kernels.widening import Widened
from pcp.tensor import Tensor, current_builder
from pcp.tracing import call, spec, trace


@dataclass(frozen=True, slots=True)
class Given:
    """A gradient whose residuals are given.

    Arguments:
        subject: the operation, as a Program of its operands and the residuals, which it does not need.
        candidate: the same, computed by the kernel.
        residuals: them, as a Program of the operands.
    """

    subject: Program
    candidate: Program
    residuals: Program


def with_residuals(site: Site, kernel: Kernel, platform: str) -> Given | None:
    """How a kernel is measured that takes residuals; None if it takes none, or nothing at hand would compute them."""
    if not kernel.takes or site.pair is None:
        return None
    families = (family for family in FAMILIES.values() if family.gradient == kernel.family)
    handing = [
        each
        for family in families
        for each in family.kernels.values()
        if each.hands == kernel.takes and each.is_for(platform) and not each.lacks(platform)
    ]
    candidates = (_given(site.region, site.pair, kernel, forward) for forward in handing)
    return next(filter(None, candidates), None)


def _given(region: Program, pair: Program, kernel: Kernel, forward: Kernel) -> Given | None:
    operands = [entry.spec for entry in region.arguments]
    residuals = _built(pair, operands, lambda op, _: _handed(forward, op))
    if residuals is None:
        return None
    specs = [*operands, *(entry.spec for entry in residuals.results)]
    subject = trace(
        lambda *x: call(region, *x[: len(operands)]), *(spec(each.shape, each.dtype) for each in specs)
    )
    candidate = _built(region, specs, kernel.build)
    assert candidate is not None
    return Given(subject, candidate, residuals)


def _handed(forward: Kernel, op: ir.Operation) -> Sequence[Tensor] | None:
    wide, _module = Widened.alone(op)
    return forward.build(op)[len(op.results) :] if forward.applies_to(op, wide) else None


def _built(
    region: Program,
    specs: Sequence[TensorSpec],
    build: Callable[[ir.Operation, Sequence[Tensor]], Sequence[Tensor] | None],
) -> Program | None:
    """What is built in front of the first operation of a region, from it and the arguments that the region does not take."""
    count = len(region.arguments)
    fits = True

    def function(*x: Tensor) -> tuple[Tensor, ...]:
        nonlocal fits
        results = call(region, *x[:count])
        first = results[0] if isinstance(results, tuple) else results
        op = result_owner(first.value)
        with current_builder().before(op):
            built = build(op, x[count:])
        fits = built is not None
        return tuple(built if built is not None else x)

    program = trace(function, *(spec(each.shape, each.dtype) for each in specs))
    return program if fits else None
