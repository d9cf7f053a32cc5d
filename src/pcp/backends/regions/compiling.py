"""Programs compiled as a placement says."""

from pcp.backends.base import Executable
from pcp.backends.regions.bound import StagedExecutable
from pcp.backends.regions.executable import RegionsExecutable
from pcp.backends.regions.placement import Placement
from pcp.backends.regions.streamed import StreamedExecutable
from pcp.backends.target import Target
from pcp.ir import Program
from pcp.rewrite.binding import bind_stage


def compiled_in_places(
    program: Program,
    home: Target,
    placement: Placement | None,
    bound: tuple[int, ...] = (),
    *,
    cache: bool = True,
) -> Executable:
    """A program compiled as a placement says; without one, or where it moves nothing, as a whole, or as its bind stage and the
    rest.

    Arguments:
        bound: the flat places of arguments that are bound, where what they alone decide is computed apart.
        home: of the operations that the placement does not name, and of arguments and results. Its options hold
            for the operations, also where all of them are streamed.

    Raises:
        UnknownOperation, NotDivisible: as `pcp.rewrite.regions`.
        UnknownBackend, UnknownDevice, CompilationFailed: as `Target.of`, `Target.compile`.
        OutOfMemory: as `StreamedExecutable`.
    """
    if placement is None:
        stage = bind_stage(program, bound) if bound else None
        if stage is not None:
            return StagedExecutable(program, stage, home, cache=cache)
        return home.compile(program, cache=cache)
    if placement.streamed is not None:
        return StreamedExecutable(program, home, placement.main(home), placement.streamed[1], cache=cache)
    places = (home, *(each.suited(program) for each in placement.targets()))
    return RegionsExecutable(
        program,
        placement.regions(program),
        places,
        lambda region, place: places[place].compile(region, cache=cache),
    )
