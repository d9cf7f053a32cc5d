"""A planned program that runs: instructions over arrays that were made once."""

import contextvars
import threading
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.backends.arena.array import ArenaArray
from pcp.backends.arena.native import Table, runner, runs_of
from pcp.backends.arena.placement import Peak, peak_of, placed
from pcp.backends.arena.recording import Recording
from pcp.backends.arena.storage import ALIGNMENT, Instruction, Kind, Storage, View
from pcp.backends.base import ExecutionFailed, MemoryUse, OutOfMemory
from pcp.ir import Program

Array = np.ndarray[Any, Any]
Steps = list[tuple[Callable[..., object], tuple[Any, ...]]]
Over = Callable[[Array], Any] | None


class ArenaExecutable:
    """Instructions, a workspace, and which of them read or write arrays of the caller.

    A run calls each function with its arguments and does nothing else. Arrays of the caller of more than a few KiB are used
    where they lie; when another one is given in their place, the views of it are made anew.

    Arguments:
        recording: what a run does.
        program: that was recorded.
        exact: whether its calls take no memory of their own.
    """

    def __init__(self, recording: Recording, program: Program, *, exact: bool = True) -> None:
        self.recording, self._program, self._exact = recording, program, exact
        workspace = [storage for storage in recording.storages if storage.in_workspace]
        self.workspace = placed(workspace)
        """Its size in bytes."""
        self.lower_bound: Peak = peak_of(workspace)
        """The most bytes of it that hold something at once."""
        self._constants = sum(s.size for s in recording.storages if s.kind is Kind.constant)
        self._lock = threading.Lock()
        self._context = contextvars.copy_context()
        self._context.run(np.seterr, all="ignore")
        self._steps: Steps | None = None
        self._readers: dict[Storage, list[tuple[Steps, int, list[tuple[int, View]], Over]]] = defaultdict(
            list
        )
        """The steps, by list and place, that take views of an array of the caller, which of their arguments are, and what is
        made of these."""
        self._tables: dict[Storage, list[tuple[Array, int, str, int]]] = defaultdict(list)
        """The same for steps of the native library: table, row and column, and the offset of the view."""
        self._given: dict[Storage, Array] = {}
        """The array of the caller that each storage of theirs is now."""
        self._donated = [n for n, entry in enumerate(program.arguments) if entry.alias is not None]
        self._in_place = {v.storage.number for v in recording.results if v.storage.kind is Kind.argument}

    @property
    def memory(self) -> MemoryUse:
        """What one call takes: temporaries are the workspace, the constants, and what a function takes on its way."""
        arguments, results = self._program.arguments, self._program.results
        return MemoryUse(
            sum(entry.spec.bytes for entry in arguments),
            sum(entry.spec.bytes for entry in results),
            sum(arguments[number].spec.bytes for number in self._in_place),
            self.workspace + self._constants + self.recording.beside,
            exact=self._exact,
        )

    def run(self, buffers: Sequence[ArenaArray]) -> list[ArenaArray]:
        """The results for flat arguments that were checked; calls of several threads wait for each other.

        Raises:
            OutOfMemory: there was no memory for the workspace or a result.
            ExecutionFailed: an array that is donated is given twice, or an operation fails.
        """
        with self._lock:
            try:
                return self._context.run(self._run, buffers)
            except MemoryError as error:
                raise OutOfMemory(
                    f"there was no memory while the program ran in the arena: {error}"
                ) from None

    def _run(self, buffers: Sequence[ArenaArray]) -> list[ArenaArray]:
        steps = self._prepared() if self._steps is None else self._steps
        if self._donated:
            buffers = self._taken(buffers)
        for target, number in self._copied_in:
            np.copyto(target, buffers[number].array)
        for storage, number in self._read:
            array = buffers[number].array
            if array is not self._given.get(storage):
                self._bind(storage, array)
        for storage, shape, dtype in self._made:
            self._bind(storage, np.empty(shape, dtype))
        for function, arguments in steps:
            function(*arguments)
        results = [
            ArenaArray(self._given[storage] if source is None else source.copy(), facts)
            for source, storage, facts in self._results
        ]
        for storage, *_ in self._made:  # they are the caller's now
            del self._given[storage]
        return results

    def _taken(self, buffers: Sequence[ArenaArray]) -> Sequence[ArenaArray]:
        """The arguments, of which those that are donated are no longer the caller's."""
        taken = list(buffers)
        times = Counter(map(id, buffers))
        if any(times[id(buffers[number])] > 1 for number in self._donated):
            raise ExecutionFailed("an array that is donated is given twice; give a copy for one of them")
        for number in self._donated:
            buffer = taken[number]
            if number in self._in_place and buffer.is_shown:
                taken[number] = ArenaArray(buffer.array.copy(), buffer.facts)
            buffer.is_deleted = True
        return taken

    def _prepared(self) -> Steps:
        """The workspace, and the views of all that does not change from call to call."""
        raw = np.empty(self.workspace + ALIGNMENT, np.uint8)
        start = -raw.ctypes.data % ALIGNMENT
        self._space = raw[start : start + self.workspace]
        self._views: dict[object, Array] = {}
        self._held: list[Table] = []
        self._steps = self._bound(self.recording.instructions)
        arguments, results = self.recording.arguments, self.recording.results
        touched = set(self.recording.storages)
        self._copied_in = [
            (view.over(self._space, view.storage.offset), number)
            for number, view in enumerate(arguments)
            if view.storage.kind is Kind.staged and view.storage in touched
        ]
        self._read = [(v.storage, n) for n, v in enumerate(arguments) if v.storage.kind is Kind.argument]
        self._made = [(v.storage, v.shape, v.dtype) for v in results if v.storage.kind is Kind.result]
        self._results = [
            (self._array(v) if v.storage.kind is Kind.staged else None, v.storage, (v.shape, v.dtype))
            for v in results
        ]
        return self._steps

    def _bound(self, instructions: Sequence[Instruction]) -> Steps:
        steps: Steps = []
        native = runner()
        for run, is_native in runs_of(instructions) if native else [([i], False) for i in instructions]:
            if native and is_native:
                table = Table(run, self._address)
                for view, row, name in table.open:
                    self._tables[view.storage].append((table.rows, row, name, view.offset))
                self._held.append(table)
                steps.append((native, table.arguments))
                continue
            steps += self._called(run, steps)
        return steps

    def _called(self, instructions: Sequence[Instruction], steps: Steps) -> Steps:
        """Instructions that are calls of their own, to stand at the end of `steps`."""
        calls: Steps = []
        for place, each in enumerate(instructions, len(steps)):
            outside: dict[Storage, list[tuple[int, View]]] = defaultdict(list)
            arguments: list[Any] = []
            for position, argument in enumerate(each.arguments):
                if isinstance(argument, View):
                    array = self._array(argument)
                    if array is None:
                        outside[argument.storage].append((position, argument))
                    arguments.append(array if array is None or each.over is None else each.over(array))
                elif isinstance(argument, list):
                    arguments.append(self._bound(argument))
                else:
                    arguments.append(argument)
            for storage, views in outside.items():
                self._readers[storage].append((steps, place, views, each.over))
            calls.append((each.function, tuple(arguments)))
        return calls

    def _address(self, view: View) -> int | None:
        array = self._array(view)
        return None if array is None else int(array.ctypes.data)

    def _array(self, view: View) -> Array | None:
        """The array of a view; None if it is one of the caller's, which come with each call."""
        storage = view.storage
        if not storage.in_workspace:
            return None if storage.array is None else view.over(_bytes_of(storage.array))
        # One object for equal views: NumPy sees at once that it may write an element where it read it.
        key = storage.offset + view.offset, view.shape, view.strides, view.dtype
        if key not in self._views:
            self._views[key] = view.over(self._space, storage.offset)
        return self._views[key]

    def _bind(self, storage: Storage, array: Array) -> None:
        """Let the steps that take views of a storage take views of another array."""
        self._given[storage], memory = array, _bytes_of(array)
        for steps, place, views, over in self._readers[storage]:
            function, old = steps[place]
            arguments = list(old)
            for position, view in views:
                taken = view.over(memory)
                arguments[position] = taken if over is None else over(taken)
            steps[place] = (function, tuple(arguments))
        if storage in self._tables:
            start = int(memory.ctypes.data)
            for rows, row, name, offset in self._tables[storage]:
                rows[name][row] = start + offset


def _bytes_of(array: Array) -> Array:
    """The memory of an array whose elements lie one behind the other."""
    return array.reshape(-1).view(np.uint8)
