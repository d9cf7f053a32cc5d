"""What a trace asks of its sizes, so that choices by size become constraints of the symbolic program.

A function is traced at a few sizes, twice at each. At first its Tensors show numbers, and every shape that it asks for and
every choice of an operation of PCP by a size is recorded; from the numbers at all sizes follows which expression each is. Then
its Tensors show these expressions (`sizes`), whose comparisons are exact. The programs are those of the first traces, so what
is not seen the second time does not change them.
"""

import contextvars
import re
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from pcp.errors import PCPError
from pcp.refusals import STANDING, is_of_package
from pcp.symbolic.constraints import HOLDS, OPPOSITE, TURNED, Constraint, Space
from pcp.symbolic.expressions import Expression
from pcp.symbolic.fitting import fitted
from pcp.symbolic.proving import always
from pcp.symbolic.sizes import Size
from pcp.symbolic.watched import Record, SizeHasNoNumber, line

Shape = tuple[int, ...]
Shown = tuple[Expression | None, ...]


@dataclass
class Watch:
    """One trace at some sizes, and what it asked of them.

    Arguments:
        sizes: of the symbols.
        expressions: of the arguments' sizes.
        loops: what the first trace answered whether axes are symbolic, in the order in which it was asked.
        script: in a second trace, for every shape that the first was asked for: the line, the numbers, and what they are.
    """

    sizes: Mapping[str, int]
    expressions: tuple[Expression, ...] = ()
    loops: Sequence[bool] | None = None
    script: Sequence[tuple[str, Shape, Shown]] | None = None
    record: Record = field(default_factory=Record)
    asked: list[tuple[str, Shape]] = field(default_factory=list)
    chosen: list[tuple[str, int, str, int, bool]] = field(default_factory=list)
    answers: list[bool] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.known: dict[int, Expression] = {}
        for expression in (*map(Expression.symbol, self.sizes), *self.expressions):
            if expression.symbols:
                self.known.setdefault(expression.value(self.sizes), expression)

    def shape(self, shape: Shape, depth: int = 2) -> Any:
        """A shape as the function of a user sees it; PCP itself sees numbers."""
        if is_of_package(sys._getframe(depth).f_code.co_filename):
            return shape
        place, number = line(), len(self.asked)
        self.asked.append((place, shape))
        if self.script is None:
            return shape
        planned = number < len(self.script) and self.script[number][:2] == (place, shape)
        known = self.script[number][2] if planned else tuple(map(self.known.get, shape))
        if not planned or None in known:
            self.record.note()
        return tuple(
            size if expression is None or not expression.symbols else Size(size, expression, self.record)
            for size, expression in zip(shape, known, strict=True)
        )

    def length(self, shape: Shape) -> int:
        """The size of the first axis as an integer, if the function of a user may have it."""
        size = self.shape(shape, depth=4)[0]
        return size.as_integer() if isinstance(size, Size) else shape[0]

    @property
    def is_first(self) -> bool:
        """Whether it is the first trace at its sizes, whose questions are recorded."""
        return self.script is None and self.loops is None

    def exact(self, expression: Expression) -> Any:
        """A size as this trace shows it to what computes with sizes outside of the function."""
        return Size(expression.value(self.sizes), expression, self.record)

    def is_symbolic(self, size: int) -> bool:
        number = len(self.answers)
        known = self.loops is not None and number < len(self.loops)
        self.answers.append(self.loops[number] if known and self.loops is not None else size in self.known)
        return self.answers[-1]


WATCH: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("pcp_watch", default=None)


def is_symbolic(size: int) -> bool:
    """Whether a size stands for an expression of symbols in the trace of this thread."""
    watch = WATCH.get()
    return watch is not None and watch.is_symbolic(size)


def unseen() -> None:
    """Say that something of this trace may choose by its sizes in a way that is no constraint."""
    watch = WATCH.get()
    if watch is not None:
        watch.record.note()


def compared(left: int, sign: str, right: int) -> bool:
    """Whether a comparison holds by which an operation chooses what it does; of symbolic sizes it becomes a constraint."""
    holds = HOLDS[sign](left, right)
    watch = WATCH.get()
    if watch is not None and watch.script is None:
        watch.chosen.append((line(), left, sign, right, holds))
    return holds


def least(left: int, right: int) -> int:
    """The smaller of two sizes; where they are symbolic, which it is becomes a constraint that equal ones keep."""
    compared(left, "<=" if left <= right else ">=", right)
    return min(left, right)


def greatest(left: int, right: int) -> int:
    """The larger of two sizes; where they are symbolic, which it is becomes a constraint that equal ones keep."""
    compared(left, "<=" if left <= right else ">=", right)
    return max(left, right)


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Let Tensors of this thread show their sizes as those of `watch`, until the block ends."""
    token, standing = WATCH.set(watch), STANDING.set(watch.script is not None)
    try:
        yield watch
    finally:
        WATCH.reset(token)
        STANDING.reset(standing)


class Watches:
    """The traces of one function at a few sizes.

    Arguments:
        space: the sizes that are possible.
        expressions: of the arguments' sizes.
        make: the program at some sizes.
    """

    def __init__(
        self, space: Space, expressions: Sequence[Expression], make: Callable[[dict[str, int]], Any]
    ) -> None:
        self.space = space
        self.make = make
        self.expressions = tuple(expressions)
        self.noted: dict[str, None] = {}
        """Lines where a size became a number that nobody watches."""
        self.mixed: tuple[Constraint, ...] = ()
        """Comparisons whose outcome differs between the few sizes."""
        self.numbers: set[int] = set()
        """Numbers that sizes were compared with."""
        self.hints: tuple[Expression, ...] = ()
        """Quotients and remainders that are in sizes of the program."""
        self._loops: list[bool] | None = None
        self._first: list[Watch] = []

    @property
    def unseen(self) -> str:
        """Why choices by size may be no constraints; empty where each of them is one."""
        places = ", ".join([place for place in self.noted if place][:3])
        at = f" at {places}" if places else " in it"
        return (
            f"a size became a number or a text{at}, and what is chosen by that is not seen"
            if self.noted
            else ""
        )

    def first(self, sizes: dict[str, int]) -> Any:
        """The program at sizes, and a record of what was asked for.

        Raises:
            SizeHasNoNumber: it fails because a size is used as a number, as an index of a list.
        """
        watch = Watch(sizes, self.expressions)
        try:
            with watching(watch):
                program = self.make(sizes)
        except PCPError:
            raise
        except Exception as error:
            self._explain(sizes, error)
            raise
        self._first.append(watch)
        return program

    def _explain(self, sizes: dict[str, int], error: Exception) -> None:
        """Raise, in the place of the function's own error, that it uses a size as a number, if it does."""
        try:
            with watching(Watch(sizes, self.expressions, script=())):
                self.make(sizes)
        except SizeHasNoNumber as refusal:
            raise refusal from error
        except Exception:  # as it was
            return

    def again(self, sizes: dict[str, int]) -> Any:
        """The program at any sizes, where loops are those of the first traces."""
        with watching(Watch(sizes, self.expressions, self._loops)):
            return self.make(sizes)

    def constraints(self) -> tuple[Constraint, ...]:
        """What all first traces since the last call chose with one outcome, as constraints.

        Raises:
            SizeHasNoNumber: a size was used where only a number can be.
        """
        watches, self._first = self._first, []
        samples = [watch.sizes for watch in watches]
        self._loops = watches[0].answers
        choices: list[Constraint] = []
        self._take(watches, samples, choices)
        script = self._script(watches, samples)
        mixed: list[Constraint] = []
        if any(watch.asked for watch in watches):
            second = [
                Watch(watch.sizes, self.expressions, self._loops, self._of(script, watch))
                for watch in watches
            ]
            for watch in second:
                with watching(watch):
                    self.make(dict(watch.sizes))
            self._take(second, samples, choices)
        choices.extend(self._choices(watches, samples))
        kept: dict[str, Constraint] = {}
        for entry in map(_turned, choices):
            self.numbers.update(_numbers(entry))
            if always(entry, self.space):
                continue
            if all(entry.holds(sizes) for sizes in samples):
                kept.setdefault(str(entry), entry)
            else:
                mixed.append(entry)
        self.noted.update(dict.fromkeys(entry.place for entry in mixed))
        self.mixed = tuple(mixed)
        return tuple(kept.values())

    def _take(
        self, watches: Sequence[Watch], samples: list[Mapping[str, int]], choices: list[Constraint]
    ) -> None:
        """Add what exact sizes were asked in some traces to the lines that are noted and to the constraints that are found."""
        for watch in watches:
            self.noted.update(watch.record.noted)
            choices.extend(watch.record.compared.values())
        used = {size: place for watch in watches for size, place in watch.record.used.items()}
        self.hints = tuple(dict.fromkeys((*self.hints, *(atom for size in used for atom in size.quotients))))
        choices.extend(_as_constants(used, samples, self.hints))

    def _choices(self, watches: Sequence[Watch], samples: list[Mapping[str, int]]) -> Iterator[Constraint]:
        """What operations of PCP chose by: the numbers of the k-th choice of every trace are an expression."""
        seen = set()
        for row in zip(*(watch.chosen for watch in watches), strict=False):
            places, lefts, signs, rights, outcomes = map(tuple, zip(*row, strict=True))
            key = (lefts, signs, rights, outcomes)
            if key in seen or (len(set(lefts)) == 1 and len(set(rights)) == 1):
                continue
            seen.add(key)
            left, right = fitted(lefts, samples, self.hints), fitted(rights, samples, self.hints)
            if len(set(places)) == 1 and left and right:
                sign = signs[0] if outcomes[0] else OPPOSITE[signs[0]]
                yield Constraint(left, sign, right, places[0])
            else:
                self.noted.setdefault(places[0])

    def _script(self, watches: Sequence[Watch], samples: list[Mapping[str, int]]) -> list[tuple[str, Shown]]:
        """For every shape that all first traces were asked for at one line: which expressions its sizes are."""
        script: list[tuple[str, Shown]] = []
        for row in zip(*(watch.asked for watch in watches), strict=False):
            if len({(place, len(shape)) for place, shape in row}) > 1:
                break
            columns = zip(*(shape for _, shape in row), strict=True)
            script.append((row[0][0], tuple(fitted(column, samples, self.hints) for column in columns)))
        return script

    def _of(self, script: Iterable[tuple[str, Shown]], watch: Watch) -> list[tuple[str, Shape, Shown]]:
        pairs = zip(script, watch.asked, strict=False)
        return [(place, shape, shown) for (place, shown), (_, shape) in pairs]


def _as_constants(
    used: Mapping[Expression, str], samples: Sequence[Mapping[str, int]], hints: Sequence[Expression]
) -> Iterator[Constraint]:
    """What sizes that entered the program must be, where its numbers do not say which expressions they are."""
    for expression, place in used.items():
        fit = fitted([expression.value(sizes) for sizes in samples], samples, hints)
        elsewhere = [{name: 7919 * n + k for k, name in enumerate(samples[0])} for n in range(1, 9)]
        if fit is not None and any(fit.value(sizes) != expression.value(sizes) for sizes in elsewhere):
            yield Constraint(expression, "==", fit, place)


def _turned(entry: Constraint) -> Constraint:
    """A comparison with the symbols first."""
    if entry.left.symbols:
        return entry
    return Constraint(entry.right, TURNED[entry.sign], entry.left, entry.place)


_INTEGERS = re.compile(r"(?<!\w)\d+")


def _numbers(entry: Constraint) -> Iterator[int]:
    """Sizes next to which a comparison may change."""
    return map(int, _INTEGERS.findall(str(entry)))
