"""Which region is meant: one of a program, or one that was measured before."""

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels.regions import only_operation
from pcp.kernels.registry import family_of
from pcp.planning.paths.preparation import prepared
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.site_classes import site_classes

MOST_NAMED = 12
"""Regions that a message names."""


class RegionNotFound(PCPError):
    """There is no such region, or there are several."""


def region_in(program: Program, digits: str, target: Target) -> Program:
    """A region of a program, as planning sees it.

    Arguments:
        program: as the user wrote it.
        digits: the first ones of the region's digest; empty where the program has one region only.
        target: what it is planned for.

    Raises:
        RegionNotFound: it has none, or none or several of that beginning; the message names those that there are.
    """
    classes = site_classes(prepared(program), target, bare=True)
    meant = [each for each in classes if each.digest.startswith(digits)]
    if len(meant) == 1:
        return meant[0].region
    if not classes:
        raise RegionNotFound(
            f"program {program.digest[:12]} has no region that kernels compute; expected one with products, softmax, "
            "norms, attention, cross entropy or activations"
        )
    words = "no region" if not meant else f"{len(meant)} regions"
    beginning = f" whose digest begins with {digits!r}" if digits else ""
    raise RegionNotFound(
        f"program {program.digest[:12]} has {words}{beginning}; name one as PROGRAM:DIGITS, the costliest first: "
        + "; ".join(f"{each.digest[:12]} {each}" for each in (meant or classes)[:MOST_NAMED])
    )


def region_measured(database: ProfileDatabase, digits: str) -> Program:
    """A region that was measured before, from the database of measurements.

    Raises:
        RegionNotFound: nothing, or more than one region, of that beginning was measured.
        DatabaseUnusable: the database cannot be read.
    """
    digests = [digest for digest in database.subjects() if digest.startswith(digits)]
    regions = database.regions(digests)
    if len(regions) != 1:
        words = "no region" if not regions else f"{len(regions)} regions"
        raise RegionNotFound(
            f"{database.file} knows {words} whose digest begins with {digits!r}, and there is no such file; give the file of "
            "a program, PROGRAM:DIGITS, or the first digits of one region that `pcp profile list` lists"
        )
    [region] = regions.values()
    return region.program()


def family_in(region: Program) -> str:
    """The family of kernels that a region belongs to.

    Raises:
        RegionNotFound: it belongs to none.
    """
    module = region.module()
    family = family_of(only_operation(entry_block(module)))
    if family is None:
        raise RegionNotFound(
            f"no kernels compute {region}; take a region that `pcp kernels export PROGRAM` names"
        )
    return family.name
