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

    def described(self) -> dict[str, Any]:
        """What another process needs to make the same placement, as values of JSON."""
        return {
            "operations": [list(pair) for pair in self.operations],
            "streamed": self.streamed,
            "targets": [target.described() for target in self.targets()],
        }

    @staticmethod
    def from_description(described: Mapping[str, Any]) -> "Placement":
        """The placement that another process of this machine described.

        Raises:
            UnknownDevice: this process does not see a device.
        """
        for target in described["targets"]:
            Target.from_description(target)  # registers its backend
        streamed = described["streamed"]
        operations = tuple((key, place) for key, place in described["operations"])
        return Placement(operations, None if streamed is None else (streamed[0], streamed[1]))

    def __str__(self) -> str:
        if self.streamed is not None:
            return f"all on {self.streamed[0]}, in {self.streamed[1]} bytes"
        counts = Counter(place for _, place in self.operations)
        return ", ".join(f"{counts[place]} on {place}" for place in self.places)
