"""Which native libraries a search may call, found before any is built."""

from pcp.backends import Target
from pcp.backends.registry import arrays_of
from pcp.ir import Program
from pcp.kernels import FAMILIES, kernel_named, sites_of
from pcp.kernels.native import LIBRARIES
from pcp.planning.forms.equal import is_here
from pcp.planning.paths.preparation import prepared


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
