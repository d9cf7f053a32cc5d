"""Plans by a path that is given: what they are compiled for, and whether the path is of this program and place."""

from pcp.backends import Device, Target
from pcp.backends.base import CompileOptions
from pcp.backends.registry import DEFAULT
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning.measuring.hardware import made_with
from pcp.planning.paths.path import Path, expect_path


class PlanConflict(PCPError):
    """Wishes for a plan that exclude each other."""


def target_of(device: str | Device | Target | None, options: CompileOptions, path: Path | None) -> Target:
    """What to compile for; a path says by which backend, where no target does."""
    if not isinstance(path, Path):
        return Target.of(device, options)
    path.check_backend()
    target = Target.of(device, backend=DEFAULT if path.is_streamed else path.backend)
    if not path.is_streamed and target.backend != path.backend:
        raise PlanConflict(
            f"the path is for backend {path.backend!r}, and the target names {target.backend!r}; leave the target out, give "
            f"one of backend {path.backend!r}, or plan again without the path"
        )
    return target


def check_pinned(
    path: Path, program: Program, target: Target, tolerance: float | None, options: CompileOptions
) -> None:
    expect_path(path)
    if tolerance is not None:
        raise PlanConflict(
            f"both a path and a tolerance of {tolerance:g} were given; a path already says how to run the "
            "program; give only one of the two"
        )
    options = options or dict(target.options)
    if not options.items() <= dict(path.options).items():
        raise PlanConflict(
            f"the options {dict(options)} are not those of the path, {dict(path.options)}; leave them out"
        )
    path.check_places()
    path.check_place(*made_with(target, path.placement))
    place = target if path.placement is None else path.placement.main(target)
    path.check_sites(program, place)
