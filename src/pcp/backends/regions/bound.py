"""Programs whose bind stage and rest are compiled apart: what bound arguments alone decide is computed once."""

import functools
import weakref
from collections.abc import Mapping, Sequence
from dataclasses import replace

from pcp.backends.base import Buffer, Executable, MemoryUse
from pcp.backends.target import Target
from pcp.ir import Program
from pcp.rewrite.pieces import Segments


class Kept:
    """What a bind stage made of some buffers.

    Arguments:
        sources: the buffers, which are not held. Of those to which nothing can refer weakly it is not known any more.
        values: what was made.
    """

    def __init__(self, sources: Sequence[Buffer], values: Sequence[Buffer]) -> None:
        try:
            self._sources = [weakref.ref(each) for each in sources]
        except TypeError:
            self._sources = []
        self.values = values

    def is_of(self, sources: Sequence[Buffer]) -> bool:
        """Whether it was made of these very buffers."""
        return len(self._sources) == len(sources) and all(
            known() is each for known, each in zip(self._sources, sources, strict=True)
        )


_kept: weakref.WeakValueDictionary[tuple[str, ...], Kept] = weakref.WeakValueDictionary()
"""What lives, by the digest of its stage, its target and its sources: plans that bind the same arrays have one copy."""


class StagedExecutable:
    """A program that runs its bind stage, then the rest.

    Arguments:
        program: the whole.
        stage: its two segments.
        target: what it is compiled for.
        cache: whether compiled forms are kept on disk.

    Raises:
        CompilationFailed: as `Target.compile`.
    """

    def __init__(self, program: Program, stage: Segments, target: Target, *, cache: bool) -> None:
        self.program, self.stage, self.target = program, stage, target
        first, rest = stage.sequence
        self._first: Executable = target.compile(first.program, cache=cache)
        self.rest: Executable = target.compile(rest.program, cache=cache)

    @functools.cached_property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes, what the bind stage makes with its arguments."""
        first, rest = self._first.memory, self.rest.memory
        arguments = sum(entry.spec.bytes for entry in self.program.arguments) + self.kept_bytes
        temporaries = max(first.temporaries, rest.temporaries)
        return replace(rest, arguments=arguments, temporaries=temporaries, exact=first.exact and rest.exact)

    @property
    def kept_bytes(self) -> int:
        """Bytes of what the stage makes."""
        return sum(result.spec.bytes for result in self.stage.sequence[0].program.results)

    @property
    def needs(self) -> tuple[int, ...]:
        """The arguments, flat, that have to be bound for the stage to run."""
        return self.stage.sequence[0].takes

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked."""
        return self.bind(dict(enumerate(buffers))).run(buffers)

    def bind(self, bound: Mapping[int, Buffer]) -> "BoundExecutable":
        """The rest alone, with what the stage makes of arguments, by their flat places."""
        sources = [bound[number] for number in self.needs]
        return BoundExecutable(self, self._kept_of(sources))

    def _kept_of(self, sources: Sequence[Buffer]) -> Kept:
        first = self.stage.sequence[0]
        names = (
            first.program.digest,
            str(self.target),
            repr(self.target.options),
            *map(str, map(id, sources)),
        )
        kept = _kept.get(names)
        if kept is None or not kept.is_of(sources):
            kept = _kept[names] = Kept(sources, self._first.run(sources))
        return kept


class BoundExecutable:
    """The rest of a program, behind its bind stage.

    Arguments:
        staged: the whole.
        kept: what the stage made.
    """

    def __init__(self, staged: StagedExecutable, kept: Kept) -> None:
        first, rest = staged.stage.sequence
        self._staged, self.kept = staged, kept  # which lives as long as somebody is bound to it
        self._rest, self._takes, self._makes = staged.rest, rest.takes, rest.makes
        self._values = dict(zip(first.makes, kept.values, strict=True))
        self.needs, self.kept_bytes = staged.needs, staged.kept_bytes
        self._results, self._left = staged.stage.results, staged.stage.left

    @functools.cached_property
    def reads(self) -> frozenset[int]:
        """The arguments, flat, that are still read."""
        return frozenset(self._takes)

    @property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes, with what the bind stage made and without arguments that nothing reads any more."""
        whole, rest = self._staged.memory, self._rest.memory
        gone = [
            self._staged.program.arguments[number]
            for number in self._staged.needs
            if number not in self.reads
        ]
        arguments = whole.arguments - sum(entry.spec.bytes for entry in gone)
        return replace(rest, arguments=arguments)

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked; what nothing reads any more may be anything."""
        values = self._values
        results = self._rest.run(
            [values[number] if number in values else buffers[number] for number in self._takes]
        )
        by_number = dict(zip(self._makes, results, strict=True))
        for number in self._left:
            buffers[number].delete()
        return [by_number[number] for number in self._results]


class Rebinding:
    """A program that is called with the same bound arguments many times: the stage runs where they are others.

    Arguments:
        staged: the program.
    """

    def __init__(self, staged: StagedExecutable) -> None:
        self._staged = staged
        self._sources: list[Buffer] = []
        self._bound: BoundExecutable | None = None

    @property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes, the bound arguments with it."""
        return self._staged.memory

    def rebind(self, buffers: Sequence[Buffer]) -> BoundExecutable:
        """Run the stage for flat arguments that will be given, to its end, so that a call of them takes no time for that."""
        sources = [buffers[number] for number in self._staged.needs]
        if self._bound is None or any(a is not b for a, b in zip(sources, self._sources, strict=True)):
            self._bound = None  # which gives its memory back
            self._bound, self._sources = self._staged.bind(dict(enumerate(buffers))), sources
            self._staged.target.runner.wait(self._bound.kept.values)
        return self._bound

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked."""
        return self.rebind(buffers).run(buffers)


def called_often(executable: Executable) -> Executable:
    """What is called as it is, but for a bind stage, which runs where bound arguments are others than in the call before."""
    return Rebinding(executable) if isinstance(executable, StagedExecutable) else executable
