"""Which expression of the sizes a number of a program is, from its values in the program at several sizes."""

import functools
import itertools
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from typing import Any

import ml_dtypes
import numpy as np

from pcp.symbolic.expressions import Expression

Samples = Sequence[Mapping[str, int]]
Hints = Sequence[Expression]
_MOST_FACTORS = 4
_LARGEST_DIVISOR = 64
_LARGEST_QUOTIENT = 16
_LARGEST_DENOMINATOR = 4096
_finfo: Any = ml_dtypes.finfo  # NumPy's knows no bfloat16


def fitted(values: Sequence[int], samples: Samples, hints: Hints = ()) -> Expression | None:
    """The simplest expression that has these values at these sizes; None if none of those that are tried has.

    Tried are products with a coefficient plus a number, sums of two of these, their quotients, and products of all that
    with a symbol. The sizes are more than the coefficients, so an expression that fits by chance is next to impossible.

    Arguments:
        hints: quotients and remainders that are known to be in the program, which are tried before others.
    """
    if len(set(values)) == 1:
        return Expression.of(values[0])
    simplest = _of_products(values, samples)
    if simplest is None or simplest.divides:
        simplest = _hinted(values, samples, hints) or simplest or _quotient(values, samples)
    return simplest or _factored(values, samples, hints)


def _hinted(values: Sequence[int], samples: Samples, hints: Hints) -> Expression | None:
    """A multiple of a hint, and perhaps of a symbol or another hint, plus a number."""
    known = [(hint, [hint.value(sizes) for sizes in samples]) for hint in hints]
    known = [each for each in known if len(set(each[1])) > 1]
    others = [(Expression.symbol(name), [sizes[name] for sizes in samples]) for name in samples[0]]
    pairs = [[each, other] for i, each in enumerate(known) for other in (*others, *known[i + 1 :])]
    for parts in ([each] for each in known):
        fit = _linear(values, parts, whole=True)
        if fit is not None:
            return fit
    return next((fit for parts in pairs if (fit := _linear(values, parts, whole=True)) is not None), None)


def fitted_float(
    values: Sequence[float], samples: Samples, dtype: np.dtype[Any], hints: Hints = ()
) -> tuple[str, Expression] | None:
    """As `fitted` for constants of a floating-point type: the way in which an expression becomes it, one of `FORMS`.

    Arguments:
        dtype: in which the constants are exact; a size or its inverse is rounded to it.
    """
    for form, (inverse, forward) in FORMS.items():
        with np.errstate(all="ignore"):
            numbers = [inverse(value) if value else math.nan for value in values]
        if not all(math.isfinite(number) and abs(number) < 2**53 for number in numbers):
            continue
        for scale in (1, 2, 3, 4, 8, *_denominators(numbers, dtype)):
            whole = [round(number * scale) for number in numbers]
            near = 8 * float(_finfo(dtype).eps)
            if any(abs(n * scale - w) > near * abs(w) for n, w in zip(numbers, whole, strict=True)):
                continue
            simple = scale > 1 or "sqrt" in form
            fit = _of_products if simple else functools.partial(fitted, hints=hints)
            expression = fit(whole, samples) if len(set(whole)) > 1 else None
            if expression is None and simple and len(set(whole)) > 1:
                expression = _hinted(whole, samples, hints)
            if expression is None:
                continue
            pairs = zip(values, samples, strict=True)
            allowed = float(_finfo(dtype).eps) if "sqrt" in form else 0.0  # a root may differ in its last bit
            if all(
                _is_close(forward(expression.value(s) / scale), value, dtype, allowed) for value, s in pairs
            ):
                return (form if scale == 1 else f"{form}/{scale}"), expression
    return None


def _denominators(numbers: Sequence[float], dtype: np.dtype[Any]) -> list[int]:
    """What makes integers of quotients that are exact enough to say by what was divided."""
    if dtype.itemsize < 4:
        return []
    common = math.lcm(*(Fraction(n).limit_denominator(_LARGEST_DENOMINATOR).denominator for n in numbers))
    return [common] if 8 < common <= _LARGEST_DENOMINATOR else []


def _is_close(computed: float, value: float, dtype: np.dtype[Any], allowed: float) -> bool:
    return abs(float(dtype.type(computed)) - float(dtype.type(value))) <= allowed * abs(value)


def float_of(form: str, number: int) -> float:
    """A constant from the value of its expression."""
    name, _, scale = form.partition("/")
    return FORMS[name][1](number / int(scale or 1))


FORMS: dict[str, tuple[Callable[[float], float], Callable[[float], float]]] = {
    "x": (lambda v: v, lambda x: x),
    "1:x": (lambda v: 1 / v, lambda x: 1 / x),
    "-1:x": (lambda v: -1 / v, lambda x: -1 / x),
    "sqrt": (lambda v: v * v, math.sqrt),
    "1:sqrt": (lambda v: 1 / (v * v), lambda x: 1 / math.sqrt(x)),
}
"""Ways in which a size becomes a constant: the size from the constant, and the constant from the size."""


@functools.lru_cache(maxsize=64)
def _monomials(names: tuple[str, ...]) -> tuple[tuple[str, ...], ...]:
    """Products of symbols, those of fewer factors first."""
    return tuple(
        factors
        for count in range(1, _MOST_FACTORS + 1)
        for factors in itertools.combinations_with_replacement(names, count)
    )


def _products(samples: Samples) -> Iterator[tuple[Expression, list[int]]]:
    for factors in _monomials(tuple(samples[0])):
        product = functools.reduce(lambda a, b: a * b, map(Expression.symbol, factors))
        yield product, [math.prod(sizes[name] for name in factors) for sizes in samples]


def _of_products(values: Sequence[int], samples: Samples) -> Expression | None:
    known = list(_products(samples))
    parts = [[each] for each in known] + [list(pair) for pair in itertools.combinations(known, 2)]
    rational: Expression | None = None
    for count, part in enumerate(parts, start=1):
        fit = _linear(values, part)
        if fit is not None and not fit.divides:
            return fit
        rational = rational or fit
        if rational is not None and count >= len(known):
            return rational
    return rational


def _linear(
    values: Sequence[int], parts: Sequence[tuple[Expression, Sequence[int]]], whole: bool = False
) -> Expression | None:
    """The sum of coefficients times products, and a number, with these values; None if there is none with small divisors, or,
    if `whole`, none without."""
    if not _is_linear(values, [xs for _, xs in parts]):
        return None
    rows = [[Fraction(xs[i]) for _, xs in parts] + [Fraction(1)] for i in range(len(values))]
    solved = _solved(rows, [Fraction(v) for v in values])
    if solved is None:
        return None
    divisor = math.lcm(*(c.denominator for c in solved))
    if divisor > (1 if whole else _LARGEST_DIVISOR):
        return None
    total = Expression.of(int(solved[-1] * divisor))
    for (product, _), coefficient in zip(parts, solved, strict=False):
        total = total + product * int(coefficient * divisor)
    return total // divisor if divisor > 1 else total


def _is_linear(values: Sequence[int], parts: Sequence[Sequence[int]]) -> bool:
    """Whether values are a linear function of the parts, one or two, that determine it; in integers, for most are not."""
    rows = [[entry - row[0] for entry in row[1:]] for row in (*parts, values)]
    while len(rows) > 1:
        first, *rows = rows
        pivot = next((i for i, entry in enumerate(first) if entry), None)
        if pivot is None:
            return False
        rows = [[e * first[pivot] - row[pivot] * f for e, f in zip(row, first, strict=True)] for row in rows]
    return not any(rows[0])


def _solved(rows: Sequence[Sequence[Fraction]], values: Sequence[Fraction]) -> list[Fraction] | None:
    """The solution of an overdetermined system, if it is exact and unique."""
    count = len(rows[0])
    table = [[*row, value] for row, value in zip(rows, values, strict=True)]
    for column in range(count):
        pivot = next((r for r in range(column, len(table)) if table[r][column]), None)
        if pivot is None:
            return None
        table[column], table[pivot] = table[pivot], table[column]
        table[column] = [entry / table[column][column] for entry in table[column]]
        for r in range(len(table)):
            if r != column and table[r][column]:
                factor = table[r][column]
                table[r] = [a - factor * b for a, b in zip(table[r], table[column], strict=True)]
    if any(row[-1] for row in table[count:]):
        return None
    return [table[i][-1] for i in range(count)]


def _quotient(values: Sequence[int], samples: Samples) -> Expression | None:
    """A multiple of `(x + b) // q`, and perhaps of a symbol, plus a number, as remainders are; or of that of a product of two
    symbols. None where the samples leave several that differ elsewhere."""
    elsewhere = [{name: 5 * n + place for place, name in enumerate(samples[0])} for n in range(7, 60)]
    symbols = [Expression.symbol(name) for name in samples[0]]
    products = [x * y for x, y in itertools.combinations_with_replacement(symbols, 2)]
    for above, others in ((symbols, []), (symbols, symbols), (products, [])):
        fits: dict[tuple[int, ...], Expression] = {}
        for parts in _with_quotients(samples, above, others):
            fit = _linear(values, parts, whole=True)
            if fit is not None:
                fits.setdefault(tuple(fit.value(sizes) for sizes in elsewhere), fit)
        if fits:
            return next(iter(fits.values())) if len(fits) == 1 else None
    return None


def _with_quotients(
    samples: Samples, above: Sequence[Expression], others: Sequence[Expression]
) -> Iterator[list[tuple[Expression, list[int]]]]:
    """Quotients by small numbers of expressions, each beside one of the others, or alone where there are none."""

    def valued(each: Expression) -> tuple[Expression, list[int]]:
        return each, [each.value(sizes) for sizes in samples]

    for base in above:
        for q in range(2, _LARGEST_QUOTIENT + 1):
            for b in range(q):
                part = valued((base + b) // q)
                yield from ([part, valued(other)] for other in others)
                if not others:
                    yield [part]


def _factored(values: Sequence[int], samples: Samples, hints: Hints = ()) -> Expression | None:
    """A number or symbol that divides all values, times what the rest is."""
    divisor = math.gcd(*values)
    if divisor > 1:
        rest = fitted([v // divisor for v in values], samples, hints)
        return None if rest is None else rest * divisor
    for name in samples[0]:
        if all(v and v % sizes[name] == 0 for v, sizes in zip(values, samples, strict=True)):
            rest = fitted(
                [v // sizes[name] for v, sizes in zip(values, samples, strict=True)], samples, hints
            )
            return None if rest is None else rest * Expression.symbol(name)
    return None
