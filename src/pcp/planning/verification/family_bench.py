"""All kernels of a family on the problems of that family: where each can stand, how fast it is there, and how wrong."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from pcp.autodiff import vjp
from pcp.backends import Target
from pcp.kernels import FAMILIES, Family, Place, Site, kernel_named, replaced, sites_of
from pcp.kernels.problems import DEFINITIONS, Problem, UnknownProblem, problem, problems_of
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.hardware import hardware_of
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.verification.judging import request_of
from pcp.rewrite.raising import raised


@dataclass(frozen=True, slots=True)
class Row:
    """One kernel on one problem, as it was measured."""

    problem: Problem
    kernel: str
    measurement: Measurement


def family_named(name: str) -> tuple[Family, str]:
    """A family of kernels, and the family whose problems it occurs in: for gradients the one that they are of.

    Raises:
        UnknownProblem: there is no such family, or no problems of it.
    """
    of = {family.gradient: family.name for family in FAMILIES.values() if family.gradient}
    known = [each for each in FAMILIES if of.get(each, each) in DEFINITIONS]
    if name not in known:
        raise UnknownProblem(f"there is no family {name!r}; choose one of {', '.join(known)}")
    return FAMILIES[name], of.get(name, name)


def sites_in(of: Problem, family: Family, target: Place) -> list[Site]:
    """The sites of a family in a problem, or in its gradient; none where no kernel applies."""
    program = raised(of.reference())
    if family.name != of.family:
        program = vjp(program, wrt=of.differentiable)
    return [site for site in sites_of(program, target) if site.family == family.name]


def reach(name: str, target: Place) -> tuple[dict[str, int], int]:
    """On how many problems of a family, standard and large, each of its kernels can stand, and how many there are.

    Raises:
        UnknownProblem: as `family_named`.
    """
    family, base = family_named(name)
    problems = [*problems_of(base), *(problem(base, form) for form in DEFINITIONS[base].forms)]
    counts = dict.fromkeys(family.kernels, 0)
    for each in problems:
        for kernel in {kernel for site in sites_in(each, family, target) for kernel in site.kernels}:
            counts[kernel] += 1
    return counts, len(problems)


def bench_family(
    name: str,
    bench: Bench,
    target: Target,
    database: ProfileDatabase | None,
    seconds: float,
    starting: Callable[[str], object] = lambda words: None,  # noqa: ARG005  (says nothing)
) -> Iterator[Row]:
    """Measure every kernel of a family on a large problem of every form.

    Arguments:
        database: that rows are added to; None keeps none.
        seconds: that a kernel and the plain program are timed in turn.
        starting: called with what is measured next.

    Raises:
        UnknownProblem: as `family_named`.
        DatabaseUnusable: the database cannot be written.
    """
    family, base = family_named(name)
    hardware = hardware_of(target)
    for form in DEFINITIONS[base].forms:
        of = problem(base, form)
        for site in sites_in(of, family, target)[:1]:
            for kernel_name in site.kernels:
                kernel = kernel_named(kernel_name)
                starting(f"{kernel_name} on {of}")
                label, program = f"{kernel.name}@{kernel.version}", replaced(site.region, kernel)
                request = request_of(site.region, program, label, target, seconds, kernel.claims)
                measurement = bench.measure(request)
                if database is not None:
                    database.add(measurement, hardware=hardware, about=str(of))
                yield Row(of, kernel_name, measurement)
