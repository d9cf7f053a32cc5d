"""The sizes that the shapes of arrays say."""

from collections.abc import Sequence

from pcp.symbolic.constraints import SizesRefused, Space
from pcp.symbolic.expressions import Expression, listed

Shape = tuple[Expression, ...]


def solved(
    space: Space, arguments: Sequence[tuple[str, Shape, str]], shapes: Sequence[tuple[int, ...]]
) -> dict[str, int]:
    """The sizes of the symbols of which the shapes of arguments are these.

    Arguments:
        space: the sizes that are possible.
        arguments: the name of each, the expressions of its sizes, and its spec as a text.
        shapes: of the arrays that are given for them.

    Raises:
        SizesRefused: shapes disagree, or do not say what a symbol is.
    """
    numbers: dict[str, int] = {}
    for (name, expected, text), shape in zip(arguments, shapes, strict=True):
        if len(shape) != len(expected):
            raise SizesRefused(
                f"argument {name} has shape {shape}; expected {text}: give an array of that rank"
            )
        for expression, size in zip(expected, shape, strict=True):
            if len(expression.symbols) == 1 and expression == Expression.symbol(expression.symbols[0]):
                numbers.setdefault(expression.symbols[0], int(size))
    _solve(space, [entry for _, entry, _ in arguments], shapes, numbers)
    sizes = space.checked(numbers)
    for (name, expected, text), shape in zip(arguments, shapes, strict=True):
        wanted = tuple(size.value(sizes) for size in expected)
        if wanted != shape:
            raise SizesRefused(
                f"argument {name} has shape {shape}; expected {text}, which is {wanted} for "
                f"{listed(sizes)}: give arrays whose sizes agree"
            )
    return sizes


def _solve(
    space: Space, expected: Sequence[Shape], shapes: Sequence[tuple[int, ...]], numbers: dict[str, int]
) -> None:
    """Symbols that stand only in expressions such as `2*length + 1`, from those that are linear in one unknown."""
    pairs = [
        pair for row, shape in zip(expected, shapes, strict=True) for pair in zip(row, shape, strict=True)
    ]
    pairs += [(c.left - c.right, 0) for c in space.constraints if c.sign == "=="]
    for _ in space.symbols:
        for expression, size in pairs:
            unknown = [name for name in expression.symbols if name not in numbers]
            if len(unknown) == 1:
                zero, one, two = (expression.value({**numbers, unknown[0]: n}) for n in (0, 1, 2))
                if one != zero and two - one == one - zero and (size - zero) % (one - zero) == 0:
                    numbers[unknown[0]] = (size - zero) // (one - zero)
