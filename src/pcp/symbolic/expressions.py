"""Sizes that are not numbers yet: polynomials of symbols with integer coefficients, quotients and remainders."""

import ast
import functools
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from pcp.errors import PCPError

LONGEST = 500
"""Characters of the text of an expression: a size has few, and texts come from files, too."""
LARGEST_POWER = 8
MOST_TERMS = 200


class InvalidSize(PCPError):
    """A text that is no size: neither a number, a symbol, nor arithmetic of numbers and symbols."""


@dataclass(frozen=True, slots=True)
class Division:
    """A quotient, rounded down (`//`), or its remainder (`%`), of two expressions."""

    sign: str
    left: "Expression"
    right: "Expression"

    def __str__(self) -> str:
        return f"{self.left.enclosed} {self.sign} {self.right.enclosed}"

    def value(self, sizes: Mapping[str, int]) -> int:
        left, right = self.left.value(sizes), self.right.value(sizes)
        if right == 0:
            raise InvalidSize(f"the size {self} divides by 0 for {listed(sizes)}; give other sizes")
        return left // right if self.sign == "//" else left % right


Atom = str | Division
Factors = tuple[tuple[Atom, int], ...]


@dataclass(frozen=True, slots=True, repr=False)
class Expression:
    """A size: a sum of products of symbols, quotients and remainders, each with a coefficient.

    Arguments:
        terms: factors, each with its power, and the coefficient; in a fixed order, so equal sums are equal expressions.
    """

    terms: tuple[tuple[Factors, int], ...]

    @staticmethod
    def of(source: "Expression | int | str") -> "Expression":
        """The expression that a number, a text as `2*length + 1`, or an expression is.

        Raises:
            InvalidSize: the text is no size.
        """
        if isinstance(source, Expression):
            return source
        if isinstance(source, str):
            return _parsed(source)
        return _sum({(): int(source)})

    @staticmethod
    def symbol(name: str) -> "Expression":
        """The expression that is one symbol."""
        return Expression(((((name, 1),), 1),))

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names in it, in alphabetical order."""
        return tuple(sorted(set(self._names())))

    def _names(self) -> Iterator[str]:
        for factors, _ in self.terms:
            for atom, _ in factors:
                if isinstance(atom, str):
                    yield atom
                else:
                    yield from (*atom.left.symbols, *atom.right.symbols)

    @property
    def divides(self) -> bool:
        """Whether a quotient or remainder is in it."""
        return any(isinstance(atom, Division) for factors, _ in self.terms for atom, _ in factors)

    @property
    def quotients(self) -> tuple["Expression", ...]:
        """The quotients and remainders in it."""
        atoms = dict.fromkeys(atom for factors, _ in self.terms for atom, _ in factors)
        return tuple(Expression(((((atom, 1),), 1),)) for atom in atoms if isinstance(atom, Division))

    @property
    def number(self) -> int | None:
        """Its value where it has no symbol."""
        if not self.terms:
            return 0
        return self.terms[0][1] if len(self.terms) == 1 and not self.terms[0][0] else None

    def value(self, sizes: Mapping[str, int]) -> int:
        """Its value for sizes of the symbols.

        Raises:
            InvalidSize: it divides by 0.
            KeyError: a symbol has no size.
        """
        total = 0
        for factors, coefficient in self.terms:
            for atom, power in factors:
                coefficient *= (sizes[atom] if isinstance(atom, str) else atom.value(sizes)) ** power
            total += coefficient
        return total

    def __add__(self, other: "Expression | int") -> "Expression":
        terms = dict(self.terms)
        for factors, coefficient in Expression.of(other).terms:
            terms[factors] = terms.get(factors, 0) + coefficient
        return _sum(terms)

    def __neg__(self) -> "Expression":
        return self * -1

    def __sub__(self, other: "Expression | int") -> "Expression":
        return self + -Expression.of(other)

    def __mul__(self, other: "Expression | int") -> "Expression":
        terms: dict[Factors, int] = {}
        for left, a in self.terms:
            for right, b in Expression.of(other).terms:
                product = _product(left, right)
                terms[product] = terms.get(product, 0) + a * b
        return _sum(terms)

    def __floordiv__(self, other: "Expression | int") -> "Expression":
        return self._divided("//", Expression.of(other))

    def __mod__(self, other: "Expression | int") -> "Expression":
        return self._divided("%", Expression.of(other))

    def _divided(self, sign: str, by: "Expression") -> "Expression":
        divisor, number = by.number, self.number
        if divisor == 0:
            raise InvalidSize(f"the size ({self}){sign}0 divides by 0; divide by another number")
        if divisor is not None and number is not None:
            return Expression.of(number // divisor if sign == "//" else number % divisor)
        if divisor is not None and all(coefficient % divisor == 0 for _, coefficient in self.terms):
            if sign == "%":
                return Expression.of(0)
            return _sum({factors: coefficient // divisor for factors, coefficient in self.terms})
        return Expression(((((Division(sign, self, by), 1),), 1),))

    def __repr__(self) -> str:
        text = ""
        for factors, coefficient in self.terms:
            alone = len(factors) == 1 and coefficient == 1 and factors[0][1] == 1
            names = [
                f"({atom})" if isinstance(atom, Division) and not alone else str(atom) for atom, _ in factors
            ]
            shown = [
                f"{name}**{power}" if power > 1 else name
                for name, (_, power) in zip(names, factors, strict=True)
            ]
            if abs(coefficient) != 1 or not shown:
                shown.insert(0, str(abs(coefficient)))
            sign = ("-" if coefficient < 0 else "") if not text else (" - " if coefficient < 0 else " + ")
            text += sign + "*".join(shown)
        return text or "0"

    @property
    def enclosed(self) -> str:
        """Its text as an operand: in brackets, unless it is one symbol or a number from 0 on."""
        number = self.number
        is_plain = len(self.terms) == 1 and self == Expression.symbol(str(self)) and str(self).isidentifier()
        return str(self) if is_plain or (number is not None and number >= 0) else f"({self})"


def listed(sizes: Mapping[str, object]) -> str:
    """Sizes as they are given: `batch=8, length=512`."""
    return ", ".join(f"{name}={size}" for name, size in sizes.items())


def _sum(terms: Mapping[Factors, int]) -> Expression:
    kept = [(factors, coefficient) for factors, coefficient in terms.items() if coefficient]
    if len(kept) > MOST_TERMS:
        raise InvalidSize(f"a size has {len(kept)} terms; expected at most {MOST_TERMS}")
    return Expression(tuple(sorted(kept, key=_order)))


def _order(term: tuple[Factors, int]) -> tuple[int, list[tuple[str, int]]]:
    """The highest degree first, then the alphabet."""
    factors = [(str(atom), power) for atom, power in term[0]]
    return -sum(power for _, power in factors), factors


def _product(left: Factors, right: Factors) -> Factors:
    powers: dict[Atom, int] = dict(left)
    for atom, power in right:
        powers[atom] = powers.get(atom, 0) + power
    if sum(powers.values()) > LARGEST_POWER:
        raise InvalidSize(f"a size is a product of more than {LARGEST_POWER} factors; expected fewer")
    return tuple(sorted(powers.items(), key=lambda entry: str(entry[0])))


_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_OPERATIONS: dict[type, Callable[[Expression, Expression], Expression]] = {
    ast.Add: lambda a, b: a + b,
    ast.Sub: lambda a, b: a - b,
    ast.Mult: lambda a, b: a * b,
    ast.FloorDiv: lambda a, b: a // b,
    ast.Mod: lambda a, b: a % b,
}


@functools.lru_cache(maxsize=1024)
def _parsed(text: str) -> Expression:
    if len(text) > LONGEST:
        raise InvalidSize(f"the size {text[:60]!r}... has {len(text)} characters; expected at most {LONGEST}")
    try:
        return from_tree(ast.parse(text.strip().replace("^", "**"), mode="eval").body, text)
    except (SyntaxError, ValueError, RecursionError):
        raise refused(text) from None


def from_tree(node: ast.expr, text: str) -> Expression:
    """The expression that a part of a parsed text is.

    Raises:
        InvalidSize: it is no expression of sizes.
    """
    match node:
        case ast.Constant(int(number)) if not isinstance(number, bool) and abs(number) < 2**62:
            return Expression.of(number)
        case ast.Name(name) if _NAME.fullmatch(name):
            return Expression.symbol(name)
        case ast.UnaryOp(ast.USub(), operand):
            return -from_tree(operand, text)
        case ast.BinOp(base, ast.Pow(), ast.Constant(int(power))) if 1 <= power <= LARGEST_POWER:
            return functools.reduce(lambda a, b: a * b, [from_tree(base, text)] * power)
        case ast.BinOp(left, operation, right) if type(operation) in _OPERATIONS:
            return _OPERATIONS[type(operation)](from_tree(left, text), from_tree(right, text))
        case ast.Call(ast.Name("floordiv" | "mod" as name), [left, right], []):  # as jax.export writes them
            divide = _OPERATIONS[ast.FloorDiv if name == "floordiv" else ast.Mod]
            return divide(from_tree(left, text), from_tree(right, text))
    raise refused(text)


def refused(text: str) -> InvalidSize:
    """What is said of a text that is no size."""
    return InvalidSize(
        f"{text[:80]!r} is no size; expected a number, a name as 'length', or sums, products, quotients (//) and "
        "remainders (%) of these, as '2*length + 1'"
    )


def names_in_order(expression: Expression) -> tuple[str, ...]:
    """The names in an expression, in the order of its text."""
    return tuple(dict.fromkeys(name for name in _NAME.findall(str(expression))))
