"""A Program as a flat list of instructions over storages: what is read last gives its place to what is made next."""

from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from pcp.backends.arena.storage import Instruction, Kind, Loop, Storage, View, row_major
from pcp.backends.base import CompilationFailed
from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.digest import has_effect
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.dataflow import operations_between
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_of

Lowering = Callable[["Recorder", ir.Operation, list[View]], Sequence[View]]
"""From an operation and the views of its operands to the views of its results; it emits what computes them."""

SMALL = 4096
"""Bytes up to which an argument or result is copied, which costs less than to make the views of another array."""


@dataclass
class Recorder:
    """Records instructions and the lifetimes of storages.

    Arguments:
        lowerings: of operations, by full name.
        narrow: types of few bits whose products are summed in float32 by what runs them, so that nothing is converted first.
    """

    lowerings: dict[str, Lowering]
    narrow: frozenset["np.dtype[Any]"] = frozenset()
    instructions: list[Instruction] = field(default_factory=list)
    storages: list[Storage] = field(default_factory=list)
    time: int = 0
    beside: int = 0
    _views: dict[Value, View] = field(default_factory=dict)
    _uses: Counter[Value] = field(default_factory=Counter)
    _homes: dict[Value, View] = field(default_factory=dict)
    _loop: Loop | None = None
    _current: ir.Operation | None = None
    _constants: dict[tuple[bytes, str, tuple[int, ...]], View] = field(default_factory=dict)

    # What lowerings call.

    def new(self, shape: Sequence[int], dtype: "np.dtype[Any]", kind: Kind = Kind.transient) -> View:
        """A storage of its own, as one array."""
        shape, dtype = tuple(shape), np.dtype(dtype)
        storage = Storage(int(np.prod(shape, dtype=np.int64)) * dtype.itemsize, kind, loop=self._loop)
        self.storages.append(storage)
        return View(storage, 0, shape, row_major(shape, dtype.itemsize), dtype)

    def constant(self, array: "np.ndarray[Any, Any]") -> View:
        """An array that is made with the plan; equal ones are one."""
        array = np.asarray(array, order="C")
        key = (array.tobytes(), str(array.dtype), array.shape)
        if array.nbytes <= SMALL and key in self._constants:
            return self._constants[key]
        view = self.new(array.shape, array.dtype, Kind.constant)
        view.storage.array, view.storage.loop = array, None
        self._constants[key] = view
        return view

    def result(
        self,
        op: ir.Operation,
        index: int = 0,
        *,
        shape: Sequence[int] | None = None,
        reuse: Sequence[View] = (),
    ) -> View:
        """Where a result of an operation is to be written.

        Arguments:
            op: the operation.
            index: which of its results.
            shape: if it is not the one that its type says, as in the body of a reduction.
            reuse: operands that one instruction reads, element by element, while it writes the result.
        """
        spec = spec_of(op.results[index].type)
        shape, dtype = tuple(spec.shape if shape is None else shape), spec.dtype.numpy
        home = self._homes.get(op.results[index])
        if home is not None and home.shape == shape and self._is_free(home, reuse):
            return home
        for view in reuse:
            if self._may_take(view, shape, dtype, reuse):
                return view
        return self.new(shape, dtype)

    def emit(
        self, function: Callable[..., object], *arguments: Any, writes: Sequence[int] = (-1,), beside: int = 0
    ) -> None:
        """One instruction; `writes` are the places of the arguments that it writes to, `beside` are bytes that it takes
        on its way, out of the workspace."""
        self.beside = max(self.beside, beside)
        places = tuple(w % len(arguments) for w in writes)
        for each in arguments:
            if isinstance(each, View):
                self._touch(each.storage)
        self.instructions.append(Instruction(function, arguments, places, self.time))
        self.time += 1

    def copy(self, source: View, target: View) -> None:
        """Copy, and convert, elements; nothing if both are the same."""
        if source != target and target.size:
            self.emit(np.copyto, target, source, writes=(0,))

    def copy_narrowed(self, source: View, target: View) -> None:
        """Copy numbers of a wider type, each rounded."""
        if target.size:
            self.emit(copy_rounded, source, target)

    def owned(self, view: View, others: Sequence[View]) -> View:
        """A view that may be written to: a copy of one that others show, or that is no array of its own."""
        own = view.is_whole and view.storage.kind is Kind.transient and view.storage.loop is self._loop
        if own and all(view.storage is not other.storage for other in others):
            return view
        copy = self.new(view.shape, view.dtype)
        self.copy(view, copy)
        return copy

    def contiguous(self, view: View, dtype: "np.dtype[Any] | None" = None) -> View:
        """The same elements one behind the other, of a type; a copy where they are not."""
        dtype = view.dtype if dtype is None else np.dtype(dtype)
        if view.is_contiguous and view.dtype == dtype:
            return view
        copy = self.new(view.shape, dtype)
        (self.copy if view.dtype == dtype else self.copy_narrowed)(view, copy)
        return copy

    def reshaped(self, view: View, shape: Sequence[int]) -> View:
        """In another shape; a copy where no strides say that."""
        shaped = view.reshaped(shape)
        if shaped is None:
            shaped = self.contiguous(view).reshaped(shape)
            assert shaped is not None
        return shaped

    def body(
        self, block: ir.Block, arguments: Sequence[View], returned: Sequence[Value] | None = None
    ) -> list[View]:
        """The block of a region recorded here once more, on arguments of any shape: its operations are elementwise.

        `returned` are the values that are wanted, if they are not those that the block returns.
        """
        keep, used = dict(self._views), _uses(block)
        for value in used:
            if value in keep:  # counted once, and read once more each time
                keep[value].storage.uses += used[value]
        for value, view in zip(block.arguments, arguments, strict=True):
            self._views[value] = view
            view.storage.uses += used[value] + 1
        operations = block_operations(block)
        if returned is not None:
            needed = operations_between(block.arguments, returned)
            operations = [op for op in operations if op in needed]
        returned = returned_by(block) if returned is None else returned
        for op in operations:
            self.operation(op)
        views = [self._views[value] for value in returned]
        for view in arguments:
            view.storage.uses -= 1
        for view in views:  # what a caller reads next
            view.storage.uses = max(view.storage.uses, 1)
        self._views = keep
        return views

    @contextmanager
    def apart(self) -> Iterator[list[Instruction]]:
        """Instructions that are recorded in a list of their own, for a function that runs them."""
        outside, inside = self.instructions, list[Instruction]()
        self.instructions = inside
        try:
            yield inside
        finally:
            self.instructions = outside

    @contextmanager
    def looping(self) -> Iterator[None]:
        """What is recorded is run again and again: what was made before and is used in it lives until its end."""
        loop = self._loop = Loop(self.time, self._loop)
        try:
            yield
        finally:
            self._loop = loop.outer
            for storage in loop.used:
                storage.end = max(storage.end, self.time)
                if self._loop is not None and storage.loop is not self._loop:
                    self._loop.used.add(storage)
            self.time += 1

    def view(self, value: Value) -> View:
        """Where a value is."""
        return self._views[value]

    def enter(self, value: Value, view: View, uses: int | None = None) -> None:
        """Say where a value is; `uses` replaces what was known of its storage's readers."""
        self._views[value] = view
        count = self._uses[value]
        view.storage.uses = view.storage.uses + count if uses is None else uses

    def uses(self, value: Value) -> int:
        """How many operations that are run read a value."""
        return self._uses[value]

    def takes_over(self, view: View) -> bool:
        """Whether nothing reads an operand after the operation that is recorded, so that it may be changed."""
        return self._may_take(view, view.shape, view.dtype, (view,))

    def block(
        self, operations: Sequence[ir.Operation], returned: Sequence[Value], homes: Sequence[View]
    ) -> None:
        """Record operations whose results are to lie in `homes` at the end."""
        outer = self._homes
        self._homes = {}
        for value, home in zip(returned, homes, strict=True):
            self._homes.setdefault(value, home)
        for op in operations:
            self.operation(op)
        pairs = [(self._views[value], home) for value, home in zip(returned, homes, strict=True)]
        moves = [(source, home) for source, home in pairs if source != home]
        overwritten = {home.storage for _, home in moves}
        for place, (source, home) in enumerate(moves):
            if source.storage in overwritten:
                staged = self.new(source.shape, source.dtype)
                self.copy(source, staged)
                moves[place] = staged, home
        for source, home in moves:
            self.copy(source, home)
        self._homes = outer

    def operation(self, op: ir.Operation) -> None:
        """Record one operation, unless nothing reads what it computes."""
        if not has_effect(op) and not any(self._uses[result] for result in op.results):
            return
        lowering = self.lowerings.get(op.name)
        if lowering is None:
            raise refused(op, "it speaks to what is outside of the program, or is none of StableHLO's")
        operands = [self._views[value] for value in op.operands]
        before, self._current = self._current, op
        for view in operands:
            view.storage.uses -= 1
        results = lowering(self, op, operands)
        self._current = before
        for result, view in zip(op.results, results, strict=True):
            self.enter(result, view)

    def count(self, block: ir.Block) -> None:
        """Count who reads the values of a block, and of those within."""
        self._uses.update(_uses(block))

    # What decides.

    def _touch(self, storage: Storage) -> None:
        if storage.start < 0:
            storage.start = self.time
        storage.end = max(storage.end, self.time)
        loop = self._loop
        if loop is not None and storage.loop is not loop:
            loop.used.add(storage)

    def _is_free(self, home: View, reuse: Sequence[View]) -> bool:
        """Whether a home may be written now: nobody reads it later, and if this operation does, then element by element."""
        storage = home.storage
        if storage.start < 0 and storage.kind is not Kind.argument:
            return True
        if storage.uses > 0 or self._current is None or len(self._current.regions):
            return False
        reads = [
            self._views[value] for value in self._current.operands if self._views[value].storage is storage
        ]
        return all(view == home and view in reuse for view in reads)

    def _may_take(
        self, view: View, shape: tuple[int, ...], dtype: "np.dtype[Any]", reuse: Sequence[View]
    ) -> bool:
        storage = view.storage
        return (
            storage.kind is Kind.transient
            and storage.uses <= 0
            and storage.loop is self._loop
            and view.shape == shape
            and view.dtype == dtype
            and view.is_whole
            and all(other == view for other in reuse if other.storage is storage)
        )


def copy_rounded(source: "np.ndarray[Any, Any]", target: "np.ndarray[Any, Any]") -> None:
    """Each element rounded to the type of the target."""
    np.copyto(target, source, casting="unsafe")


def refused(op: ir.Operation, why: str) -> CompilationFailed:
    """The error of an operation that the arena does not run."""
    place = describe_location(op.location)
    return CompilationFailed(
        f"the arena cannot run {op.name}{f' at {place}' if place else ''}: {why}; plan the program for XLA: "
        "pcp.Target.of('cpu:0')"
    )


@dataclass(frozen=True, slots=True)
class Recording:
    """What a run does.

    Arguments:
        instructions: in order.
        storages: all that they touch.
        arguments: where each argument is read from.
        results: where each result is at the end.
        beside: the most bytes that one of the functions takes on its way, out of the workspace.
    """

    instructions: list[Instruction]
    storages: list[Storage]
    arguments: list[View]
    results: list[View]
    beside: int


def recorded(
    program: Program,
    main: ir.Operation,
    lowerings: dict[str, Lowering],
    narrow: frozenset["np.dtype[Any]"] = frozenset(),
) -> Recording:
    """The instructions of a program, whose arguments and results are storages of their own.

    Arguments:
        program: whose signature says which arguments are donated.
        main: its function, without calls and composites.
        lowerings, narrow: as of `Recorder`.

    Raises:
        CompilationFailed: the arena does not run one of its operations.
    """
    recorder = Recorder(lowerings, narrow)
    block = main.regions[0].blocks[0]
    recorder.count(block)
    arguments: list[View] = []
    donated: dict[int, View] = {}
    for number, (entry, value) in enumerate(zip(program.arguments, block.arguments, strict=True)):
        kind = Kind.staged if entry.spec.bytes <= SMALL else Kind.argument
        view = recorder.new(entry.spec.shape, entry.spec.dtype.numpy, kind)
        view.storage.number = number
        view.storage.start = view.storage.end = 0  # filled before the first instruction
        recorder.enter(value, view)
        arguments.append(view)
        if entry.alias is not None and kind is Kind.argument:
            donated[entry.alias] = view
    results: list[View] = []
    for number, result in enumerate(program.results):
        kind = Kind.staged if result.spec.bytes <= SMALL else Kind.result
        fresh = donated.get(number) or recorder.new(result.spec.shape, result.spec.dtype.numpy, kind)
        results.append(fresh)
        if fresh.storage.kind is Kind.result:
            fresh.storage.number = number
    recorder.block(block_operations(block), returned_by(block), results)
    for view in results:
        view.storage.start = max(view.storage.start, 0)
        view.storage.end = recorder.time  # copied out behind the last instruction
    touched = [storage for storage in recorder.storages if storage.start >= 0]
    return Recording(recorder.instructions, touched, arguments, results, recorder.beside)


def _uses(block: ir.Block) -> Counter[Value]:
    """How often each value is read, by operations whose own results are read."""
    uses: Counter[Value] = Counter()
    _count(block, uses)
    return uses


def _count(block: ir.Block, uses: Counter[Value]) -> None:
    *operations, terminator = (view.operation for view in block.operations)
    uses.update(terminator.operands)
    for op in reversed(operations):
        if not has_effect(op) and not any(uses[result] for result in op.results):
            continue
        uses.update(op.operands)
        for region in op.regions:
            for inner in region.blocks:
                _count(inner, uses)
