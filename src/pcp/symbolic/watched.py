"""What stands for a size and for a quotient of sizes in a traced function: comparisons, and what neither of them can be."""

import operator
import sys
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from pcp.refusals import StandsForNumber, TracingError, is_of_package
from pcp.symbolic.constraints import OPPOSITE, Constraint
from pcp.symbolic.expressions import Expression

_LIBRARIES = {"numpy", "ml_dtypes", "jax", "jaxlib", *sys.stdlib_module_names} - {"__main__"}


class SizeHasNoNumber(TracingError):
    """A symbolic size used where Python or NumPy needs an integer: a loop, an array, a key of a dictionary."""


def line() -> str:
    """The innermost line outside of this package and of libraries, as `file:line`."""
    frame: Any = sys._getframe(1)
    while frame is not None:
        top = str(frame.f_globals.get("__name__")).partition(".")[0]
        if not is_of_package(frame.f_code.co_filename) and top not in _LIBRARIES:
            return f"{frame.f_code.co_filename}:{frame.f_lineno}"
        frame = frame.f_back
    return ""


class Record:
    """What was asked of the sizes of one trace: comparisons with their outcome, lines where a size became a float, and the
    sizes that operations were given."""

    def __init__(self) -> None:
        self.compared: dict[str, Constraint] = {}
        self.noted: dict[str, None] = {}
        self.used: dict[Expression, str] = {}

    def compare(self, left: Expression, sign: str, right: Expression, holds: bool) -> bool:
        if left != right:
            constraint = Constraint(left, sign if holds else OPPOSITE[sign], right, line())
            self.compared.setdefault(str(constraint), constraint)
        return holds

    def note(self) -> None:
        self.noted.setdefault(line())


class Watched(StandsForNumber):
    """What a size and a quotient of sizes have in common: comparisons, and what neither has."""

    __slots__ = ()
    record: Record
    value: Any

    def _refused(self, what: str, advice: str) -> NoReturn:
        raise SizeHasNoNumber(
            f"the size {self} is symbolic and was {what}; expected what holds for every size: {advice}, or give the size as a "
            "number when it is traced"
        )

    def __hash__(self) -> NoReturn:  # a key would be a choice by size that nobody sees
        self._refused("used as a key of a dictionary or set", "compare it with ==")

    def _bits(self, *_: Any) -> NoReturn:
        self._refused("used as a row of bits, or as an exponent", "use +, -, *, // and %")

    def __reduce_ex__(self, _: Any) -> NoReturn:
        self._refused("pickled", "pickle arrays, or the program")

    def __copy__(self) -> Any:
        return self

    def __deepcopy__(self, _: Any) -> Any:
        return self

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("_") and (hasattr(int, name) or hasattr(float, name)):
            self._refused(f"asked for its {name}", "use arithmetic and comparisons")
        raise AttributeError(f"the size {self} is symbolic and has no {name}")

    def _shown(self) -> str:
        """Its text, by which nothing is chosen."""
        raise NotImplementedError

    def __str__(self, _form: str = "") -> str:
        if not is_of_package(sys._getframe(1).f_code.co_filename):
            self.record.note()
        return self._shown()

    __repr__ = __format__ = __str__

    def __float__(self) -> float:
        if not is_of_package(sys._getframe(1).f_code.co_filename):
            self.record.note()
        return float(self.value)

    def __pos__(self) -> Any:
        return self

    def __abs__(self) -> Any:
        return self if self >= 0 else -self

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **named: Any) -> Any:
        operands = [entry.item() if isinstance(entry, np.integer | np.bool_) else entry for entry in inputs]
        function = _UFUNCS.get(ufunc.__name__)
        if method == "__call__" and not named and function is not None and all(map(_is_exact, operands)):
            return function(*operands)
        self.record.note()
        return getattr(ufunc, method)(*(as_number(entry) for entry in inputs), **named)

    def _compared(self, sign: str, other: Any) -> Any:
        raise NotImplementedError(sign, other)

    def __neg__(self) -> Any:
        raise NotImplementedError

    def __eq__(self, other: object) -> Any: return self._compared("==", other)  # fmt: skip

    def __ne__(self, other: object) -> Any: return self._compared("!=", other)  # fmt: skip

    def __lt__(self, other: Any) -> Any: return self._compared("<", other)  # fmt: skip

    def __le__(self, other: Any) -> Any: return self._compared("<=", other)  # fmt: skip

    def __gt__(self, other: Any) -> Any: return self._compared(">", other)  # fmt: skip

    def __ge__(self, other: Any) -> Any: return self._compared(">=", other)  # fmt: skip

    __and__ = __rand__ = __or__ = __ror__ = __xor__ = __rxor__ = __invert__ = _bits
    __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = _bits


class Whole(Watched):
    """What stands for an integer: an expression of the symbols."""

    __slots__ = ()
    expression: Expression


SIGNS: dict[str, Callable[[Any, Any], bool]] = {
    "==": operator.eq, "!=": operator.ne, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge,
}  # fmt: skip
_UFUNCS: dict[str, Callable[..., Any]] = {
    "add": operator.add, "subtract": operator.sub, "multiply": operator.mul, "floor_divide": operator.floordiv,
    "remainder": operator.mod, "divide": operator.truediv, "power": operator.pow, "negative": operator.neg,
    "positive": operator.pos, "absolute": abs, "minimum": min, "maximum": max, "fmin": min, "fmax": max,
    "equal": operator.eq, "not_equal": operator.ne, "less": operator.lt, "less_equal": operator.le,
    "greater": operator.gt, "greater_equal": operator.ge, "sqrt": lambda x: x**0.5, "divmod": divmod,
    "left_shift": operator.lshift, "right_shift": operator.rshift, "bitwise_and": operator.and_,
    "logical_not": operator.not_,
}  # fmt: skip
"""Functions of NumPy that are exact of sizes; others are of floats, which is noted."""


def as_number(value: Any) -> Any:
    """The number that a size or a quotient of sizes is in this trace; anything else as it is."""
    return value.value if isinstance(value, Watched) else value


def is_float(value: Any) -> bool:
    """Whether it is a floating-point number, or a quotient of sizes."""
    return isinstance(value, float | np.floating) or (
        isinstance(value, Watched) and not isinstance(value, Whole)
    )


def _is_exact(value: Any) -> bool:
    return isinstance(value, int | Watched) or type(value) is float


def expression_of(value: Any) -> Expression | None:
    """The expression that an integer or a size is."""
    if isinstance(value, Whole):
        return value.expression
    return Expression.of(int(value)) if isinstance(value, int | np.integer) else None
