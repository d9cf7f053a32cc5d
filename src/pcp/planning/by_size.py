"""Plans of a symbolic program: searched for once in a bucket of sizes, compiled for the sizes that arguments have."""

import copy
import functools
import logging
import threading
import typing
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, TypeVar

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.ir import Program, TreeMismatch
from pcp.planning.arguments import ordered, parameter_names
from pcp.planning.capacity import lower_bound
from pcp.planning.compiled import Compiled, in_order
from pcp.planning.conditions import places_of
from pcp.planning.judging.judge import named_places, result_name
from pcp.planning.judging.plan_errors import errors_on
from pcp.planning.judging.tolerance import worst
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.paths.path import Path
from pcp.planning.paths.transfer import transferred
from pcp.refusals import with_users_line
from pcp.symbolic.constraints import SizesRefused
from pcp.symbolic.expressions import listed
from pcp.symbolic.program import SymbolicProgram
from pcp.symbolic.sampling import largest

log = logging.getLogger("pcp.planning")

_KEPT = 16
"""Plans that stay compiled: those that were called last."""

_ENDLESS = 1 << 62
"""The largest size of a bucket without end."""

_LARGEST_JUDGED = 1 << 28
"""Bytes of arguments and results up to which a path is judged at the upper end of the sizes."""

Buckets = Mapping[str, Sequence[int]]
_F = TypeVar("_F", bound=Callable[..., Any])


class InvalidBuckets(PCPError):
    """Bounds of buckets that are no growing integers, or for a symbol that the program lacks."""


class PathOfOneSize(PCPError):
    """A path for a symbolic program."""


class SymbolicPlan:
    """A symbolic program on a device: planned when sizes are first seen. Make one with `pcp.plan`.

    What is searched for with a tolerance is searched for once in every bucket of sizes, at the sizes that come first. The path
    is followed at the other sizes of the bucket, where its results are judged once on random arguments, against float64; only
    where they miss the tolerance, or the path does not fit, is there another search.

    A backend may choose once for all sizes (`once`): then there is one bucket. Where constraints bound every symbol, results
    are judged at the upper end when the path is searched for, and never again; else at the first sizes within every power of
    two. Where they miss the tolerance, the buckets are the powers of two.

    Arguments:
        program: what it computes.
        make: makes a Plan of a Program, with a path that it follows instead of searching.
        tolerance: that was asked for.
        buckets: for a symbol the largest sizes of its buckets, growing; without, they are the powers of two.
        once: whether a path is searched for once for all sizes of a symbol without buckets.
        example: arguments to measure on, where their sizes are searched for.
        ignored: names of results that are not judged.
    """

    def __init__(
        self,
        program: SymbolicProgram,
        make: Callable[..., Any],
        tolerance: float | None = None,
        buckets: Buckets = MappingProxyType({}),
        *,
        once: bool = False,
        example: Sequence[Any] | None = None,
        ignored: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.program = program
        self.tolerance = tolerance
        self.searches = 0
        """How often a path was searched for."""
        self.judgements = 0
        """How often its results were judged at other sizes than those that it was searched for at."""
        self._make = make
        self._once = once
        self._judged: set[tuple[int, ...]] = set()
        self._buckets = checked_buckets(buckets, program)
        self._example = example
        self._ignored = ignored
        self._found: dict[tuple[int, ...], tuple[Program, Path, Target]] = {}
        self._plans: OrderedDict[tuple[int, ...], Compiled] = OrderedDict()
        self._bound: tuple[Any, ...] = ()
        self._lock = threading.RLock()

    def at(self, **sizes: int) -> Any:
        """The Plan at these sizes, made if there is none yet.

        Raises:
            SizesRefused: sizes that the program does not take, or not all of them.
            PCPError: what `pcp.plan` raises.
        """
        key = tuple(self.program.space.checked(sizes).values())
        with self._lock:
            if key not in self._plans:
                self._plans[key] = self._planned(dict(zip(self.program.symbols, key, strict=True)))
                if self._bound:
                    self._bound = self._plans[key].place_first(*self._bound)
                    self._plans[key] = self._plans[key].bind(*self._bound)
                while len(self._plans) > _KEPT:
                    self._plans.popitem(last=False)
            self._plans.move_to_end(key)
            return self._plans[key]

    def run(self, *arguments: Any, check: bool = False, **named: Any) -> Any:
        """The results for arguments nested as the traced function's, of any sizes that the program takes; see `Plan.run`.

        Raises:
            SizesRefused: shapes of arguments disagree, or are sizes that the program does not take.
            PCPError: what `pcp.plan` and `Plan.run` raise.
        """
        if named:
            arguments = ordered(self.program.programs[0][1], len(self._bound), arguments, named)
        try:
            sizes = self.program.sizes_of(*self._bound, *arguments)
        except (SizesRefused, TreeMismatch) as error:
            raise with_users_line(error) from None
        return self.at(**sizes).run(*arguments, check=check)

    __call__ = run

    def bind(self, /, *arguments: Any, **named: Any) -> "SymbolicPlan":
        """The same with its first arguments given once, whose shapes must not depend on symbols; `run` takes the others.

        All Plans share one copy of them, and of what they compute from them once where that is the same.

        Raises:
            SizesRefused: the shape of one depends on a symbol.
            CannotBind: an argument that is given by name is not among the first.
            CannotBind, ArgumentMismatch, TreeMismatch: when the first Plan is made, as `Plan.bind`.
        """
        names = parameter_names(self.program.programs[0][1].arguments, self.program.argument_tree)
        arguments = (*arguments, *in_order(names, len(self._bound), len(arguments), named))
        first, last = len(self._bound), len(self._bound) + len(arguments)
        counts = [child.leaf_count for child in self.program.argument_tree.children[:last]]
        for entry in self.program.arguments[sum(counts[:first]) : sum(counts)]:
            if any(size.symbols for size in entry.spec.shape):
                raise SizesRefused(
                    f"argument {entry.name} is {entry.spec}, whose size is a symbol, and was given to bind; expected one of a "
                    "fixed shape: give it to run"
                )
        bound = copy.copy(self)
        bound._plans, bound._lock, bound._bound = OrderedDict(), threading.RLock(), (*self._bound, *arguments)
        return bound

    def bucket_of(self, sizes: Mapping[str, int]) -> tuple[int, ...]:
        """The largest sizes of the bucket that sizes are in, in the order of the symbols."""
        return tuple(self._bucket(name, sizes[name]) for name in self.program.symbols)

    def _bucket(self, name: str, size: int) -> int:
        bounds = self._buckets.get(name)
        if bounds is None:
            return _ENDLESS if self._once else 1 << (size - 1).bit_length()
        place = bisect_left(bounds, size)
        return bounds[place] if place < len(bounds) else _ENDLESS

    def _planned(self, sizes: dict[str, int]) -> Compiled:
        program: Program = self.program.at(**sizes)
        if self.tolerance is None:
            return typing.cast(Compiled, self._make(program))
        bucket = self.bucket_of(sizes)
        if bucket in self._found:
            plan = self._following(program, bucket, sizes)
            if plan is not None:
                return plan
            self._once = False
            bucket = self.bucket_of(sizes)
        self.searches += 1
        example = self._example
        if example is not None and self.program.sizes_of(*example) != sizes:
            example = None
        plan = self._make(program, tolerance=self.tolerance, example=example)
        if bucket not in self._found:
            # What the path was made on is left open: at other sizes it is another path.
            self._found[bucket] = program, plan.path.made_on("", ""), plan.target
            if self._once:
                self._judged.add(_doubling(sizes))
                self._judge_at_the_end(bucket)
        return typing.cast(Compiled, plan)

    def _judge_at_the_end(self, bucket: tuple[int, ...]) -> None:
        """Judge a path at the largest sizes that there are; where it is wrong there, others are searched for in buckets."""
        space = self.program.space
        bounded = all(space.bounds(name)[1] is not None for name in space.symbols)
        end = largest(space) if bounded else None
        if end is None:
            return
        try:
            program: Program = self.program.at(**end)
        except SizesRefused:  # as a file does that was not compared there
            return
        if lower_bound(program).peak > _LARGEST_JUDGED:
            return
        if self._following(program, bucket, end) is not None:
            self._judged.add(())
        else:
            self._once = False

    def _following(
        self, program: Program, bucket: tuple[int, ...], sizes: Mapping[str, int]
    ) -> Compiled | None:
        """The plan by the path of the bucket, if its results are within the tolerance at these sizes, too."""
        assert self.tolerance is not None
        source, path, target = self._found[bucket]
        moved = transferred(path, source, program, target)
        if moved is None:
            log.info("the path of the bucket does not fit %s; another is searched for", listed(sizes))
            return None
        plan = typing.cast(Compiled, self._make(program, device=target, path=moved))
        known = _doubling(sizes) if self._once else None
        if moved.is_plain or known in self._judged or () in self._judged:
            return plan
        self.judgements += 1
        flat = random_arguments(program.arguments, Recipe(begins=tuple(program.begins.items())), 0)
        ignored = {result_name(program, place) for place in named_places(program, self._ignored)}
        errors = errors_on(plan, program.argument_tree.unflatten(flat), self.tolerance)
        wrong = worst([each for each in errors if each.name not in ignored])
        if wrong is not None and not wrong.least_tolerance <= self.tolerance:
            log.info(
                "the path of the bucket is wrong by %.2g for %s; another is searched for",
                wrong.least_tolerance,
                listed(sizes),
            )
            return None
        if known is not None:
            self._judged.add(known)
        return plan

    def __str__(self) -> str:
        sizes = ", ".join(
            f"({listed(dict(zip(self.program.symbols, key, strict=True)))})" for key in self._plans
        )
        within = "" if self.tolerance is None else f" within {self.tolerance:g}, {self.searches} searches"
        where = f" where {', '.join(self.program.constraints)}" if self.program.constraints else ""
        return (
            f"SymbolicPlan of all sizes of {', '.join(self.program.symbols)}{where}{within}; compiled for "
            f"{sizes or 'no sizes yet'}"
        )

    __repr__ = __str__


def _doubling(sizes: Mapping[str, int]) -> tuple[int, ...]:
    """The powers of two that sizes are within."""
    return tuple((size - 1).bit_length() for size in sizes.values())


def checked_buckets(buckets: Buckets, program: SymbolicProgram) -> dict[str, tuple[int, ...]]:
    """The bounds of buckets.

    Raises:
        InvalidBuckets: they are no growing integers from 1 on, or for a symbol that the program lacks.
    """
    for name, bounds in buckets.items():
        if name not in program.symbols:
            raise InvalidBuckets(
                f"buckets were given for {name!r}; the symbols of the program are {', '.join(program.symbols)}: expected one"
            )
        numbers = [b for b in bounds if isinstance(b, int) and not isinstance(b, bool) and b >= 1]
        if not bounds or len(numbers) < len(bounds) or sorted(set(numbers)) != list(bounds):
            raise InvalidBuckets(
                f"the buckets of {name} are {list(bounds)!r:.60}; expected the largest size of each, growing, as [128, 512]"
            )
    return {name: tuple(bounds) for name, bounds in buckets.items()}


def by_size(function: _F) -> _F:
    """`pcp.plan` that takes symbolic programs, too: their plan takes every size, and plans it with the same arguments."""

    @functools.wraps(function)
    def planning(program: Any, *others: Any, buckets: Buckets | None = None, **named: Any) -> Any:
        if not isinstance(program, SymbolicProgram):
            return function(program, *others, buckets=buckets, **named)
        device, tolerance = (*others, None, None)[:2]
        device, tolerance = named.pop("device", device), named.pop("tolerance", tolerance)
        example = named.pop("example", None)
        make = functools.partial(function, device=device, **named)
        if named.get("path") is not None:
            raise PathOfOneSize(
                f"a path was given for a symbolic program; expected none, because a path belongs to one size of "
                f"{', '.join(program.symbols)}: give it for program.at(...)"
            )
        first, further = places_of(device)
        once = not further and getattr(
            Target.of(first, named.get("options", {})).runner, "chooses_once", False
        )
        return SymbolicPlan(
            program,
            make,
            tolerance,
            buckets or {},
            once=once,
            example=example,
            ignored=named.get("judge", {}),
        )

    return typing.cast(_F, planning)
