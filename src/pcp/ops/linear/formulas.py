"""Formulas of `einsum`, brought to one form: a distinct letter for each axis of an operand, and the letters of the result."""

from collections.abc import Sequence
from string import ascii_letters

from pcp.ops.movement import diagonal, squeeze
from pcp.tensor import ShapeMismatch, Tensor


def parse_formula(formula: str, operands: Sequence[Tensor]) -> tuple[list[str], str, list[Tensor]]:
    """The letters of each operand, those of the result, and the operands that they belong to.

    `...` becomes letters that occur nowhere else; an operand lacks those of its axes of size 1 that meet larger ones. Of a
    letter that stands twice in an operand the diagonal is taken.

    Raises:
        ShapeMismatch: the formula does not fit the operands.
    """
    inputs, arrow, output = formula.replace(" ", "").partition("->")
    terms = inputs.split(",")
    if len(terms) != len(operands):
        raise _misfit(formula, operands)
    if not arrow:
        once = sorted(c for c in set(inputs) - {",", "."} if inputs.count(c) == 1)
        output = ("..." if "..." in inputs else "") + "".join(once)
    counts = [x.ndim - len(term.replace("...", "")) for term, x in zip(terms, operands, strict=True)]
    if any(n < 0 or (n > 0 and "..." not in term) for n, term in zip(counts, terms, strict=True)):
        raise _misfit(formula, operands)
    free = [letter for letter in ascii_letters if letter not in formula]
    most = max((n for n, term in zip(counts, terms, strict=True) if "..." in term), default=0)
    letters = "".join(free[:most])
    terms = [
        term.replace("...", letters[most - n :] if n else "") for n, term in zip(counts, terms, strict=True)
    ]
    pairs = [_diagonals(formula, term, x) for term, x in zip(terms, operands, strict=True)]
    pairs = [_without_ones(term, x, pairs, letters) for term, x in pairs]
    return [term for term, _ in pairs], output.replace("...", letters), [x for _, x in pairs]


def _diagonals(formula: str, term: str, x: Tensor) -> tuple[str, Tensor]:
    for letter in term:
        while term.count(letter) > 1:
            first = term.index(letter)
            second = term.index(letter, first + 1)
            if x.shape[first] != x.shape[second]:
                raise ShapeMismatch(
                    f"einsum: {formula!r}: axis {letter} has size {x.shape[first]} and size {x.shape[second]}"
                )
            x = diagonal(x, 0, first, second)
            term = term[:first] + term[first + 1 : second] + term[second + 1 :] + letter
    return term, x


def _without_ones(
    term: str, x: Tensor, pairs: Sequence[tuple[str, Tensor]], letters: str
) -> tuple[str, Tensor]:
    """An operand without axes of size 1 that broadcast against larger ones."""
    gone = [
        axis
        for axis, letter in enumerate(term)
        if letter in letters
        and x.shape[axis] == 1
        and any(letter in other and y.shape[other.index(letter)] != 1 for other, y in pairs)
    ]
    kept = "".join(letter for axis, letter in enumerate(term) if axis not in gone)
    return (kept, squeeze(x, gone)) if gone else (term, x)


def _misfit(formula: str, operands: Sequence[Tensor]) -> ShapeMismatch:
    shapes = ", ".join(str(x.shape) for x in operands)
    return ShapeMismatch(
        f"einsum: {formula!r} does not fit operands of shapes {shapes}; give one letter for each axis, or ... for several"
    )
