"""The facts of one program: what it is, what is derived from it, and what a planner has to choose from on fixed machines."""

import hashlib
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import numpy as np

import pcp
from pcp.kernels import Site, cover, kernel_named, sites_of
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.rewrite import simplify
from tests.execution import run
from tests.replay.machine import machine

Facts = dict[str, str]
"""One line each, by name."""
SHORT = 10
"""Hexadecimal digits of a digest that are kept."""


def derived(program: pcp.Program) -> Facts:
    """Digests of a program and of what transformations make of it, or the first words of why they make nothing."""
    makers: dict[str, Callable[[], pcp.Program]] = {
        "digest": lambda: program,
        "simplified": lambda: simplify(program),
        "gradient": lambda: pcp.value_and_grad(program, 0),
        "second": lambda: pcp.vjp(pcp.grad(program, 0)),
        "tangents": lambda: pcp.jvp(program),
        "batched": lambda: pcp.vmap(program, size=2),
    }
    return {name: made(make) for name, make in makers.items()}


def made(make: Callable[[], pcp.Program]) -> str:
    """The digest of a program, or the kind of error that there is instead: words of errors are tested where they are raised."""
    try:
        return make().digest[:SHORT]
    except pcp.PCPError as error:
        return type(error).__name__


def choices(program: pcp.Program, *, bare: bool = True) -> Facts:
    """What a planner has to choose from on each machine, and what the first of each choice comes to.

    Arguments:
        bare: whether a processor without instruction sets and libraries is asked, too.
    """
    with machine():
        ready = prepared(program)
        found = (
            {"prepared": ready.digest[:SHORT]}
            | _chosen(program, ready, "cpu")
            | _chosen(program, ready, "cuda")
        )
    if bare:
        with machine(bare=True):
            found |= {f"bare {name}": fact for name, fact in _chosen(program, ready, "cpu").items()}
    return found


def _chosen(program: pcp.Program, ready: pcp.Program, platform: str) -> Facts:
    """The sites on one kind of device, and a path that takes the first kernel at each that is in no composite, as far as they
    can stand beside one another."""
    sites = sites_of(ready, platform)
    path = Path.of(program, {
        site.key: kernel_named(site.kernels[0])
        for site in cover(site for site in sites if not site.inside)
        if site.kernels
    })  # fmt: skip
    found = {f"{platform} {name}": fact for name, fact in _sites(sites).items()}
    found[f"{platform} keys"] = of_text(
        sorted(f"{each.key} {each.region.digest} {each.trips}" for each in sites)
    )
    found[f"{platform} path"] = path.digest[:SHORT]
    found[f"{platform} applied"] = path.applied(program).digest[:SHORT]
    return found


def _sites(sites: Iterable[Site]) -> Facts:
    """For each family, how often which kernels apply; those inside of composites are counted apart."""
    kinds = Counter((bool(site.inside), site.family, site.kernels) for site in sites)
    families: dict[str, list[str]] = {}
    for (is_inside, family, kernels), count in sorted(kinds.items()):
        own = ", ".join(name.removeprefix(f"{family}.") for name in kernels)
        families.setdefault(f"{'inner' if is_inside else 'sites'} {family}", []).append(f"{count} x {own}")
    return {name: "; ".join(each) for name, each in families.items()}


def of_text(lines: Iterable[str]) -> str:
    """A digest of lines."""
    return hashlib.sha256("\n".join(lines).encode()).hexdigest()[:SHORT]


def bits(program: pcp.Program) -> str:
    """A digest of the results on random arguments: of one machine, and so never stored."""
    arguments = random_arguments(program.arguments, Recipe(seed=7), 0)
    results = run(program, *program.argument_tree.unflatten(arguments))
    return of_text(
        hashlib.sha256(np.ascontiguousarray(leaf).tobytes()).hexdigest() for leaf in _leaves(results)
    )


def _leaves(nested: Any) -> list[Any]:
    if isinstance(nested, dict):
        return [leaf for key in sorted(nested) for leaf in _leaves(nested[key])]
    if isinstance(nested, list | tuple):
        return [leaf for each in nested for leaf in _leaves(each)]
    return [nested]
