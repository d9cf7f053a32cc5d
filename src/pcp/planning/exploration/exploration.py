"""All valid paths of a program, best first, as far as the database and the cost model know; and exploring: measuring one after
another in the background, so that later plans are answered from the database."""

import functools
import itertools
import math
from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pcp.backends import Target
from pcp.backends.base import CompileOptions
from pcp.ir import Program
from pcp.ir.expecting import expect_program
from pcp.kernels import Kernel, Site, cover, replaced
from pcp.planning import capacity
from pcp.planning.added import register_added
from pcp.planning.conditions import (
    BUDGET,
    Conditions,
    Database,
    Place,
    check_tolerance,
    evidence_of,
    example_of,
    places_of,
)
from pcp.planning.exploration.best_first import best_first
from pcp.planning.forms import looked_at
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.kinds import Stage, at_stages
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.placing.search import Placing
from pcp.planning.prediction.cost_model import estimated_seconds
from pcp.planning.search.evidence import Evidence, Progress
from pcp.planning.search.found import Duels
from pcp.planning.search.loop import walked
from pcp.planning.search.question import Answer, Asking, in_turn, shown
from pcp.planning.search.site_classes import SiteClass, site_classes
from pcp.planning.search.tuning import kernel_label, tune
from pcp.planning.search.whole import Whole, culprit

Option = tuple[float, Kernel | None]
"""Seconds of one call, and the kernel; None is the operation itself."""
Group = tuple[SiteClass, tuple[Site, ...], list[Option]]
"""Sites that get equal kernels, and what these may be; None comes first."""


def paths(
    program: Program,
    device: Place | Sequence[Place] | None = None,
    tolerance: float | None = None,
    database: Database = None,
    *,
    uniform: bool = False,
) -> Iterator[Path]:
    """Every valid way to run a program, the best first, one at a time: there are far more than can be listed.

    The order is that of the database where it knows, else of the cost model; times of sites are added up.

    Arguments:
        program: any Program.
        device: where it is to run, or a target; None takes the default. Of a list, operations may run in other places than the
            first: such paths, and the whole program there, come in turn with the others.
        tolerance: leaves out kernels whose own error is known to exceed it, and paths whose error is; None leaves out none.
        database: of measurements, or its file; None takes the user's.
        uniform: whether equal sites have equal kernels.

    Raises:
        InvalidTolerance: the tolerance is no number from 0 on.
        NoPlaces, UnknownBackend, UnknownDevice: as `pcp.plan`.
    """
    if tolerance is not None:
        check_tolerance(tolerance)
    register_added()
    first, others = places_of(device)
    target = Target.of(first)
    conditions = Conditions(target, target.capacity, database, budget=0.0)

    def walk(evidence: Evidence) -> Asking[None]:
        classes = site_classes(prepared(program, tolerance), target, tolerance)
        bad = _too_wrong(program, tolerance, evidence)
        whole = Whole(program, math.inf if tolerance is None else tolerance, target)
        paths = in_turn(
            combinations(whole, classes, evidence, uniform=uniform),
            *elsewhere(whole, others, evidence, lambda: None),
        )
        while (path := (yield from shown(paths))) is not None:
            if path.digest not in bad:
                yield path

    def paths() -> Iterator[Path]:
        with evidence_of(conditions) as evidence:
            yield from walked(walk, evidence)

    return paths()


def elsewhere(
    whole: Whole, others: Sequence[Target], evidence: Evidence, seconds: Callable[[], float | None]
) -> list[Asking[None]]:
    """Walks that show paths which run elsewhere, the best first: the whole program, and some of its operations; none where
    there is no place.

    Arguments:
        others: the places.
        evidence: what is known of single operations there; what is not is measured, if there is time.
        seconds: of a call of the plain path, asked when the first placement is; None if that is not known.
    """

    def entire() -> Asking[None]:
        yield from (whole.plain_on(other) for other in others)

    def in_part() -> Asking[None]:
        placing = Placing.of(whole.program, whole.plain, whole.target, others)
        if placing.others and placing.operations is not None:
            yield from placing.measure(evidence)
            yield from (path for _, path in placing.paths(placing.costs(seconds())))

    return [entire(), in_part()] if others else []


def combinations(
    whole: Whole,
    classes: Sequence[SiteClass],
    evidence: Evidence,
    *,
    uniform: bool,
) -> Asking[None]:
    """Show the paths made of every combination of kernels, best first; the plain path is one of them.

    Told that one does not run, it finds the kernel to blame, which is left out from then on; it ends where there is no time for
    that.

    Arguments:
        whole: the program as the user wrote it; its tolerance leaves out kernels that are known to be less exact alone.
        classes: of the sites of the prepared program.
        evidence: what is known of them.
        uniform: whether equal sites have equal kernels.
    """
    groups: list[Group] = []
    banned: set[tuple[str, str]] = set()
    for each in classes:
        known = _options(each, evidence, whole.tolerance)
        for sites in [each.sites] if uniform else [(site,) for site in each.sites]:
            trips = sum(site.trips for site in sites)
            groups.append((each, sites, [(trips * seconds, kernel) for seconds, kernel in known]))
    for picked in _picked(groups, banned, () if uniform else _apart(groups)):
        kernels = {
            site.key: kernel
            for (_, sites, _), kernel in zip(groups, picked, strict=True)
            if kernel is not None
            for site in sites
        }
        if uniform:
            standing = cover(site for _, sites, _ in groups for site in sites if site.key in kernels)
            kernels = {site.key: kernels[site.key] for site in standing}
        path = whole.path(kernels)
        if not kernels and not at_stages(whole.forms, Stage.written):
            yield whole.plain
        row: Answer = None if path.is_plain else (yield path)
        if row is not None and whole.is_broken(row) and kernels:
            chosen = {each.digest: kernels[site.key] for each, (site, *_), _ in groups if site.key in kernels}
            digest = yield from culprit(whole, classes, chosen, evidence)
            if digest is None:
                return
            banned.add((digest, chosen[digest].name))


def _apart(groups: Sequence[Group]) -> list[set[int]]:
    """For each group of one site the groups at whose sites no kernel can stand beside one here."""
    apart = [set[int]() for _ in groups]
    for (one, (_, [site], _)), (other, (_, [second], _)) in itertools.combinations(enumerate(groups), 2):
        if len(cover((site, second))) < 2:
            apart[one].add(other)
            apart[other].add(one)
    return apart


def _picked(
    groups: Sequence[Group], banned: Collection[tuple[str, str]], apart: Sequence[Collection[int]]
) -> Iterator[tuple[Kernel | None, ...]]:
    """A kernel for each group, the best first.

    What is banned leaves the lists, so that no combination with it is ever made. Where more was banned meanwhile, it begins
    anew with shorter lists, and passes over what it gave before.
    """
    seen: set[tuple[Kernel | None, ...]] = set()
    while True:
        count = len(banned)
        left = [
            [
                (seconds, kernel)
                for seconds, kernel in choice
                if kernel is None or (each.digest, kernel.name) not in banned
            ]
            for each, _, choice in groups
        ]
        for combination in best_first([[seconds for seconds, _ in choice] for choice in left], apart):
            picked = tuple(choice[index][1] for choice, index in zip(left, combination, strict=True))
            if picked in seen:
                continue
            seen.add(picked)
            yield picked
            if len(banned) != count:
                break
        else:
            return


def _options(each: SiteClass, evidence: Evidence, tolerance: float | None) -> list[Option]:
    """The kernels of a class that are not known to fail or to be too wrong, with measured or estimated seconds of one call."""
    known = evidence.known(each.digest)
    guess = each.estimate / each.uses if each.uses else each.estimate
    model = evidence.cost_model
    learnt = None if known else model.plain_seconds(each.region, each.family)
    measured = [row.typical / row.ratio for row in known.values() if row.seconds and row.plain_seconds]
    plain = min(measured, default=learnt or guess)
    options: list[Option] = [(plain, None)]
    for kernel in each.kernels:
        row = known.get(kernel_label(kernel))
        forecast = model.forecast(each.region, kernel_label(kernel)) if row is None else None
        if forecast is not None:
            options.append((plain * forecast.ratio, kernel))
        elif row is None:
            estimate = estimated_seconds(replaced(each.region, kernel))
            options.append((plain * estimate / guess if guess > 0 else estimate, kernel))
        elif row.failure is None and (
            not tolerance or row.least_tolerance is None or row.least_tolerance <= tolerance
        ):
            options.append((plain * row.ratio if row.seconds else plain, kernel))
    return options


def _too_wrong(program: Program, tolerance: float | None, evidence: Evidence) -> set[str]:
    rows = evidence.known(program.digest)
    return {
        path
        for path, row in rows.items()
        if (row.failure is not None and row.error is None)
        or (tolerance and row.least_tolerance is not None and row.least_tolerance > tolerance)
    }


@dataclass(frozen=True, slots=True)
class Explored:
    """A path that was looked at."""

    path: Path
    measurement: Measurement
    is_new: bool


def explore(
    program: Program,
    device: Place | Sequence[Place] | None = None,
    *,
    database: Database = None,
    budget: float = BUDGET,
    example: Sequence[Any] | None = None,
    options: CompileOptions = MappingProxyType({}),
    progress: Callable[[Progress], object] | None = None,
) -> Iterator[Explored]:
    """Measure a program's paths, best first, until the time is up or all were measured; what is known already is not measured.

    Kernels of all classes of sites are measured alone first. Whole paths then have equal kernels at equal sites; a kernel that
    does not run in the whole program is left out from then on. Where programs that are equal by algebra are faster, paths of
    the fastest of them come in turn with those of the program as it is written.

    Arguments:
        program: any Program.
        device: where, or a target; None takes the default. Of a list, the whole program, and some of its operations, are
            measured in other places than the first, too, in turn with other paths.
        database: where measurements go, or its file; None takes the user's.
        budget: seconds in which measurements may begin.
        example: one call's arguments, to measure on; None makes random ones.
        options: of the compiler.
        progress: told before every measurement.

    Returns:
        An iterator; leaving it ends the exploration, and another one goes on from there.

    Raises:
        InvalidBudget: the budget is no number of seconds.
        TreeMismatch: the example is nested otherwise than the program's arguments.
    """
    expect_program(program, "pcp.explore")
    first, others = places_of(device)
    target = Target.of(first, options)
    limit = capacity.memory_limit(target)
    conditions = Conditions(target, limit, database, budget, example, progress)
    evidence = evidence_of(conditions)
    whole = Whole(program, math.inf, target, *example_of(program, example))

    def walk() -> Iterator[Explored]:
        with evidence:
            yield from walked(functools.partial(exploring, whole, others, limit), evidence)

    return walk()


def exploring(whole: Whole, others: Sequence[Target], limit: int, evidence: Evidence) -> Asking[None]:
    """Show each path that is `Explored`, first other forms of the program.

    Arguments:
        limit: bytes that a call may take.
    """
    walks = [_walk(whole, others, evidence)]
    tried = yield from looked_at(whole, evidence, limit, whole.plain)
    yield from (Explored(each.whole.path({}), each.row, True) for each in tried)
    best = min(tried, key=lambda each: each.rank, default=None)
    if best is not None and not best.refused:
        walks.append(_walk(best.whole, [], evidence))
    yield from in_turn(*walks)


def _walk(whole: Whole, others: Sequence[Target], evidence: Evidence) -> Asking[None]:
    """Show the paths of a program, or of one that is equal, as long as there is time."""
    sites = site_classes(whole.prepared, whole.target)
    yield from tune(sites, evidence)
    seconds: list[float] = []  # of the plain path, in turn with each
    paths = in_turn(
        combinations(whole, sites, evidence, uniform=True),
        *elsewhere(whole, others, evidence, lambda: min(seconds, default=None)),
    )
    row: Answer = None
    while (path := (yield from shown(paths, row))) is not None:
        before = evidence.measured
        row = yield from _measured(whole, path, others, evidence)
        if row is None:
            return
        if row.seconds and row.plain_seconds:
            seconds.append(row.typical / row.ratio)
        yield Explored(path, row, evidence.measured > before)


def _measured(whole: Whole, path: Path, others: Sequence[Target], evidence: Evidence) -> Asking[Answer]:
    """Times and error of a path, wherever it runs; None if there is no time."""
    if path.placement is None and path.backend == whole.target.backend:
        return (yield from whole.measured(path, evidence))
    there = [
        other for other in others if other.backend == path.backend and {*other.options} <= {*path.options}
    ]
    place = None if path.placement is not None else there[0]
    return (yield from Duels(whole, evidence).fought(path, whole.plain, place, is_judged=True))
