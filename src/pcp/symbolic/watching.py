"""What a traced function asks of its sizes: each comparison becomes a constraint, because the trace went one way.

The function is traced at a few sizes. There, its Tensors show their symbolic sizes as integers that remember what they stand
for.
"""

import contextvars
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from pcp.refusals import is_of_package
from pcp.symbolic.constraints import OPPOSITE, Constraint
from pcp.symbolic.expressions import Expression, InvalidSize


class Watch:
    """The sizes of one trace, and the comparisons that the function made of them."""

    def __init__(self, sizes: Mapping[str, int], expressions: tuple[Expression, ...] = ()) -> None:
        self.known: dict[int, Expression] = {}
        self.asked: dict[str, Constraint] = {}
        for expression in (*map(Expression.symbol, sizes), *expressions):
            if expression.symbols:
                self.known.setdefault(expression.value(sizes), expression)

    def shape(self, shape: tuple[int, ...]) -> tuple[int, ...]:
        """A shape whose symbolic sizes remember what they stand for, where the function of a user asks."""
        if is_of_package(sys._getframe(2).f_code.co_filename):
            return shape
        return tuple(Size(size, self.known[size], self) if size in self.known else size for size in shape)


WATCH: contextvars.ContextVar[Watch | None] = contextvars.ContextVar("pcp_watch", default=None)


def is_symbolic(size: int) -> bool:
    """Whether a size stands for an expression of symbols in the trace of this thread."""
    watch = WATCH.get()
    return watch is not None and size in watch.known


@contextmanager
def watching(watch: Watch) -> Iterator[Watch]:
    """Let Tensors of this thread show their sizes as those of `watch`, until the block ends."""
    token = WATCH.set(watch)
    try:
        yield watch
    finally:
        WATCH.reset(token)


class Size(int):
    """An integer that remembers the expression that it is the value of, and tells comparisons to its watch."""

    expression: Expression
    watch: Watch

    def __new__(cls, value: int, expression: Expression, watch: Watch) -> "Size":
        made = super().__new__(cls, value)
        made.expression, made.watch = expression, watch
        return made

    __hash__ = int.__hash__

    def _with(self, name: str, other: Any, turned: bool = False) -> Any:
        value = getattr(int, name if not turned else f"__r{name[2:]}")(self, other)
        if value is NotImplemented or not isinstance(other, int):
            return value
        theirs = other.expression if isinstance(other, Size) else Expression.of(int(other))
        left, right = (theirs, self.expression) if turned else (self.expression, theirs)
        try:
            expression = getattr(left, name)(right)
        except InvalidSize:
            return value
        if expression.symbols:
            self.watch.known.setdefault(value, expression)
            return Size(value, expression, self.watch)
        return value

    def _asked(self, sign: str, other: Any, value: Any) -> Any:
        if isinstance(value, bool) and isinstance(other, int) and not isinstance(other, bool):
            frame = sys._getframe(2)
            if not is_of_package(frame.f_code.co_filename):
                theirs = other.expression if isinstance(other, Size) else Expression.of(int(other))
                place = f"{frame.f_code.co_filename}:{frame.f_lineno}"
                made = Constraint(self.expression, sign if value else OPPOSITE[sign], theirs, place)
                if self.expression != theirs:
                    self.watch.asked.setdefault(str(made), made)
        return value

    # fmt: off
    def __add__(self, other: Any) -> Any: return self._with("__add__", other)
    def __radd__(self, other: Any) -> Any: return self._with("__add__", other, True)
    def __sub__(self, other: Any) -> Any: return self._with("__sub__", other)
    def __rsub__(self, other: Any) -> Any: return self._with("__sub__", other, True)
    def __mul__(self, other: Any) -> Any: return self._with("__mul__", other)
    def __rmul__(self, other: Any) -> Any: return self._with("__mul__", other, True)
    def __floordiv__(self, other: Any) -> Any: return self._with("__floordiv__", other)
    def __rfloordiv__(self, other: Any) -> Any: return self._with("__floordiv__", other, True)
    def __mod__(self, other: Any) -> Any: return self._with("__mod__", other)
    def __rmod__(self, other: Any) -> Any: return self._with("__mod__", other, True)
    def __eq__(self, other: object) -> Any: return self._asked("==", other, int.__eq__(self, other))
    def __ne__(self, other: object) -> Any: return self._asked("!=", other, int.__ne__(self, other))
    def __lt__(self, other: Any) -> Any: return self._asked("<", other, int.__lt__(self, other))
    def __le__(self, other: Any) -> Any: return self._asked("<=", other, int.__le__(self, other))
    def __gt__(self, other: Any) -> Any: return self._asked(">", other, int.__gt__(self, other))
    def __ge__(self, other: Any) -> Any: return self._asked(">=", other, int.__ge__(self, other))
    # fmt: on


class Watches:
    """The comparisons of several traces: those that all of them made with one outcome are constraints."""

    def __init__(self) -> None:
        self._all: list[dict[str, Constraint]] = []

    def watched(self, watch: Watch, make: Callable[[], Any]) -> Any:
        """What `make` returns, while a watch sees what it asks."""
        with watching(watch):
            made = make()
        self._all.append(watch.asked)
        return made

    def constraints(self) -> tuple[Constraint, ...]:
        """What all traces so far asked with one outcome."""
        first, *others = self._all or [{}]
        return tuple(entry for text, entry in first.items() if all(text in other for other in others))
