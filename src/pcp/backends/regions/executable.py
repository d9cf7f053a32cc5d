"""A program whose operations run in several places: regions one after another, and copies of what passes between them."""

import functools
import hashlib
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from pcp.backends.base import Buffer, Device, Executable, MemoryUse
from pcp.backends.target import Target
from pcp.ir import Program, TensorSpec
from pcp.rewrite.regions import HOME, Regions


@dataclass(frozen=True, slots=True)
class Run:
    """A region to run.

    Arguments:
        region: its number.
        place: where.
        executable: what is called.
        takes, makes: the numbers of its arguments and results.
    """

    region: int
    place: int
    executable: Executable
    takes: tuple[int, ...]
    makes: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Copy:
    """A value to copy.

    Arguments:
        number: of the value.
        source, place: from where to where.
        spec: its shape and element type.
    """

    number: int
    source: int
    place: int
    spec: TensorSpec


@dataclass(frozen=True, slots=True)
class Drop:
    """A value that nothing reads any more in a place."""

    number: int
    place: int


Step = Run | Copy | Drop
Values = dict[tuple[int, int], Buffer]
"""By number and place."""


class RegionsExecutable:
    """A program in regions, compiled.

    Arguments:
        program: the whole.
        cut: its regions.
        targets: the places, by number.
        compile_one: from a region and the number of its place to what is called.

    Attributes:
        steps: what a call does, in order: explicit copies among it.
        form: digest of the compiled forms of all regions, where each is kept on disk; empty otherwise.
    """

    def __init__(
        self,
        program: Program,
        cut: Regions,
        targets: Sequence[Target],
        compile_one: Callable[[Program, int], Executable],
    ) -> None:
        self._program, self._cut, self._targets = program, cut, targets
        self._memory = [self._memory_of(place) for place in range(len(targets))]
        pairs = list(zip(cut.cut.sequence, cut.places, strict=True))
        kinds = dict.fromkeys((each.program, place) for each, place in pairs)
        compiled = {kind: compile_one(*kind) for kind in kinds}
        self._executables = [compiled[each.program, place] for each, place in pairs]
        forms = [getattr(each, "form", "") for each in compiled.values()]
        self.form = hashlib.sha256(" ".join(forms).encode()).hexdigest() if all(forms) else ""
        self.steps = self._scheduled()
        self._results = self._given_back()

    def _memory_of(self, place: int) -> int:
        """The first place with which a place shares its arrays: values that lie there need no copy."""
        target = self._targets[place]
        same = (each.shares_arrays_with(target) for each in self._targets)
        return next(number for number, is_same in enumerate(same) if is_same)

    def _scheduled(self) -> list[Step]:
        cut = self._cut.cut
        lies: dict[int, list[int]] = {n: [HOME] for n in range(len(self._program.arguments))}
        specs: dict[int, TensorSpec] = {n: entry.spec for n, entry in enumerate(self._program.arguments)}
        steps: list[Step] = []
        uses: dict[tuple[int, int], int] = {}

        def bring(number: int, place: int) -> None:
            if place not in lies[number]:
                source = lies[number][0]
                steps.append(Copy(number, source, place, specs[number]))
                uses[number, source] = len(steps)
                lies[number].append(place)
            uses[number, place] = len(steps)

        for index, (each, at) in enumerate(zip(cut.sequence, self._cut.places, strict=True)):
            place = self._memory[at]
            for number in each.takes:
                bring(number, place)
            steps.append(Run(index, at, self._executables[index], each.takes, each.makes))
            for number, entry in zip(each.makes, each.program.results, strict=True):
                lies[number], specs[number] = [place], entry.spec
            uses |= dict.fromkeys(((number, place) for number in (*each.takes, *each.makes)), len(steps))
        for number in cut.results:
            bring(number, HOME)
        kept = {(number, HOME) for number in (*cut.results, *range(len(self._program.arguments)))}
        ends: dict[int, list[Step]] = {}
        for (number, place), step in uses.items():
            if (number, place) not in kept:
                ends.setdefault(step, []).append(Drop(number, place))
        return [one for at, step in enumerate(steps, 1) for one in (step, *ends.get(at, ()))]

    def _given_back(self) -> list[tuple[int, bool]]:
        """Of each result its value, and whether that is given back as a copy: it is an argument, or another result, too."""
        seen, results = set(range(len(self._program.arguments))), []
        for number in self._cut.cut.results:
            results.append((number, number in seen))
            seen.add(number)
        return results

    @property
    def copies(self) -> tuple[Copy, ...]:
        """The copies of a call."""
        return tuple(step for step in self.steps if isinstance(step, Copy))

    def _is_beside(self, step: Step, run: Run) -> bool:
        """Whether a step that follows a region is taken while the region still runs."""
        del step, run
        return False

    @functools.cached_property
    def memories(self) -> Mapping[Device, MemoryUse]:
        """Bytes that one call takes on every device, whatever backends use it: those at the moment at which most are taken."""
        program, home = self._program, self._targets[HOME].devices
        live: dict[tuple[int, int], int] = {}
        most = dict.fromkeys((device for each in self._targets for device in each.devices), 0)
        aliased, exact = 0, True
        running: Run | None = None

        def on(device: Device) -> int:
            return sum(size for (_, place), size in live.items() if device in self._targets[place].devices)

        for step in self.steps:
            if running is not None and not self._is_beside(step, running):
                running = None
            if isinstance(step, Drop):
                live.pop((step.number, step.place), None)
                continue
            if isinstance(step, Copy):
                live[step.number, step.place] = step.spec.bytes
            else:
                running = step
                piece, use = self._cut.cut.sequence[step.region].program, step.executable.memory
                heirs = {entry.alias for entry in piece.arguments if entry.alias is not None}
                for index, (number, entry) in enumerate(zip(step.makes, piece.results, strict=True)):
                    live[number, self._memory[step.place]] = 0 if index in heirs else entry.spec.bytes
                aliased, exact = aliased + use.aliased, exact and use.exact
            for device in self._targets[step.place].devices:
                inside = running is not None and device in self._targets[running.place].devices
                extra = running.executable.memory.temporaries if running is not None and inside else 0
                most[device] = max(most[device], on(device) + extra)
        arguments = sum(entry.spec.bytes for entry in program.arguments)
        results = sum(entry.spec.bytes for entry in program.results)
        at_home = MemoryUse(
            arguments, results, aliased, max(0, max(map(most.__getitem__, home)) - (results - aliased)), exact
        )
        return {
            device: at_home if device in home else MemoryUse(0, 0, 0, taken, exact)
            for device, taken in most.items()
        }

    @property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes on each device of arguments and results."""
        return self.memories[self._targets[HOME].devices[0]]

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked."""
        values: Values = {(n, HOME): buffer for n, buffer in enumerate(buffers)}
        self._take_steps(values)
        results = []
        for (number, is_copied), entry in zip(self._results, self._program.results, strict=True):
            value = values[number, HOME]
            results.append(self._targets[HOME].place(value, entry.spec) if is_copied else value)
        for number in self._cut.cut.left:
            buffers[number].delete()
        return results

    def _take_steps(self, values: Values) -> None:
        """Do what a call does, one step after another.

        Arguments:
            values: the arguments, to which all that is made is added.
        """
        for step in self.steps:
            if type(step) is Drop:  # which is quicker than to ask whether it is an instance
                del values[step.number, step.place]
            elif isinstance(step, Run):
                self._hold(step, self._made(step, values), values)
            else:
                self._move(step, values)

    def _made(self, run: Run, values: Values) -> list[Buffer]:
        place = self._memory[run.place]
        return run.executable.run([values[number, place] for number in run.takes])

    def _hold(self, run: Run, buffers: Sequence[Buffer], values: Values) -> None:
        place = self._memory[run.place]
        for number, buffer in zip(run.makes, buffers, strict=True):
            values[number, place] = buffer

    def _move(self, step: Copy | Drop, values: Values) -> None:
        if isinstance(step, Drop):
            del values[step.number, step.place]
        else:
            buffer = values[step.number, step.source]
            values[step.number, step.place] = copied(buffer, step.spec, self._targets[step.place])

    def described(self) -> str:
        """What a call does, in one line for people."""
        runs = Counter(str(self._targets[step.place]) for step in self.steps if isinstance(step, Run))
        listed = ", ".join(f"{count} on {place}" for place, count in runs.items())
        copies = self.copies
        size = sum(each.spec.bytes for each in copies)
        return f"{runs.total()}: {listed}; {len(copies)} values of {size} bytes are copied between them"


def copied(value: Buffer, spec: TensorSpec, target: Target) -> Buffer:
    """A value of any place in the memory of a target; by way of the host, where its backend is another."""
    return target.place(value if target.runner.is_buffer(value) else np.asarray(value), spec)
