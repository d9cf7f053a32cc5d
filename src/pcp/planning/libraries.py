"""Which native libraries a search may call, found before any is built, and built before its seconds begin."""

import functools
import logging

from pcp.backends import Target
from pcp.backends.processors import core_count
from pcp.backends.registry import arrays_of
from pcp.interruption import all_of
from pcp.ir import Program
from pcp.kernels import FAMILIES, kernel_named, native, sites_of
from pcp.kernels.native import LIBRARIES
from pcp.planning.conditions import check_tolerance
from pcp.planning.forms.equal import is_here
from pcp.planning.paths.preparation import prepared

log = logging.getLogger("pcp.planning")


def have_libraries(program: Program, target: Target, tolerance: float, budget: float) -> None:
    """Build the native libraries that paths may call and that are not built yet, on all cores. What cannot be built is missing.

    Arguments:
        program, target, tolerance: as `libraries_for`; of a tolerance of 0 nothing is built.
        budget: seconds of the search that begins; of one that measures nothing nothing is built.
    """
    check_tolerance(tolerance)
    if target.platform != "cpu" or not tolerance or not budget or not any(map(native.is_unbuilt, LIBRARIES)):
        return
    names = sorted(filter(native.is_unbuilt, libraries_for(program, target, tolerance)))
    if names:
        log.info("building the native libraries %s, which is not of the budget", ", ".join(names))
        all_of([functools.partial(native.missing, name) for name in names], core_count())


def libraries_for(program: Program, target: Target, tolerance: float) -> frozenset[str]:
    """Names of the native libraries that paths of a program within a tolerance may call: nothing is built, and none is looked
    for, so that one may be built afterwards.

    Arguments:
        program: as the user wrote it, without symbolic sizes.
        target: what it is to be planned for.
        tolerance: more than 0.
    """
    names = {
        name for site in sites_of(prepared(program, tolerance), target, builds=False) for name in site.kernels
    }
    if is_here() and b"dot_general" in program.bytecode:  # an equal program has products of other shapes
        names |= FAMILIES["product"].kernels.keys()
    kernels = [
        kernel for kernel in map(kernel_named, names) if not kernel.lacks(target.platform, builds=False)
    ]
    called = {library for kernel in kernels for library in kernel.libraries}
    if arrays_of(target.backend) == "arena":
        called.add("steps")
    elif called and target.platform == "cpu":
        called.add("temporaries")
    return frozenset(called & LIBRARIES.keys())
