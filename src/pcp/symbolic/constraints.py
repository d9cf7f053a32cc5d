"""What sizes may be: the symbols of a program and the comparisons that hold between them."""

import ast
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pcp.errors import PCPError
from pcp.symbolic.expressions import LONGEST, Expression, InvalidSize, from_tree, listed

LARGEST = 2**40
MOST_SYMBOLS = 8


class InvalidConstraint(PCPError):
    """A text that is no comparison of sizes, or comparisons that no sizes, or too few, satisfy."""


class SizesRefused(PCPError):
    """Sizes that a symbolic program does not take: some are missing or unknown, or a constraint does not hold."""


HOLDS: dict[str, Callable[[int, int], bool]] = {
    "==": lambda a, b: a == b,
    "!=": lambda a, b: a != b,
    "<=": lambda a, b: a <= b,
    ">=": lambda a, b: a >= b,
    "<": lambda a, b: a < b,
    ">": lambda a, b: a > b,
}
_COMPARISONS = {ast.Eq: "==", ast.NotEq: "!=", ast.LtE: "<=", ast.GtE: ">=", ast.Lt: "<", ast.Gt: ">"}
TURNED = {"==": "==", "<=": ">=", ">=": "<=", "<": ">", ">": "<", "!=": "!="}
OPPOSITE = {"==": "!=", "!=": "==", "<=": ">", ">": "<=", ">=": "<", "<": ">="}


@dataclass(frozen=True, slots=True)
class Constraint:
    """A comparison of two sizes that holds for every size that a program takes.

    Arguments:
        left, right: what is compared.
        sign: one of `==`, `!=`, `<=`, `>=`, `<`, `>`.
        place: where a traced function asked for it; empty if its author wrote it down.
    """

    left: Expression
    sign: str
    right: Expression
    place: str = ""

    @staticmethod
    def parse(text: str) -> "Constraint":
        """The comparison in a text, as `length % 8 == 0`.

        Raises:
            InvalidConstraint: it is no comparison of sizes.
        """
        if isinstance(text, str) and len(text) <= 2 * LONGEST:
            try:
                node = ast.parse(text.strip(), mode="eval").body
                match node:
                    case ast.Compare(left, [sign], [right]) if type(sign) in _COMPARISONS:
                        return Constraint(
                            from_tree(left, text), _COMPARISONS[type(sign)], from_tree(right, text)
                        )
            except (SyntaxError, ValueError, RecursionError, InvalidSize):
                pass
        raise InvalidConstraint(
            f"{text!r:.80} is no constraint; expected one comparison of sizes, as 'length <= 1024', "
            "'length % 8 == 0' or 'width == 4*heads'"
        )

    @property
    def symbols(self) -> tuple[str, ...]:
        """The names in it."""
        return tuple(dict.fromkeys((*self.left.symbols, *self.right.symbols)))

    def holds(self, sizes: Mapping[str, int]) -> bool:
        """Whether it is true of these sizes."""
        return HOLDS[self.sign](self.left.value(sizes), self.right.value(sizes))

    def renamed(self, names: Mapping[str, Expression]) -> "Constraint":
        """The same comparison with other expressions in the place of symbols."""
        return Constraint(replaced(self.left, names), self.sign, replaced(self.right, names), self.place)

    def __str__(self) -> str:
        return f"{self.left} {self.sign} {self.right}"


@dataclass(frozen=True, slots=True)
class Space:
    """The sizes that a symbolic program takes: its symbols, each from 1 on, and the constraints on them.

    Arguments:
        symbols: in the order in which they first stand in the arguments.
        constraints: all of which hold.
    """

    symbols: tuple[str, ...]
    constraints: tuple[Constraint, ...] = ()

    @staticmethod
    def of(symbols: Iterable[str], constraints: Sequence[str | Constraint] = ()) -> "Space":
        """The space of some symbols.

        Raises:
            InvalidConstraint: a text is no constraint, or names another symbol, or there are too many symbols.
        """
        names = tuple(dict.fromkeys(symbols))
        if len(names) > MOST_SYMBOLS:
            raise InvalidConstraint(
                f"there are {len(names)} symbols ({', '.join(names)}); expected at most {MOST_SYMBOLS}: "
                "write sizes that belong together as one, as '2*length'"
            )
        if isinstance(constraints, str):
            constraints = (constraints,)
        parsed = tuple(c if isinstance(c, Constraint) else Constraint.parse(c) for c in constraints)
        for constraint in parsed:
            unknown = [name for name in constraint.symbols if name not in names]
            if unknown:
                raise InvalidConstraint(
                    f"the constraint '{constraint}' names {', '.join(unknown)}; the symbols of the arguments are "
                    f"{', '.join(names) or 'none'}: give it in the shape of an argument, or leave the constraint out"
                )
        return Space(names, tuple(dict.fromkeys(parsed)))

    def checked(self, sizes: Mapping[str, Any]) -> dict[str, int]:
        """The sizes of all symbols, in order.

        Raises:
            SizesRefused: one is missing, unknown, no integer from 1 on, or a constraint does not hold.
        """
        unknown = [name for name in sizes if name not in self.symbols]
        missing = [name for name in self.symbols if name not in sizes]
        if unknown or missing:
            what = f"lacks {', '.join(missing)}" if missing else f"names {', '.join(unknown)}"
            raise SizesRefused(
                f"the sizes ({listed(sizes)}) were given, which {what}; the program takes {', '.join(self.symbols)}: "
                f"give .at({listed(dict.fromkeys(self.symbols, '...'))})"
            )
        numbers = {}
        for name in self.symbols:
            size = sizes[name]
            if isinstance(size, bool) or not hasattr(size, "__index__") or not 1 <= int(size) <= LARGEST:
                raise SizesRefused(f"the size {name}={size!r:.40} was given; expected an integer from 1 on")
            numbers[name] = int(size)
        for constraint in self.constraints:
            if not constraint.holds(numbers):
                raise SizesRefused(_refusal(constraint, numbers))
        return numbers

    def admits(self, sizes: Mapping[str, int]) -> bool:
        """Whether every constraint holds."""
        try:
            return all(constraint.holds(sizes) for constraint in self.constraints)
        except InvalidSize:
            return False

    def bounds(self, name: str) -> tuple[int, int | None]:
        """The least and the largest size of a symbol that comparisons with numbers alone leave; None for no largest."""
        least, largest = 1, None
        for sign, number in self._numbers(name):
            if sign in (">=", ">", "=="):
                least = max(least, number + (sign == ">"))
            if sign in ("<=", "<", "=="):
                bound = number - (sign == "<")
                largest = bound if largest is None else min(largest, bound)
        return least, largest

    def multiple(self, name: str) -> tuple[int, int]:
        """A number and a remainder: the sizes of a symbol that constraints as `length % 8 == 0` leave."""
        for entry in self.constraints:
            match entry.left.terms:
                case (((((atom, 1),), 1)),) if entry.sign == "==" and not isinstance(atom, str):
                    divisor, rest = atom.right.number, entry.right.number
                    alone = atom.sign == "%" and atom.left == Expression.symbol(name)
                    if alone and divisor is not None and rest is not None and divisor > 0:
                        return divisor, rest % divisor
        return 1, 0

    def _numbers(self, name: str) -> Iterator[tuple[str, int]]:
        symbol = Expression.symbol(name)
        for entry in self.constraints:
            if entry.left == symbol and entry.right.number is not None:
                yield entry.sign, entry.right.number
            elif entry.right == symbol and entry.left.number is not None:
                yield TURNED[entry.sign], entry.left.number

    def without(self, sizes: Mapping[str, int]) -> "Space":
        """The space of the other symbols where some have sizes.

        Raises:
            SizesRefused: a constraint on the given sizes alone does not hold.
        """
        numbers = {name: Expression.of(size) for name, size in sizes.items()}
        left = []
        for entry in self.constraints:
            renamed = entry.renamed(numbers)
            if renamed.symbols:
                left.append(renamed)
            elif not renamed.holds({}):
                raise SizesRefused(_refusal(entry, sizes))
        return Space(tuple(name for name in self.symbols if name not in sizes), tuple(left))

    def also(self, more: Iterable[Constraint]) -> "Space":
        """The space with more constraints; those of one comparison count once."""
        known = {str(entry) for entry in self.constraints}
        fresh = {str(entry): entry for entry in more if str(entry) not in known}
        return Space(self.symbols, (*self.constraints, *fresh.values()))


def replaced(expression: Expression, numbers: Mapping[str, Expression]) -> Expression:
    """An expression with others in the place of some symbols."""
    total = Expression.of(0)
    for factors, coefficient in expression.terms:
        product = Expression.of(coefficient)
        for atom, power in factors:
            if isinstance(atom, str):
                value = numbers.get(atom, Expression.symbol(atom))
            else:
                left, right = replaced(atom.left, numbers), replaced(atom.right, numbers)
                value = left // right if atom.sign == "//" else left % right
            for _ in range(power):
                product = product * value
        total = total + product
    return total


def _refusal(constraint: Constraint, sizes: Mapping[str, int]) -> str:
    concerned = {name: sizes[name] for name in constraint.symbols}
    values = f"{constraint.left.value(sizes)} {constraint.sign} {constraint.right.value(sizes)}"
    if constraint.place:
        return (
            f"the sizes ({listed(concerned)}) were given; expected {constraint}, and {values} does not hold: the function "
            f"was traced where it does, at {constraint.place}; trace it again with a constraint for these sizes"
        )
    return (
        f"the sizes ({listed(concerned)}) were given; expected {constraint}, and {values} does not hold: "
        "give others, or trace with another constraint"
    )
