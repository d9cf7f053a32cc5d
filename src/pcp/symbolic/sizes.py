"""What a traced function sees where a size is symbolic: an exact size, no integer.

Arithmetic stays exact, and comparisons become constraints. What Python or NumPy would need an integer for is refused with the
line, because the program would hold for one size only. A float is given and noted: programs with such are compared at more
sizes.
"""

import operator
import sys
from collections.abc import Callable
from fractions import Fraction
from typing import Any, NoReturn

import numpy as np

from pcp.refusals import is_of_package
from pcp.symbolic.expressions import LARGEST_POWER, Expression, InvalidSize
from pcp.symbolic.quotients import Quotient
from pcp.symbolic.watched import (
    SIGNS,
    Record,
    SizeHasNoNumber,
    Watched,
    Whole,
    as_number,
    expression_of,
    is_float,
    line,
)


class Size(Whole):
    """A symbolic size: an expression of the symbols, and its value in this trace."""

    __slots__ = ("expression", "record", "value")

    def __init__(self, number: int, expression: Expression, record: Record) -> None:
        self.value = number
        self.expression = expression
        self.record = record

    @property
    def number(self) -> int:
        """The number that an operation takes it for."""
        self.record.used.setdefault(self.expression, line())
        return int(self.value)

    def _shown(self) -> str:
        return str(self.expression)

    def _made(self, name: str, other: Any, turned: bool) -> Any:
        theirs = expression_of(other)
        if theirs is None:
            return NotImplemented
        function: Callable[[Any, Any], Any] = getattr(operator, name)
        left, right = (other, self) if turned else (self, other)
        number = function(as_number(left), as_number(right))
        try:
            expression = function(theirs, self.expression) if turned else function(self.expression, theirs)
        except InvalidSize as error:
            raise SizeHasNoNumber(str(error)) from None
        return Size(number, expression, self.record) if expression.symbols else number

    def __add__(self, other: Any) -> Any: return self._sum("add", other, False)  # fmt: skip

    def __radd__(self, other: Any) -> Any: return self._sum("add", other, True)  # fmt: skip

    def __sub__(self, other: Any) -> Any: return self._sum("sub", other, False)  # fmt: skip

    def __rsub__(self, other: Any) -> Any: return self._sum("sub", other, True)  # fmt: skip

    def __floordiv__(self, other: Any) -> Any: return self._quotient("floordiv", other, False)  # fmt: skip

    def __rfloordiv__(self, other: Any) -> Any: return self._quotient("floordiv", other, True)  # fmt: skip

    def __mod__(self, other: Any) -> Any: return self._quotient("mod", other, False)  # fmt: skip

    def __rmod__(self, other: Any) -> Any: return self._quotient("mod", other, True)  # fmt: skip

    def __neg__(self) -> Any: return self * -1  # fmt: skip

    def __mul__(self, other: Any) -> Any:
        if isinstance(other, str | bytes | list | tuple):
            self.__index__()
        return (
            self._rational(operator.mul, other, False) if is_float(other) else self._made("mul", other, False)
        )

    def __rmul__(self, other: Any) -> Any:
        if isinstance(other, str | bytes | list | tuple):
            self.__index__()
        return (
            self._rational(operator.mul, other, True) if is_float(other) else self._made("mul", other, True)
        )

    def _sum(self, name: str, other: Any, turned: bool) -> Any:
        if is_float(other):
            return self._rational(getattr(operator, name), other, turned)
        return self._made(name, other, turned)

    def _quotient(self, name: str, other: Any, turned: bool) -> Any:
        if is_float(other):
            self.record.note()
            left, right = (other, self.value) if turned else (self.value, other)
            return getattr(operator, name)(left, right)
        return self._made(name, other, turned)

    def __divmod__(self, other: Any) -> Any:
        return self // other, self % other

    def __rdivmod__(self, other: Any) -> Any:
        return other // self, other % self

    def __truediv__(self, other: Any) -> Any:
        return self._rational(operator.truediv, other, False)

    def __rtruediv__(self, other: Any) -> Any:
        return self._rational(operator.truediv, other, True)

    def _rational(self, function: Callable[[Any, Any], Any], other: Any, turned: bool) -> Any:
        whole = Quotient(float(self.value), self.expression, Expression.of(1), False, self.record, Size)
        return whole._made(function, other, turned)

    def __pow__(self, power: Any, modulus: Any = None) -> Any:
        if modulus is None and isinstance(power, int) and 0 <= power <= LARGEST_POWER:
            product: Any = 1
            for _ in range(power):
                product = self * product
            return product
        if modulus is None and isinstance(power, float) and power in (0.5, -0.5):
            one = Expression.of(1)
            parts = (self.expression, one) if power > 0 else (one, self.expression)
            return Quotient(self.value**power, *parts, True, self.record, Size)
        if modulus is None and isinstance(power, int | float):
            self.record.note()
            return self.value**power
        return self._bits() if isinstance(power, int | np.number | Watched) else NotImplemented

    def __rpow__(self, base: Any) -> Any:
        if isinstance(base, float):
            self.record.note()
            return base**self.value
        return self._bits() if isinstance(base, int | np.number | Watched) else NotImplemented

    def __lshift__(self, bits: Any) -> Any:
        return self * 2**bits if isinstance(bits, int) and 0 <= bits < 60 else self._bits()

    def __rshift__(self, bits: Any) -> Any:
        return self // 2**bits if isinstance(bits, int) and 0 <= bits < 60 else self._bits()

    def __and__(self, mask: Any) -> Any:
        low = isinstance(mask, int) and mask > 0 and mask & (mask + 1) == 0
        return self % (mask + 1) if low else self._bits()

    __rand__ = __and__

    def __floor__(self) -> "Size":
        return self

    __ceil__ = __trunc__ = __floor__

    def __round__(self, digits: int | None = None) -> "Size":
        return self if digits is None or digits >= 0 else self._bits()

    def __bool__(self) -> bool:
        return self.record.compare(self.expression, "!=", Expression.of(0), self.value != 0)

    def __index__(self) -> int:
        if is_of_package(sys._getframe(1).f_code.co_filename):
            return self.number
        return self.as_integer()

    def as_integer(self) -> NoReturn:
        """Refuse to be one.

        Raises:
            SizeHasNoNumber: always.
        """
        self._refused(
            "used as an integer of Python or NumPy, as by range, len, int or an array's shape",
            "loop by pcp.scan or pcp.fori_loop, make arrays by pcp.iota, pcp.arange, pcp.zeros or pcp.full, and calculate with "
            "the size itself",
        )

    __int__ = __index__

    def _compared(self, sign: str, other: Any) -> Any:
        if isinstance(other, float | Fraction | np.floating) and not isinstance(other, np.integer):
            return Quotient(
                float(self.value), self.expression, Expression.of(1), False, self.record, Size
            )._compared(sign, other)
        theirs = expression_of(other)
        if theirs is None:
            return NotImplemented
        return self.record.compare(self.expression, sign, theirs, SIGNS[sign](self.value, as_number(other)))
