"""Where the operations of a program run."""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pcp.backends.target import Target
from pcp.ir import Program
from pcp.rewrite.regions import HOME, Regions, regions


@dataclass(frozen=True, slots=True)
class Placement:
    """Which operations of a program run elsewhere than the others.

    Arguments:
        operations: pairs of the key of an operation (`pcp.rewrite.regions`) and its place, a backend and one of its devices,
            as `arena:cpu:0`; in order of the keys.
        streamed: the place of all operations, and the bytes that they may take there: values that do not fit lie at home
            until they are read. None where `operations` says where they run.
    """

    operations: tuple[tuple[str, str], ...]
    streamed: tuple[str, int] | None = None

    @staticmethod
    def of(places: Mapping[str, str]) -> "Placement | None":
        """The placement with these places, by the keys of operations; None where all stay at home."""
        return Placement(tuple(sorted(places.items()))) if places else None

    @property
    def places(self) -> tuple[str, ...]:
        """The names of all places, in alphabetical order."""
        if self.streamed is not None:
            return (self.streamed[0],)
        return tuple(sorted({place for _, place in self.operations}))

    def targets(self) -> tuple[Target, ...]:
        """The places themselves.

        Raises:
            UnknownBackend, UnknownDevice: one is not here.
        """
        return tuple(map(Target.of, self.places))

    def main(self, home: Target) -> Target:
        """Where operations run that are not told another place: at home, or all where they are streamed, by its options."""
        return home if self.streamed is None else self.targets()[0].with_options(dict(home.options))

    def regions(self, program: Program) -> Regions:
        """A program cut into the regions that it says; the places are numbered from 1, in the order of `places`.

        Raises:
            UnknownOperation, NotDivisible: as `pcp.rewrite.regions`.
        """
        numbers = {place: number for number, place in enumerate(self.places, HOME + 1)}
        return regions(program, {key: numbers[place] for key, place in self.operations})

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickled with its places, so that another process of this machine has their backends."""
        return _placement, (self.operations, self.streamed, self.targets())

    def __str__(self) -> str:
        if self.streamed is not None:
            return f"all on {self.streamed[0]}, in {self.streamed[1]} bytes"
        counts = Counter(place for _, place in self.operations)
        return ", ".join(f"{counts[place]} on {place}" for place in self.places)


def _placement(
    operations: tuple[tuple[str, str], ...],
    streamed: tuple[str, int] | None,
    targets: tuple[Target, ...],  # noqa: ARG001  (made to be registered)
) -> Placement:
    return Placement(operations, streamed)
