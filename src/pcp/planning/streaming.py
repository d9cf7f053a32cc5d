"""Paths of programs that are larger than the device on which they run."""

import functools
import itertools
import logging

from pcp.backends import Device, Placement, Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.planning.capacity import lower_bound, memory_limit
from pcp.planning.conditions import BUDGET, Conditions, Database, check_tolerance, evidence_of
from pcp.planning.measuring.measurement import Failure
from pcp.planning.paths.kinds import KERNEL
from pcp.planning.paths.path import Path, PathMismatch, expect_path
from pcp.planning.placing.operations import named
from pcp.planning.search.everywhere import apart, within
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Duels
from pcp.planning.search.loop import answered
from pcp.planning.search.question import Answer, Asking
from pcp.planning.search.search import ToleranceUnreachable
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning")

AT_ONCE = 0.5
"""The part of the memory that operands and results of a kernel may take; the rest is for what is fetched meanwhile."""


class ToleranceAndPath(PCPError):
    """Both a path and a tolerance, of which a path already says how to run a program."""


def streamed(
    program: Program,
    device: str | Device | Target,
    memory: int | str | None = None,
    path: Path | None = None,
    *,
    tolerance: float | None = None,
    budget: float = BUDGET,
    database: Database = None,
) -> Path:
    """A path on which a program runs on one device piece by piece, while values that a piece does not need lie elsewhere.

    Plan it for the place where arguments and results are to lie, most often the processor:

        path = pcp.streamed(program, "cuda:0", "8GiB")
        plan = pcp.plan(program, "cpu:0", path=path)

    Weights are copied to the device for the pieces that read them. Activations that do not fit are copied back until their
    gradients are computed. Which values make room, and when, is known before the first call. Copies go on while pieces run.

    Arguments:
        program: as the user wrote it.
        device: where all operations run, or a target.
        memory: bytes that a call may take there, as of `pcp.plan`; None for what the device has.
        path: how they run, with which kernels and roundings: of a plan for such a device, as `Plan.path` or a file has it.
            Kernels that need more than half of the memory at once are left out. None runs the program as it is written.
        tolerance: how wrong results may be, as of `pcp.plan`. Kernels of all families are measured piece by piece, together,
            the fastest first, and one family after another where these are too wrong. None changes no numerics.
        budget: seconds in which measurements may begin.
        database: of measurements, as of `pcp.plan`.

    Raises:
        UnknownBackend, UnknownDevice: the device is not here.
        InvalidMemoryLimit: as `pcp.plan`.
        NotAPath: `path` is not a path.
        PathMismatch: it belongs to another program, another backend, or other options than the target's.
        ToleranceAndPath: both are given.
        InvalidTolerance, InvalidBudget: the tolerance or the budget is not valid.
        ToleranceUnreachable: as it is written, the program misses the tolerance.
    """
    expect_program(program, "pcp.streamed")
    target = Target.of(device)
    limit = memory_limit(target, memory)
    plain = Path.plain(program, dict(target.options), target.backend)
    if tolerance is None:
        return _streamed(plain if path is None else path, program, target, limit)
    if path is not None:
        raise ToleranceAndPath(
            f"both a path and a tolerance of {tolerance:g} were given to pcp.streamed; a path already says how to run the "
            "program; give only one of the two"
        )
    check_tolerance(tolerance)
    home = Target.of("cpu:0")  # which holds the whole
    with evidence_of(Conditions(home, memory_limit(home), database, budget)) as evidence:
        search = functools.partial(_fastest, Whole(program, tolerance, home), plain, target, limit)
        return answered(search, evidence)


def _streamed(path: Path, program: Program, target: Target, limit: int) -> Path:
    """A path, piece by piece on a target."""
    expect_path(path)
    path.check_program(program)
    if path.backend != target.backend or not {*target.options} <= {*path.options}:
        raise PathMismatch(
            f"the path was made for backend {path.backend!r} with options {dict(path.options)}; {target} has "
            f"{dict(target.options)}: give a device of that backend, or plan for {named(target)}"
        )
    streamed = _in_pieces(path.suited(program, target), program, target, limit)
    return streamed.made_on("", "").placed(Placement((), (named(target), limit)))


def _fastest(whole: Whole, plain: Path, target: Target, limit: int, evidence: Evidence) -> Asking[Path]:
    """The program as it is written, or with the first kernels that are exact enough, if these are faster.

    Times are relative to the whole program at home: all are measured beside it, and judged by its float64.
    """
    classes = site_classes(whole.prepared, target, whole.tolerance)
    home_limit = memory_limit(whole.target)
    duels, strategy = Duels(whole, evidence), evidence.strategy
    levels = within(whole, classes, strategy)
    tried = itertools.chain(levels, (kernels for _, kernels in apart(classes)))

    def measured(path: Path) -> Asking[Answer]:
        row = yield from duels.fought(path, whole.plain, is_judged=True)
        if row is None:
            log.info("piece by piece nothing more was measured: %s", evidence.trouble)
        elif not whole.accepts(row, home_limit):
            log.info("path %s does not count: %s: %s", path.digest[:12], row.failure, row.detail)
        return row

    best = _streamed(plain, whole.program, target, limit)
    row = yield from measured(best)
    if row is not None and row.failure is Failure.inaccurate:
        raise ToleranceUnreachable(
            f"program {whole.program.digest[:12]} misses the tolerance of {whole.tolerance:g} as it is written: "
            f"{row.detail}; give a larger one, or write the program in wider types"
        )
    if row is None:
        return best
    for kernels in tried:
        sites, options = kernels_by_site(classes, kernels), dict(plain.options)
        candidate = Path.of(whole.program, sites, options, whole.tolerance, plain.backend)
        path = _streamed(candidate, whole.program, target, limit)
        other = yield from measured(path)
        if other is None:
            break
        if whole.accepts(other, home_limit):
            return path if other.ratio < row.ratio else best
    return best


def _in_pieces(path: Path, program: Program, target: Target, limit: int) -> Path:
    """The path without kernels that take too much at once, as one that updates all parameters."""
    if not path.choices:
        return path
    sites = path.sites(program, target)
    large = {key for key, site in sites.items() if lower_bound(site.region).peak > AT_ONCE * limit}
    for site, choice in path.choices.items():
        if site in large:
            log.info(
                "kernel %s is left out, whose operands and results take more than half of %d bytes",
                choice.kernel,
                limit,
            )
    return path.having(
        KERNEL.name, (move for move in path.moves if move.kind == KERNEL.name and move.at not in large)
    )
