"""What a caller says that it will bind, and whether computing once what that decides pays; and what state may be narrower."""

from collections.abc import Collection
from dataclasses import replace

from pcp.backends import Executable
from pcp.backends.regions.bound import BoundExecutable, StagedExecutable
from pcp.errors import PCPError
from pcp.ir import Program, Role
from pcp.planning.arguments import parameter_names
from pcp.planning.capacity import human
from pcp.planning.paths.kinds import BOUND
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.found import Found
from pcp.planning.search.question import Asking
from pcp.planning.search.whole import Whole
from pcp.rewrite.binding import bind_stage
from pcp.rewrite.stored import LEAST_STATE, is_moment


class InvalidNarrows(PCPError):
    """Names of state that are none, or of what paths may not keep in fewer bits."""


def narrowable(program: Program, names: Collection[str]) -> tuple[int, ...]:
    """The flat places of the moments that a caller lets paths keep in fewer bits.

    Arguments:
        names: of arguments of the program, dotted, each for all that is nested in it.

    Raises:
        InvalidNarrows: a name is none, or none of a moment.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidNarrows(
            f"narrows is {names!r:.60}; expected a tuple of names of state, as ('state.optimizer',)"
        )
    moments = {place: entry.name for place, entry in enumerate(program.arguments) if is_moment(entry)}
    for name in names:
        if not any(f"{each}.".startswith(f"{name}.") for each in moments.values()):
            shown = ", ".join(dict.fromkeys(".".join(each.split(".")[:3]) for each in moments.values()))
            raise InvalidNarrows(
                f"narrows names {name!r}, in which no optimizer keeps moments of {LEAST_STATE} numbers of float32 or more; the "
                f"program has {shown or 'none'}: give names of these, as ('state.optimizer',)"
            )
    return tuple(
        place for place, each in moments.items() if any(f"{each}.".startswith(f"{name}.") for name in names)
    )


class InvalidBinds(PCPError):
    """Names of arguments to be bound that are none, or of which some cannot be bound."""


def bound_count(program: Program, names: Collection[str]) -> int:
    """How many arguments, flat and from the first, a caller says that it will bind.

    Arguments:
        names: of arguments of the program, the first ones.

    Raises:
        InvalidBinds: no argument has a name, or a call consumes it, or one before it is not named.
    """
    if isinstance(names, str) or not all(isinstance(name, str) for name in names):
        raise InvalidBinds(f"binds is {names!r:.60}; expected a tuple of names of arguments, as ('weights',)")
    tree = program.argument_tree
    known = parameter_names(program.arguments, tree)
    for name in names:
        if name not in known:
            raise InvalidBinds(
                f"binds names {name!r}; the program takes {', '.join(known) or 'no arguments'}: give names of these"
            )
    behind = next((name for name in known[: len(set(names))] if name not in names), None)
    if behind is not None:
        raise InvalidBinds(
            f"binds is {', '.join(names)}, and {behind} stands before; bind takes the first arguments: name {behind}, too, or "
            "trace the function with what is bound before all else"
        )
    count = sum(child.leaf_count for child in tree.children[: len(set(names))])
    for entry in program.arguments[:count]:
        if entry.alias is not None or entry.role is Role.state:
            raise InvalidBinds(
                f"binds names {entry.name}, which is state: every call consumes it, so it cannot be bound: leave it out"
            )
    return count


def bound_where_it_pays(found: Found, whole: Whole, evidence: Evidence, limit: int) -> Asking[Found]:
    """What was found, with what bound arguments decide computed once or in every call, whichever was measured to be faster.

    Arguments:
        limit: bytes that a call may take.
    """
    if not whole.bound or found.path.placement is not None:
        return found
    if found.prediction is not None:
        return replace(found, path=found.path.having(BOUND.name))
    path = whole.binding(found.path)
    if not computes_once(path, whole.program):
        return found
    bare, strategy = path.having(BOUND.name), evidence.strategy
    once = yield from whole.measured(path, evidence)
    always = yield from whole.measured(bare, evidence)
    fast = {
        each: row
        for each, row in ((path, once), (bare, always))
        if row is not None and whole.accepts(row, limit) and strategy.is_faster(row.blocks)
    }
    if path in fast and bare in fast and fast[path].ratio > (1 - strategy.small_gain) * fast[bare].ratio:
        del fast[path]  # what is kept takes memory
    best = next(iter(fast), whole.plain)
    notes = found.notes
    if once is not None and always is not None and once.seconds and always.seconds:
        notes = [
            *notes,
            f"bound, with what that decides computed once, the whole takes {once.ratio:.2f} of the plain time; without, "
            f"{always.ratio:.2f}",
        ]
    row = fast.get(
        best, found.measurement if best == found.path else evidence.known(whole.subject).get(best.digest)
    )
    return replace(found, path=best, measurement=row, notes=notes)


def computes_once(path: Path, program: Program) -> bool:
    """Whether a path computes anything when arguments are bound."""
    return bool(path.bound) and bind_stage(path.applied(program), path.bound) is not None


def bound_lines(executable: Executable) -> list[str]:
    """What a plan says of how much is computed once, and of how many arguments, if anything is."""
    if not isinstance(executable, StagedExecutable | BoundExecutable):
        return []
    later = (
        "" if isinstance(executable, BoundExecutable) else ", when they are bound; until then in every call"
    )
    return [f"  bound once  {human(executable.kept_bytes)} from {len(executable.needs)} values{later}"]
