"""The operations of a program in layers: runs of operations that belong together, and what each takes from which other.

A layer is what follows the first use of a weight whose name has a number in it, as `blocks.3` of `params.blocks.3.query`, up to
the use of another's. Of a program without such weights it is what one function of the user wrote. Where there are too many,
neighbours are one.
"""

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from pcp.ir import Program, Role
from pcp.ir.operations import Operation

MOST_LAYERS = 48
_NUMBERED = re.compile(r"^(.*?\.)?([^.]+\.\d+)(?=\.|$)")


@dataclass(slots=True)
class Layer:
    """Operations that follow one another.

    Arguments:
        title: what they belong to.
        first: the place of the first among the operations of the program's body.
        operations: those of the body, and those in their regions.
        count: how many of them are of the body.
        sources: of which earlier layers, by number, they take how many values.
    """

    title: str
    first: int
    operations: list[Operation] = field(default_factory=list)
    count: int = 0
    sources: Counter[int] = field(default_factory=Counter)

    @property
    def kinds(self) -> str:
        """The names of its operations, the most frequent first."""
        counts = Counter(each.name for each in self.operations)
        more = f", {len(counts) - 6} kinds more" if len(counts) > 6 else ""
        return ", ".join(f"{count} {name}" for name, count in counts.most_common(6)) + more


def layers_of(program: Program, operations: Sequence[Operation], most: int = MOST_LAYERS) -> list[Layer]:
    """The layers of a program.

    Arguments:
        operations: of it, as `operations_of` lists them.
        most: how many there may be.
    """
    owners = {
        place: found[2]
        for place, entry in enumerate(program.arguments)
        if entry.role is not Role.input and (found := _NUMBERED.match(entry.name))
    }
    layers: list[Layer] = []
    title, place = "", 0
    for operation in operations:
        if not operation.depth:
            title = _title(operation, owners, title)
            if not layers or layers[-1].title != title:
                layers.append(Layer(title, place))
            layers[-1].count += 1
            place += 1
        layers[-1].operations.append(operation)
    layers = list(_fewer(layers, most))
    makers = {
        value: number
        for number, layer in enumerate(layers)
        for each in layer.operations
        for value in each.results
    }
    for number, layer in enumerate(layers):
        taken = {value for each in layer.operations for value in each.operands}
        layer.sources = Counter(makers[value] for value in taken if makers.get(value, number) != number)
    return layers


def _title(operation: Operation, owners: dict[int, str], before: str) -> str:
    if owners:
        owned = [owners[value] for value in operation.operands if value in owners]
        return owned[0] if owned else before or "before the layers"
    function = (operation.location or "").rpartition(", in ")[2]
    return function if function and ":" not in function else before or "the program"


def _fewer(layers: list[Layer], most: int) -> Iterator[Layer]:
    """At most so many layers: the same number of neighbours become one."""
    share = -(-len(layers) // most)
    for start in range(0, len(layers), max(share, 1)):
        first, *others = layers[start : start + share]
        for other in others:
            first.operations += other.operations
            first.count += other.count
        if others and others[-1].title != first.title:
            first.title = f"{first.title} to {others[-1].title}"
        yield first
