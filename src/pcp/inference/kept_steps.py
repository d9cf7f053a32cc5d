"""Steps as they are run, kept on disk, so that a second process traces none and looks for no sites in them.

A step is a function of the model's sizes, of how its weights are stored, of a shape, and of PCP's own code. What is kept is the
program with its kernels in place; its compiled form lies beside, where every program's does.
"""

import logging
from collections.abc import Callable
from itertools import chain
from typing import Any

from pcp.backends import Target
from pcp.backends.cache import cache_key, default_cache
from pcp.backends.registry import DEFAULT
from pcp.ir import Program
from pcp.ir.program_file import code_digest
from pcp.ir.tree import flatten
from pcp.kernels import Kernel, kernel_named, sites_of
from pcp.kernels.features import KINDS, features_of
from pcp.planning.paths.kept import version_of
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared

STANDING = {
    "cpu": ("quantised_product.native", "quantised_product.native_many", "attention.native"),
    "cuda": ("attention.triton_few", "product_epilogue.triton", "product.triton"),
}
"""Kernels that stand without a search, by the kind of device: they round no more than the plain forms. Of these, on a processor
one writes stored weights out in float32 and the other brings whole caches into another order; on a GPU each is many kernels,
and a step of decoding takes as long as it has kernels."""

log = logging.getLogger("pcp.inference")


def standing_kernels(program: Program, target: Target) -> dict[str, Kernel]:
    """Those of a step that stand without a search, by the keys of their sites: where sites share operations, at the largest."""
    names = STANDING.get(target.platform, ()) if target.backend == DEFAULT else ()
    chosen: dict[str, Kernel] = {}
    taken = set[str]()
    for site in sorted(
        sites_of(prepared(program), target) if names else (), key=lambda site: -len(site.takes)
    ):
        fitting = [name for name in names if name in site.kernels]
        if fitting and taken.isdisjoint(site.takes):
            taken |= site.takes
            chosen[site.key] = kernel_named(fitting[-1])
    return chosen


def as_run(program: Program, target: Target) -> Program:
    """A step as it is written, but for kernels that round no more."""
    kernels = standing_kernels(program, target)
    return Path.of(program, kernels).applied(program) if kernels else program


def kept_step(target: Target, specs: Any, facts: object, make: Callable[[], Program]) -> Program:
    """A step as it is run, as the same code made it before on a machine with the same features.

    Arguments:
        target: what it is compiled for.
        specs: of its parameters and cache, nested.
        facts: what else it is made from: the model's sizes and the step's shape, as `repr` shows them.
        make: traces it, where it is not kept.
    """
    leaves, tree = flatten(specs)
    kernels = [
        (each.name, each.version, each.artifact.digest)
        for each in map(kernel_named, chain(*STANDING.values()))
    ]
    features = [sorted(features_of(kind)) for kind in sorted(KINDS)]
    versions = [version_of(each) for each in ("jax", "jaxlib")]
    made_from = (target.described(), tree, [repr(leaf) for leaf in leaves], facts)
    store = default_cache()
    key = cache_key(["step", repr(made_from), repr((kernels, features, versions)), code_digest()])
    bytecode = store.get(key)
    if bytecode is None:
        log.debug("no step is kept for %s", facts)
        program = as_run(make(), target)
        store.put(key, program.bytecode)
        return program
    return Program(bytecode)
