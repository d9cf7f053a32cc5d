"""A program compiled for a device, called with arguments nested as those of the function that it was traced from."""

import copy
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Self

from pcp.backends import Backend, Device, Executable, ExecutionFailed, MemoryUse, Target
from pcp.backends.base import Buffer
from pcp.errors import PCPError
from pcp.ir import Argument, Program, Result, Role, Tree
from pcp.ir.tree import flatten_like
from pcp.planning.arguments import ArgumentBorder, ArgumentCountMismatch, donated
from pcp.planning.capacity import check_capacity, lower_bound, memory_limit
from pcp.planning.nesting import unflattener


class CannotBind(PCPError):
    """Arguments that cannot be bound once for many calls, because every call consumes them."""


class DonatedTwice(PCPError):
    """One array given as two arguments of which one is donated."""


class Compiled:
    """A compiled program: what it takes, what it returns, its memory, and `call`.

    Arguments:
        program: what it computes.
        target: what it is compiled for.
        executable: the compiled form.
    """

    def __init__(self, program: Program, target: Target, executable: Executable) -> None:
        self.program = program
        self.target = target
        self._executable = executable
        self._unflatten = unflattener(program.result_tree)
        self._hold([], 0)

    def _hold(self, buffers: Sequence[Buffer], count: int) -> None:
        """Bind the first arguments at the top level to buffers on the device."""
        self._bound, self._bound_count = list(buffers), count
        rest = Tree("tuple", (), self.program.argument_tree.children[count:])
        self._border = ArgumentBorder(self.program.arguments[len(buffers) :], rest, self.target)

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
        return self.program.results

    @property
    def memory(self) -> Mapping[str, MemoryUse]:
        """Bytes that one call takes on every device."""
        return MappingProxyType({str(each): self._executable.memory for each in self.target.devices})

    def call(self, *arguments: Any) -> Any:
        """The results for arguments nested as the traced function's; `Plan.run` says more.

        Raises:
            TreeMismatch, ArgumentMismatch, DonatedArray, DonatedTwice, OutOfMemory: as `Plan.run`.
        """
        buffers = self._bound + self._border.admit(arguments)
        try:
            return self._unflatten(self._executable.run(buffers))
        except ExecutionFailed as error:
            raise self._explained(error, buffers) from None

    @property
    def backend(self) -> Backend:
        """What compiled it and runs it."""
        return self.target.runner

    @property
    def bound(self) -> tuple[Any, ...]:
        """The arguments that `bind` placed on the device, nested as they were given."""
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
            leaf if entry.alias is None else self.target.place(leaf, entry.spec)
            for entry, leaf in zip(self.inputs, flatten_like(tree, placed), strict=True)
        ]
        return tuple(tree.unflatten(leaves))

    def _explained(self, error: ExecutionFailed, buffers: Sequence[Buffer]) -> PCPError:
        """What was wrong with the arguments of a call that the device refused."""
        if any(map(self.backend.is_deleted, buffers)):
            return donated(self.program.arguments, buffers, self.backend)
        given: dict[int, str] = {}
        for entry, buffer in zip(self.program.arguments, buffers, strict=True):
            first = given.setdefault(id(buffer), entry.name)
            if entry.alias is not None and first != entry.name:
                return DonatedTwice(
                    f"arguments {first} and {entry.name} are the same array, but its memory can be donated "
                    f"only once; give a copy for one of them"
                )
        return error

    def bind(self, *arguments: Any) -> Self:
        """The same with its first arguments placed on the device once; its `run` takes the others.

        Raises:
            CannotBind: one of them is donated by every call.
            TreeMismatch, ArgumentMismatch: they are not what the plan takes.
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
        placed = ArgumentBorder(entries, first, self.target).admit(arguments)
        made = copy.copy(self)
        made._hold([*self._bound, *placed], self._bound_count + len(arguments))
        return made


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
