"""Whether a symbolic program is, at more sizes than it was found from, what its function makes there."""

import contextlib
import math
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from pcp.ir import Program
from pcp.symbolic.agreement import agree
from pcp.symbolic.constraints import OPPOSITE, Constraint, SizesRefused, Space
from pcp.symbolic.expressions import Expression, listed
from pcp.symbolic.sampling import beside, far, low
from pcp.symbolic.template import BuiltDifferently

_LINES = 4_000
"""Lines of programs that are compared beyond the few that are always compared."""
_MOST = 60
_SECONDS = 0.5
"""Where one comparison takes longer, only the few are made."""


@dataclass(frozen=True)
class Source:
    """What a symbolic program was made from: at any sizes it says what the Program is there.

    Arguments:
        make: the Program at sizes.
        noted: lines where a size became a number that nobody watches.
        numbers: that the function compares sizes with, or holds, next to which it may be built differently.
        cost: how many times as long as tracing a function of PCP takes `make`.
        unseen: why choices by size in it may be no constraints; empty where each of them is one.
        hints: quotients and remainders that are in sizes of the program.
        mixed: comparisons whose outcome differs between the sizes for which it was made.
    """

    make: Callable[[dict[str, int]], Program]
    noted: tuple[str, ...] = ()
    numbers: tuple[int, ...] = ()
    cost: int = 1
    unseen: str = ""
    hints: tuple[Expression, ...] = ()
    mixed: tuple[Constraint, ...] = ()

    def explained(self, error: BuiltDifferently) -> BuiltDifferently:
        """What is said of programs that differ, with the comparison that may be why."""
        if not self.mixed:
            return error
        first = self.mixed[0]
        opposite = f"{first.left} {OPPOSITE[first.sign]} {first.right}"
        place = f", at {first.place}" if first.place else ""
        return BuiltDifferently(
            f"{error}; {first} holds for some sizes and not for others{place}: trace twice, with constraints=['{first}'] and "
            f"with constraints=['{opposite}']"
        )

    @property
    def advice(self) -> str:
        """What to do about a program that is built differently somewhere."""
        where = (
            f"; a size became a number at {', '.join(filter(None, self.noted[:3]))}"
            if any(self.noted)
            else ""
        )
        return (
            f"expected the same operations for all sizes{where}: constrain the sizes, as by constraints=['length <= 512'], "
            "trace each size on its own, or compare the sizes themselves, which becomes a constraint"
        )


@dataclass(frozen=True)
class Evidence:
    """At which sizes a program was compared with its source: what holds where the source is not.

    Arguments:
        spans: for each symbol the least and the largest size between which it agreed.
        sizes: those at which it agreed.
        unseen: as of its source: where it is not empty, `sizes` alone are known to be right.
    """

    spans: tuple[tuple[int, int], ...] = ()
    sizes: tuple[tuple[int, ...], ...] = ()
    unseen: str = ""

    def check(self, sizes: Mapping[str, int]) -> None:
        """Refuse sizes at which nothing is known.

        Raises:
            SizesRefused: they were not compared, where choices by size are unseen; or one is beyond what was compared.
        """
        for (name, size), (least, most) in zip(sizes.items(), self.spans, strict=False):
            if not self.unseen and not least <= size <= most:
                raise SizesRefused(
                    f"the size {name}={size} was given; the program was compared with its function for {name} from {least} to "
                    f"{most} before it was written, and beyond that nothing is known: expected a size between them, or trace "
                    f"it again with a constraint that reaches further, as constraints=['{name} <= {max(size, most)}']"
                )
        if self.unseen and tuple(sizes.values()) not in self.sizes:
            near = sorted(self.sizes, key=lambda each: sum(map(_distance, each, sizes.values())))[:4]
            shown = "; ".join(f"({listed(dict(zip(sizes, each, strict=True)))})" for each in near)
            raise SizesRefused(
                f"the sizes ({listed(sizes)}) were given; before it was written the program was compared with its function at "
                f"{len(self.sizes)} sizes, the nearest {shown}; at these it may be another, because {self.unseen}: expected "
                f"one of those; where the function lives, call program.at({listed(sizes)}), and then write the program"
            )


def _distance(one: int, other: int) -> float:
    return abs(math.log(one / other))


Same = Callable[[dict[str, int]], bool]


def compared_at_many(
    space: Space, example: Mapping[str, int], source: Source, numbers: Iterable[int], lines: int, same: Same
) -> Evidence:
    """Compare a program with its source at sizes of several magnitudes and on both sides of numbers; a large program, and one
    whose source takes long, at three sizes: about 1,000, the largest, the least.

    Arguments:
        example: sizes at which it was made.
        numbers: of the program.
        lines: of the program's text, which say how much a comparison costs.
        same: whether the program at sizes is that of its source; raises what the function raises.

    Returns:
        The sizes at which it agrees.

    Raises:
        BuiltDifferently: it is another program at some sizes.
    """
    agreed = [dict(example)]
    budget = min(_MOST, _LINES // (max(lines, 1) * source.cost))

    def check(sizes: dict[str, int], raises: type[Exception] | tuple[()] = Exception) -> bool:
        """Whether the function and the program take the sizes, at which they then agree."""
        try:
            agrees = same(sizes)
        except raises:  # whatever the function of a user raises
            return False
        if not agrees:
            known = min(agreed, key=lambda each: sum(abs(each[name] - sizes[name]) for name in sizes))
            raise BuiltDifferently(
                f"the program is built differently for the sizes ({listed(sizes)}) than what follows from smaller ones, as "
                f"({listed(known)}); {source.advice}"
            )
        agreed.append(sizes)
        return True

    first, *further = far(space, example) or [dict(example)]
    start = time.thread_time()
    check(first, SizesRefused)
    if time.thread_time() - start > _SECONDS:
        budget = 0
    if budget:
        _check_growing(further[: 2 + budget], agreed, check)
    else:
        largest = sorted(further, key=lambda sizes: math.prod(sizes.values()), reverse=True)
        any(check(sizes) for sizes in largest[:3])
    agreed += _lowest(low(space, example)[: None if budget else 1], example, same, min(1 + budget, 3))
    spans = tuple(
        (min(each[name] for each in agreed), max(each[name] for each in agreed)) for name in space.symbols
    )
    edges = [n for n in dict.fromkeys((*source.numbers, *numbers)) if n > 1]
    for sizes in beside(space, example, edges)[:budget]:
        if all(a <= size <= b for (a, b), size in zip(spans, sizes.values(), strict=True)):
            check(sizes)
    distinct = tuple(dict.fromkeys(tuple(each.values()) for each in agreed))
    return Evidence(spans, distinct, source.unseen)


def _check_growing(growing: Iterable[dict[str, int]], agreed: list[dict[str, int]], check: Same) -> None:
    """Compare at growing sizes; where one of a symbol is refused, larger ones of it are left out."""
    refused: set[str] = set()
    for sizes in growing:
        beyond = {name for name in sizes if sizes[name] > max(each[name] for each in agreed)}
        if not beyond & refused and not check(sizes):
            refused |= beyond if len(beyond) == 1 else set()


def _lowest(
    rows: Iterable[list[dict[str, int]]], example: Mapping[str, int], same: Same, tries: int
) -> list[dict[str, int]]:
    """The least sizes at which a program agrees, of all symbols together and of each."""
    agreed = []
    for row in rows:
        for sizes in row[:tries]:
            with contextlib.suppress(Exception):  # whatever the function of a user raises
                if any(sizes[name] < example[name] for name in sizes) and same(sizes):
                    agreed.append(sizes)
                    break
    return agreed


def check_at(sizes: dict[str, int], program: Program, source: Source, example: Mapping[str, int]) -> None:
    """Compare a program at sizes with its source.

    Raises:
        SizesRefused: the source refuses the sizes, or is another program there.
    """
    try:
        expected = source.make(sizes)
    except SizesRefused:
        raise
    except Exception as error:
        raise SizesRefused(
            f"the sizes ({listed(sizes)}) were given, which the function that was traced refuses; expected others: "
            f"{type(error).__name__}: {error}"
        ) from error
    if not agree(program, expected):
        raise SizesRefused(
            f"the sizes ({listed(sizes)}) were given, and the function makes another program there than what follows from "
            f"({listed(example)}); {source.advice}"
        )
