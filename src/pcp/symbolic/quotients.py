"""Quotients of symbolic sizes and their roots: scales, whose floor and ceiling are sizes again."""

import operator
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np

from pcp.symbolic.expressions import Expression, InvalidSize
from pcp.symbolic.watched import SIGNS, Record, SizeHasNoNumber, Watched, as_number, expression_of, line

_DENOMINATOR = 1 << 12
"""Quotients by numbers up to this one are far enough from integers that a float rounds up and down as they do."""


class Quotient(Watched):
    """A quotient of sizes or its root, as a float that knows what it is: a scale, whose floor and ceiling are sizes again."""

    __slots__ = ("above", "below", "record", "root", "size", "value")

    def __init__(
        self,
        number: float,
        above: Expression,
        below: Expression,
        root: bool,
        record: Record,
        size: Callable[[int, Expression, Record], Any],
    ) -> None:
        self.value = number
        self.above = above
        self.below = below
        self.root = root
        self.record = record
        self.size = size

    @property
    def number(self) -> float:
        """The number that an operation takes it for."""
        for size in (*self.above.quotients, *self.below.quotients):
            self.record.used.setdefault(size, line())
        return float(self.value)

    def _shown(self) -> str:
        text = f"{self.above.enclosed} / {self.below.enclosed}"
        return f"sqrt({text})" if self.root else text

    def _made(self, function: Callable[[Any, Any], Any], other: Any, turned: bool) -> Any:
        if not isinstance(other, int | float | np.number | Watched) or isinstance(other, complex):
            return NotImplemented
        left, right = (other, self) if turned else (self, other)
        number = function(as_number(left), as_number(right))
        parts, others = (self.above, self.below), _fraction(other)
        exact = not self.root and others is not None and not isinstance(other, np.floating)
        if (
            self.root
            and turned
            and function is operator.truediv
            and isinstance(other, int | float)
            and other == 1
        ):
            return Quotient(number, self.below, self.above, True, self.record, self.size)
        if not exact or others is None:
            self.record.note()
            return number
        (a, b), (c, d) = (others, parts) if turned else (parts, others)
        try:
            fraction = _FRACTIONS[function](a, b, c, d)
        except InvalidSize as error:
            raise SizeHasNoNumber(str(error)) from None
        return Quotient(number, *fraction, False, self.record, self.size)

    def __add__(self, other: Any) -> Any: return self._made(operator.add, other, False)  # fmt: skip

    def __radd__(self, other: Any) -> Any: return self._made(operator.add, other, True)  # fmt: skip

    def __sub__(self, other: Any) -> Any: return self._made(operator.sub, other, False)  # fmt: skip

    def __rsub__(self, other: Any) -> Any: return self._made(operator.sub, other, True)  # fmt: skip

    def __mul__(self, other: Any) -> Any: return self._made(operator.mul, other, False)  # fmt: skip

    def __rmul__(self, other: Any) -> Any: return self._made(operator.mul, other, True)  # fmt: skip

    def __truediv__(self, other: Any) -> Any: return self._made(operator.truediv, other, False)  # fmt: skip

    def __rtruediv__(self, other: Any) -> Any: return self._made(operator.truediv, other, True)  # fmt: skip

    def __neg__(self) -> Any: return -self.value if self.root else self * -1  # fmt: skip

    def _plain(self, function: Callable[[Any, Any], Any], other: Any, turned: bool = False) -> Any:
        self.record.note()
        left, right = (other, self) if turned else (self, other)
        return function(as_number(left), as_number(right))

    def __floordiv__(self, other: Any) -> Any: return self._plain(operator.floordiv, other)  # fmt: skip

    def __rfloordiv__(self, other: Any) -> Any: return self._plain(operator.floordiv, other, True)  # fmt: skip

    def __mod__(self, other: Any) -> Any: return self._plain(operator.mod, other)  # fmt: skip

    def __rmod__(self, other: Any) -> Any: return self._plain(operator.mod, other, True)  # fmt: skip

    def __rpow__(self, other: Any) -> Any: return self._plain(operator.pow, other, True)  # fmt: skip

    def __pow__(self, power: Any) -> Any:
        if not self.root and power in (0.5, -0.5):
            parts = (self.above, self.below) if power > 0 else (self.below, self.above)
            return Quotient(self.value**power, *parts, True, self.record, self.size)
        return self._plain(operator.pow, power)

    def __bool__(self) -> bool:
        return self.record.compare(self.above, "!=", Expression.of(0), self.value != 0)

    def _rounded(self, up: bool) -> Any:
        below = self.below.number
        if self.root or below is None or not 0 < abs(below) <= _DENOMINATOR:
            self._refused(
                "rounded", "divide by // and round up by -(-size // number), where the divisor is a number"
            )
        above = self.above if below > 0 else -self.above
        expression = -((-above) // abs(below)) if up else above // abs(below)
        number = -int(-self.value // 1) if up else int(self.value // 1)
        return self.size(number, expression, self.record) if expression.symbols else number

    def __floor__(self) -> Any:
        return self._rounded(False)

    def __ceil__(self) -> Any:
        return self._rounded(True)

    def __trunc__(self) -> Any:
        return self._rounded(self < 0)

    def __round__(self, digits: int | None = None) -> Any:
        self._refused("rounded", "round by (2*size + number) // (2*number), which rounds halves up")

    def __int__(self) -> int:
        self._refused(
            "made an integer",
            "divide by //, or use math.floor, math.ceil and math.trunc, which keep the size",
        )

    __index__ = __int__

    def _compared(self, sign: str, other: Any) -> Any:
        theirs = _fraction(other)
        if not isinstance(other, int | float | np.number | Watched):
            return NotImplemented
        holds = SIGNS[sign](self.value, as_number(other))
        if self.root or theirs is None or not all(map(_is_positive, (self.below, theirs[1]))):
            self.record.note()
            return holds
        return self.record.compare(self.above * theirs[1], sign, theirs[0] * self.below, holds)


_FRACTIONS: dict[Callable[[Any, Any], Any], Callable[..., tuple[Expression, Expression]]] = {
    operator.mul: lambda a, b, c, d: (a * c, b * d),
    operator.truediv: lambda a, b, c, d: (a * d, b * c),
    operator.add: lambda a, b, c, d: (a * d + c * b, b * d),
    operator.sub: lambda a, b, c, d: (a * d - c * b, b * d),
}


def _is_positive(expression: Expression) -> bool:
    return all(coefficient > 0 for _, coefficient in expression.terms) and bool(expression.terms)


def _fraction(value: Any) -> tuple[Expression, Expression] | None:
    """The numerator and the denominator of a size, of a quotient, or of a number that is exactly a fraction."""
    if isinstance(value, Quotient):
        return None if value.root else (value.above, value.below)
    whole = expression_of(value)
    if whole is not None:
        return whole, Expression.of(1)
    try:
        exact = Fraction(float(value))
    except (TypeError, ValueError, OverflowError):
        return None
    if exact.denominator > _DENOMINATOR or abs(exact.numerator) >= 2**53:
        return None
    return Expression.of(exact.numerator), Expression.of(exact.denominator)
