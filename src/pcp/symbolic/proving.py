"""Comparisons that hold for all sizes of a space, which are no constraints."""

from fractions import Fraction

from pcp.symbolic.constraints import Constraint, Space
from pcp.symbolic.expressions import Division, Expression, Factors, InvalidSize

_Polynomial = dict[tuple[tuple[str, int], ...], Fraction]


def always(entry: Constraint, space: Space) -> bool:
    """Whether a comparison surely holds for every size that a space has."""
    try:
        difference = entry.left - entry.right
        match entry.sign:
            case ">=":
                return _is_at_least(difference, 0, space)
            case ">":
                return _is_at_least(difference, 1, space)
            case "<=":
                return _is_at_least(-difference, 0, space)
            case "<":
                return _is_at_least(-difference, 1, space)
            case "!=":
                return _is_at_least(difference, 1, space) or _is_at_least(-difference, 1, space)
        return not difference.terms
    except InvalidSize:
        return False


def _is_at_least(expression: Expression, number: int, space: Space) -> bool:
    """Whether a lower bound of an expression, a polynomial of what the symbols exceed their least sizes by, is large enough."""
    total: _Polynomial = {}
    for factors, coefficient in expression.terms:
        part = _below(factors, Fraction(coefficient), space)
        if part is None:
            return False
        for key, value in part.items():
            total[key] = total.get(key, Fraction(0)) + value
    return total.pop((), Fraction(0)) > number - 1 and all(value >= 0 for value in total.values())


def _below(factors: Factors, coefficient: Fraction, space: Space) -> _Polynomial | None:
    """A polynomial that is at most `coefficient` times a product."""
    divisions = [atom for atom, _ in factors if isinstance(atom, Division)]
    if divisions:
        divisor = divisions[0].right.number
        if len(factors) > 1 or factors[0][1] > 1 or divisor is None or divisor < 1:
            return None
        if divisions[0].sign == "%":
            return {(): min(Fraction(0), coefficient * (divisor - 1))}
        # (a - divisor + 1) / divisor <= a // divisor <= a / divisor
        inner = divisions[0].left if coefficient < 0 else divisions[0].left - (divisor - 1)
        total: _Polynomial = {}
        for each, factor in inner.terms:
            part = _below(each, coefficient * factor / divisor, space)
            if part is None:
                return None
            for key, value in part.items():
                total[key] = total.get(key, Fraction(0)) + value
        return total
    bound: _Polynomial = {(): coefficient}
    for atom, power in factors:
        assert isinstance(atom, str)
        for _ in range(power):
            bound = _times(bound, atom, space.bounds(atom)[0])
    return bound


def _times(polynomial: _Polynomial, name: str, least: int) -> _Polynomial:
    """A polynomial times `name + least`."""
    product: _Polynomial = {}
    for key, value in polynomial.items():
        for more, factor in (((name,), Fraction(1)), ((), Fraction(least))):
            powers = dict(key)
            for each in more:
                powers[each] = powers.get(each, 0) + 1
            place = tuple(sorted(powers.items()))
            product[place] = product.get(place, Fraction(0)) + value * factor
    return product
