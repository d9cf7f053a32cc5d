"""Sizes to build a program for, so that what it is for every other size follows from them."""

import random
from collections.abc import Iterable, Mapping

from pcp.symbolic.constraints import InvalidConstraint, Space
from pcp.symbolic.expressions import Expression

_SAMPLES = ((37, 74, 53, 60, 43, 88, 47, 66, 83, 58), (29, 71, 46, 84, 57, 59, 62, 31, 68, 92))
"""Sizes of symbols without constraints: odd and even, with all remainders of small numbers, none of them a usual width.

The parity of one symbol does not follow from that of another."""
_TRIES = 4000


def samples(space: Space, taken: Iterable[int] = (), attempt: int = 0) -> list[dict[str, int]]:
    """Sizes to build a program for, so that its form for every other size follows: always the same for a space.

    Arguments:
        taken: numbers that are sizes of something else, which are avoided where there are others.
        attempt: another choice for each.

    Raises:
        InvalidConstraint: there are none, or too few, that satisfy the constraints.
    """
    wanted = 5 + min(len(space.symbols), 5)
    avoided = frozenset(taken) | {0, 1}
    rng = random.Random(attempt)
    chosen: list[dict[str, int]] = []
    for tries in range(_TRIES):
        if len(chosen) == wanted:
            return chosen
        strict = tries < _TRIES // 2
        sizes = _sample(space, rng, len(chosen) if attempt == 0 and tries < 2 * wanted else None)
        if sizes is None or not space.admits(sizes):
            continue
        values = list(sizes.values())
        if strict and (len(set(values)) < len(values) or avoided.intersection(values)):
            continue
        apart = all(sizes[name] != each[name] or _is_narrow(space, name) for each in chosen for name in sizes)
        if sizes not in chosen and (apart or not strict):
            chosen.append(sizes)
    shown = "; ".join(map(str, space.constraints))
    raise InvalidConstraint(
        f"{len(chosen)} sets of sizes of {', '.join(space.symbols)} were found that satisfy the constraints ({shown}); "
        f"expected {wanted} or more: widen them, or trace each of the few sizes on its own"
    )


def _sample(space: Space, rng: random.Random, number: int | None) -> dict[str, int] | None:
    """Sizes that satisfy the constraints on single symbols and equalities that say what a symbol is."""
    sizes: dict[str, int] = {}
    for place, name in enumerate(space.symbols):
        (least, largest), (multiple, rest) = space.bounds(name), space.multiple(name)
        if number is not None and place < len(_SAMPLES):
            size = _SAMPLES[place][number % len(_SAMPLES[place])]
        else:
            size = rng.randrange(7, 120)
        size = size * multiple + rest
        if size < least or (largest is not None and size > largest):
            first = least + (rest - least) % multiple
            last = first + 120 * multiple if largest is None else largest
            if first > last:
                return None
            size = rng.randrange(first, last + 1, multiple)
        sizes[name] = size
    return _completed(space, sizes)


def _completed(space: Space, sizes: dict[str, int]) -> dict[str, int] | None:
    """The sizes, those that an equality says by what it says; None if one is below 1."""
    for _ in space.symbols:
        for entry in space.constraints:
            for one, other in ((entry.left, entry.right), (entry.right, entry.left)):
                name = one.symbols[0] if len(one.symbols) == 1 else ""
                if entry.sign == "==" and one == Expression.symbol(name) and name not in other.symbols:
                    sizes[name] = other.value(sizes)
    return {name: sizes[name] for name in space.symbols} if min(sizes.values()) >= 1 else None


def _is_narrow(space: Space, name: str) -> bool:
    least, largest = space.bounds(name)
    return largest is not None and (largest - least) // space.multiple(name)[0] < 12


_FAR = (1021, 769, 383, 251, 191, 127, 101, 97)
_SCALES = (1, 31, 977)
"""Programs are compared at about 10^3, 3 * 10^4 and 10^6."""
_LOWEST = (1, 2, 3, 5, 9, 17, 33, 65)


def largest(space: Space, below: int = 0, scale: int = 1) -> dict[str, int] | None:
    """Sizes at the upper end of what the constraints leave, or far from those that are tried; None where none are found.

    Arguments:
        below: how many steps from the upper end: there a slice may be of all, and such is left out.
        scale: how much further than about 1,000.
    """
    for shift in range(below, 400):
        sizes = {}
        for place, name in enumerate(space.symbols):
            (least, most), (multiple, rest) = space.bounds(name), space.multiple(name)
            size = max(_FAR[place] * scale * multiple + rest, least + (rest - least) % multiple)
            if most is not None:
                size = min(size, most - (most - rest) % multiple)
            sizes[name] = size - shift * multiple
        fixed = _completed(space, sizes)
        if fixed is not None and space.admits(fixed):
            return fixed
    return None


def far(space: Space, example: Mapping[str, int]) -> list[dict[str, int]]:
    """Sizes of several magnitudes up to the upper end, growing: of all symbols together, and of each alone.

    Arguments:
        example: sizes of the others.
    """
    candidates = [largest(space, scale != _SCALES[-1], scale) for scale in _SCALES]
    ends = {}
    for name in space.symbols:
        (_, last), (multiple, rest) = space.bounds(name), space.multiple(name)
        if last is not None:
            ends[name] = last - (last - rest) % multiple
    candidates += [_within(space, {**(candidates[-1] or example), **ends})] if ends else []
    candidates += [_with(space, example, name, last) for name, last in ends.items()]
    for scale in _SCALES[1:] if len(space.symbols) > 1 else ():
        sizes = largest(space, 0, scale) or {}
        candidates += [_with(space, example, name, size) for name, size in sizes.items()]
    candidates += [_with(space, example, name, _end(space, example, name)) for name in space.symbols]
    return _distinct(candidates)


def _end(space: Space, example: Mapping[str, int], name: str) -> int:
    """The last size of a symbol up to some 10^6 that the constraints admit, where they admit all up to it."""
    multiple, _ = space.multiple(name)
    inside, outside = 0, _FAR[0] * _SCALES[-1]
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if _with(space, example, name, example[name] + middle * multiple) is None:
            outside = middle
        else:
            inside = middle
    return example[name] + inside * multiple


def low(space: Space, example: Mapping[str, int]) -> list[list[dict[str, int]]]:
    """For all symbols together, and for each alone, sizes from the least on."""
    rows = []
    for names in (space.symbols, *((name,) for name in space.symbols if len(space.symbols) > 1)):
        row = []
        for size in _LOWEST:
            sizes = dict(example)
            for name in names:
                (least, _), (multiple, rest) = space.bounds(name), space.multiple(name)
                first = least + (rest - least) % multiple
                sizes[name] = first + (size - 1) * multiple
            fixed = _completed(space, sizes)
            row.append(fixed if fixed is not None and space.admits(fixed) else None)
        rows.append(_distinct(row))
    return rows


def beside(space: Space, example: Mapping[str, int], numbers: Iterable[int]) -> list[dict[str, int]]:
    """For each symbol the sizes below, at and above numbers, and the multiples next to them."""
    candidates = []
    for number in numbers:
        for name in space.symbols:
            multiple, rest = space.multiple(name)
            for near in (number - 1, number, number + 1):
                size = near + (rest - near) % multiple
                candidates += [_with(space, example, name, each) for each in {size, size - multiple}]
    return _distinct(candidates)


def _with(space: Space, example: Mapping[str, int], name: str, size: int) -> dict[str, int] | None:
    return _within(space, {**example, name: size})


def _within(space: Space, start: Mapping[str, int]) -> dict[str, int] | None:
    sizes = _completed(space, dict(start))
    return sizes if sizes is not None and space.admits(sizes) else None


def _distinct(candidates: Iterable[dict[str, int] | None]) -> list[dict[str, int]]:
    return list({tuple(sizes.values()): sizes for sizes in candidates if sizes is not None}.values())
