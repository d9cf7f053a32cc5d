"""A program compiled for a device, called with arguments nested like those that it was traced with."""

import copy
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace
from types import MappingProxyType
from typing import Any, Self

from pcp.backends import Backend, Device, Executable, ExecutionFailed, MemoryUse, Target
from pcp.backends.base import Buffer
from pcp.backends.regions.bound import StagedExecutable
from pcp.errors import PCPError
from pcp.ir import Argument, Program, Result, Role, Tree, TreeMismatch
from pcp.ir.tree import flatten, flatten_like
from pcp.planning.arguments import (
    ArgumentBorder,
    ArgumentCountMismatch,
    ArgumentMismatch,
    DonatedArray,
    donated,
    parameter_names,
)
from pcp.planning.capacity import check_capacity, lower_bound, memory_limit
from pcp.planning.nesting import unflattener
from pcp.refusals import with_users_line
from pcp.rewrite.stored import narrower


class CannotBind(PCPError):
    """Arguments that cannot be bound once for many calls, as those that every call consumes."""


class ArgumentDropped(PCPError):
    """An argument that was bound, of which only what was made of it is kept."""


class DonatedTwice(PCPError):
    """One array given as two arguments of which one is donated."""


class Compiled:
    """A compiled program: what it takes, what it returns, its memory, and `call`.

    Arguments:
        program: what it computes.
        target: what it is compiled for.
        executable: the compiled form.
        narrowed: the flat places of the arguments that it takes, and returns, in bfloat16.
        axes: along which each argument is cut over several devices; empty where every device has all of each.
    """

    def __init__(
        self,
        program: Program,
        target: Target,
        executable: Executable,
        narrowed: Collection[int] = (),
        axes: Sequence[int | None] = (),
    ) -> None:
        self.axes = tuple(axes) or (None,) * len(program.arguments)
        self.program = program
        self._narrowed = narrowed
        self.target = target
        self._executable = executable
        self._unflatten = unflattener(program.result_tree)
        self._hold([], 0)

    def _hold(self, buffers: Sequence[Buffer | None], count: int) -> None:
        """Bind the first arguments at the top level to buffers on the device; None stands for what nothing reads any more."""
        self._bound, self._bound_count = list(buffers), count
        rest = Tree("tuple", (), self.program.argument_tree.children[count:])
        entries = list(self.program.arguments)
        wide = {entries[place].name: entries[place].spec.dtype for place in self._narrowed}
        for place in self._narrowed:
            entries[place] = replace(entries[place], spec=narrower(entries[place].spec))
        place = len(buffers)
        self._border = ArgumentBorder(entries[place:], rest, self.target, wide, self.axes[place:])

    @property
    def device(self) -> Device:
        """Where it runs, on one device."""
        return self.target.device

    @property
    def inputs(self) -> tuple[Argument, ...]:
        """Every array that `run` takes, in order: name, shape and element type, role."""
        return tuple(self._border.arguments)

    @property
    def outputs(self) -> tuple[Result, ...]:
        """Every array that `run` returns, in order: name, shape and element type."""
        narrow = {self.program.arguments[place].alias for place in self._narrowed}
        return tuple(
            replace(entry, spec=narrower(entry.spec)) if place in narrow else entry
            for place, entry in enumerate(self.program.results)
        )

    @property
    def memory(self) -> Mapping[str, MemoryUse]:
        """Bytes that one call takes on every device."""
        return MappingProxyType({str(each): self._executable.memory for each in self.target.devices})

    def call(self, *arguments: Any) -> Any:
        """The results for arguments nested as the traced function's; `Plan.run` says more.

        Raises:
            TreeMismatch, ArgumentMismatch, DonatedArray, DonatedTwice, OutOfMemory: as `Plan.run`.
        """
        try:
            buffers = self._bound + self._border.admit(arguments)
        except (ArgumentMismatch, TreeMismatch, DonatedArray) as error:
            raise with_users_line(error) from None
        try:
            return self._unflatten(self._executable.run(buffers))
        except ExecutionFailed as error:
            raise self._explained(error, buffers) from None

    def knows(self, arguments: tuple[Any, ...]) -> bool:
        """Whether a call with these arguments needs no further look at them: they are like those of the last."""
        return self._border.knows(arguments)

    @property
    def backend(self) -> Backend:
        """What compiled it and runs it."""
        return self.target.runner

    @property
    def bound(self) -> tuple[Any, ...]:
        """The arguments that `bind` placed on the device, nested as they were given.

        Raises:
            ArgumentDropped: of one only what was made of it is kept.
        """
        for entry, buffer in zip(self.program.arguments, self._bound, strict=False):
            if buffer is None:
                raise ArgumentDropped(
                    f"argument {entry.name} was bound, and only what is computed of it once is kept; its values are needed "
                    "here: use the plan as it was before bind, and give it all arguments"
                )
        tree = Tree("tuple", (), self.program.argument_tree.children[: self._bound_count])
        return tuple(tree.unflatten(self._bound))

    def place(self, *arguments: Any) -> tuple[Any, ...]:
        """The arguments of a call on the device, checked: `run` takes them as they are.

        Raises:
            TreeMismatch, ArgumentMismatch, DonatedArray: as `run`.
        """
        return tuple(self._border.tree.unflatten(self._border.admit(arguments)))

    def with_copied_state(self, placed: tuple[Any, ...]) -> tuple[Any, ...]:
        """Placed arguments in which whatever a call would donate is a copy, so that a call leaves them as they are."""
        tree = self._border.tree
        leaves = [
            leaf if entry.alias is None else self.target.place(leaf, entry.spec, axis=axis)
            for entry, axis, leaf in zip(
                self.inputs, self.axes[len(self._bound) :], flatten_like(tree, placed), strict=True
            )
        ]
        return tuple(tree.unflatten(leaves))

    def _explained(self, error: ExecutionFailed, buffers: Sequence[Buffer]) -> PCPError:
        """What was wrong with the arguments of a call that the device refused."""
        entries = [pair for pair in zip(self.program.arguments, buffers, strict=True) if pair[1] is not None]
        if any(self.backend.is_deleted(buffer) for _, buffer in entries):
            return donated([entry for entry, _ in entries], [buffer for _, buffer in entries], self.backend)
        names: dict[int, str] = {}
        for entry, buffer in entries:
            first = names.setdefault(id(buffer), entry.name)
            if entry.alias is not None and first != entry.name:
                return DonatedTwice(
                    f"arguments {first} and {entry.name} are the same array, but its memory can be donated "
                    f"only once; give a copy for one of them"
                )
        return error

    def bind(self, /, *arguments: Any, **named: Any) -> Self:
        """The same with its first arguments placed on the device once; its `run` takes the others.

        What the path computes once of them is computed now and kept, and arguments that nothing reads any more are not. Plans
        that compute the same of the same arrays share it.

        Arguments:
            arguments: the first ones.
            named: those after them, by their names.

        Raises:
            CannotBind: one of them is donated by every call, or is bound already, or stands behind one that is not given, or
                no argument has its name; or the path computes something once from more arguments than these.
            TreeMismatch, ArgumentMismatch: they are not what the plan takes.
            OutOfMemory, ExecutionFailed: of computing what is kept.
        """
        names = parameter_names(self.program.arguments, self.program.argument_tree)
        arguments = (*arguments, *in_order(names, self._bound_count, len(arguments), named))
        placed = flatten(self.place_first(*arguments))[0]
        bound = copy.copy(self)
        bound._hold([*self._bound, *placed], self._bound_count + len(arguments))
        bound._run_bind_stage()
        return bound

    def place_first(self, *arguments: Any) -> tuple[Any, ...]:
        """The first arguments on the device, checked: `bind` takes them as they are.

        Raises:
            CannotBind, TreeMismatch, ArgumentMismatch: as `bind`.
        """
        tree = self._border.tree
        if len(arguments) > len(tree.children):
            raise ArgumentCountMismatch(
                f"{len(arguments)} arguments were given to bind; the plan takes {len(tree.children)}: "
                f"{', '.join(self._border.names)}"
            )
        first = Tree("tuple", (), tree.children[: len(arguments)])
        entries = self.inputs[: first.leaf_count]
        for entry in entries:
            if entry.role is Role.state or entry.alias is not None:
                raise CannotBind(
                    f"argument {entry.name} is state, which every call consumes, so it cannot be bound; give it to run"
                )
        axes = self.axes[len(self._bound) :][: first.leaf_count]
        return tuple(first.unflatten(ArgumentBorder(entries, first, self.target, axes=axes).admit(arguments)))

    def _run_bind_stage(self) -> None:
        """Compute what bound arguments alone decide, if they are all there, and drop those that nothing reads any more."""
        staged, held = self._executable, dict(enumerate(self._bound))
        if not isinstance(staged, StagedExecutable) or held.keys().isdisjoint(staged.needs):
            return
        missing = [number for number in staged.needs if number not in held]
        if missing:
            entries = self.program.arguments
            raise CannotBind(
                f"the path computes something once of arguments {entries[min(staged.needs)].name} to "
                f"{entries[max(staged.needs)].name}, and {entries[missing[0]].name} was not given to bind; bind all of them "
                "at once"
            )
        self._executable = bound = staged.bind(held)
        self._bound = [buffer if number in bound.reads else None for number, buffer in held.items()]


def in_order(names: Sequence[str], bound: int, count: int, named: Mapping[str, Any]) -> list[Any]:
    """Arguments that are given to `bind` by name, in order.

    Arguments:
        names: of all arguments of the program.
        bound: how many of them are bound already.
        count: how many are given by their places.

    Raises:
        CannotBind: no argument has a name that is given, or it is bound or given already, or one before it is not given.
    """
    left = names[bound + count :]
    for name in named:
        if name in left[: len(named)]:
            continue
        shown = f"argument {name!r} was given to bind"
        if name in names[:bound]:
            raise CannotBind(f"{shown}, where it is bound already; bind it in the plan as it was before")
        if name in names[: bound + count]:
            raise CannotBind(f"{shown} twice, by its place and by its name; give it once")
        if name in left:
            before = next(each for each in left if each not in named)
            raise CannotBind(
                f"{shown}, and {before} was not, which stands before it; bind takes the first arguments: give {before}, too, "
                f"or give {name} to run"
            )
        raise CannotBind(
            f"{shown}; the plan takes {', '.join(names[bound:]) or 'no more arguments'}: give one of these"
        )
    return [named[name] for name in left[: len(named)]]


def compiled(program: Program, target: Target, *, cache: bool = True) -> Compiled:
    """A program compiled as it is written, where it fits.

    Raises:
        OutOfMemory: it does not fit in the device's memory.
        CompilationFailed: the compiler refuses it.
    """
    target = target.suited(program)
    target.expect(program)
    limit = memory_limit(target)
    check_capacity(program, lower_bound(program), target, limit)
    executable = target.compile(program, cache=cache)
    check_capacity(program, executable.memory, target, limit)
    return Compiled(program, target, executable)
