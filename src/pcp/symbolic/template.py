"""A program with expressions in the place of its sizes: found in the text of the program at several sizes.

A Program is text of MLIR here. Where texts at several sizes differ in nothing but numbers, each of these numbers is an
expression of the sizes, and the text for any other sizes follows. Every expression has the values of all samples; that it is
the right one at other sizes is what `checking` compares.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import ml_dtypes
import numpy as np

from pcp.errors import PCPError
from pcp.symbolic.expressions import Expression, InvalidSize, listed
from pcp.symbolic.fitting import Hints, Samples, fitted, fitted_float, float_of


class BuiltDifferently(PCPError):
    """A program whose form depends on the sizes in a way that no expression of them describes."""


TOKENS = re.compile(
    r'(?P<string>"(?:[^"\\]|\\.)*")'
    r"|(?P<hex>(?<=dense<)0x[0-9A-F]+)"
    r"|(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?)"
    r"|(?P<int>\d+)"
)
_INTEGERS = re.compile(r"(?<![\w.%#@])\d{1,13}(?![\d.])")
_MADE_NAME = re.compile(r"@([\w.$]+)\.[0-9a-f]{16}\b")
FLOAT_TYPE = re.compile(r">+ : tensor<(?:\d+x)*(bf16|f16|f32|f64|complex)")
DTYPES = {
    "bf16": np.dtype(ml_dtypes.bfloat16),
    "f16": np.dtype(np.float16),
    "f32": np.dtype(np.float32),
    "f64": np.dtype(np.float64),
}


@dataclass(frozen=True, slots=True)
class Hole:
    """A number in the text: an expression of the sizes, and for a floating-point constant how it becomes one."""

    expression: Expression
    form: str = ""

    def __str__(self) -> str:
        return f"{self.form}({self.expression})" if self.form not in ("", "x") else str(self.expression)

    def text(self, sizes: Mapping[str, int]) -> str:
        value = self.expression.value(sizes)
        if self.form:
            return f"{float_of(self.form, value):.17e}"
        if value < 0:
            raise InvalidSize(
                f"the size {self.expression} is {value} for {listed(sizes)}; expected 0 or more: give larger sizes"
            )
        return str(value)


@dataclass(frozen=True, slots=True)
class Template:
    """Text between numbers, and the numbers: one more of the first."""

    pieces: tuple[str, ...]
    holes: tuple[Hole, ...]

    @property
    def numbers(self) -> tuple[int, ...]:
        """Integers that are the same at all sizes, those that come most seldom first."""
        counts: dict[int, int] = {}
        for piece in self.pieces:
            for line in piece.split("\n"):
                if not line.startswith("#loc"):
                    for digits in _INTEGERS.findall(line):
                        counts[int(digits)] = counts.get(int(digits), 0) + 1
        return tuple(sorted((n for n in counts if 3 < n < 2**40), key=lambda n: counts[n]))

    def text(self, sizes: Mapping[str, int]) -> str:
        """The text for these sizes.

        Raises:
            InvalidSize: a size would be negative, or be divided by 0.
        """
        known = {hole: hole.text(sizes) for hole in set(self.holes)}
        texts = [self.pieces[0]]
        for hole, piece in zip(self.holes, self.pieces[1:], strict=True):
            texts += (known[hole], piece)
        return "".join(texts)


def unified(texts: Sequence[str], samples: Samples, hints: Hints = ()) -> Template:
    """The template of which these are the texts at these sizes.

    Arguments:
        hints: quotients and remainders that are in it.

    Raises:
        BuiltDifferently: they differ in more than numbers, or in a number that is no expression of the sizes.
    """
    lines = [renamed(text).split("\n") for text in texts]
    _check_alike([len(each) for each in lines], samples)
    pieces: list[str] = []
    holes: list[Hole] = []
    known: dict[tuple[str, ...], Hole] = {}
    plain = ""
    for number, row in enumerate(zip(*lines, strict=True)):
        plain += "\n" if number else ""
        if row.count(row[0]) == len(row):
            plain += row[0]
            continue
        for token in _line(row, samples, hints, known):
            if isinstance(token, Hole):
                pieces.append(plain)
                holes.append(token)
                plain = ""
            else:
                plain += token
    return Template((*pieces, plain), tuple(holes))


def renamed(text: str) -> str:
    """The text, in which functions that are named by a digest of what they hold, sizes among it, are named by their order."""
    names: dict[str, str] = {}
    return _MADE_NAME.sub(lambda m: names.setdefault(m[0], f"@{m[1]}.s{len(names)}"), text)


def _check_alike(counts: Sequence[int], samples: Samples) -> None:
    if len(set(counts)) > 1:
        other = next(i for i, count in enumerate(counts) if count != counts[0])
        raise BuiltDifferently(
            f"the program has {counts[0]} lines for {listed(samples[0])} and {counts[other]} for {listed(samples[other])}; "
            "expected as many operations for all sizes: avoid Python loops and choices by size, or constrain the sizes"
        )


def _line(
    row: Sequence[str], samples: Samples, hints: Hints, known: dict[tuple[str, ...], Hole]
) -> list[str | Hole]:
    matches = [list(TOKENS.finditer(line)) for line in row]
    if len({len(each) for each in matches}) > 1:
        raise _different(row, samples)
    parts: list[str | Hole] = []
    ends = [0] * len(row)
    for tokens in zip(*matches, strict=True):
        between = {line[end : token.start()] for line, end, token in zip(row, ends, tokens, strict=True)}
        if len(between) > 1:
            raise _different(row, samples)
        parts.append(between.pop())
        ends = [token.end() for token in tokens]
        values = tuple(token.group() for token in tokens)
        if values.count(values[0]) == len(values):
            parts.append(values[0])
            continue
        kinds = {token.lastgroup for token in tokens}
        dtype = FLOAT_TYPE.match(row[0], ends[0]) if kinds <= {"float", "hex"} else None
        key = (*values, dtype[1]) if dtype else values
        if key not in known:
            known[key] = _hole(values, kinds, dtype, row, samples, hints)
        parts.append(known[key])
    tails = {line[end:] for line, end in zip(row, ends, strict=True)}
    if len(tails) > 1:
        raise _different(row, samples)
    return [*parts, tails.pop()]


def _hole(
    values: tuple[str, ...],
    kinds: set[str | None],
    dtype: re.Match[str] | None,
    row: Sequence[str],
    samples: Samples,
    hints: Hints,
) -> Hole:
    if kinds == {"int"}:
        expression = fitted([int(value) for value in values], samples, hints)
        if expression is not None:
            return Hole(expression)
    elif kinds == {"float"} and dtype is not None and dtype[1] in DTYPES:
        fit = fitted_float([float(value) for value in values], samples, DTYPES[dtype[1]], hints)
        if fit is not None:
            return Hole(fit[1], fit[0])
    if "string" in kinds:
        raise _different(row, samples)
    shown = "; ".join(f"{value} for {listed(sizes)}" for value, sizes in zip(values, samples, strict=True))
    raise BuiltDifferently(
        f"a number of the program is no expression of the sizes that is known ({shown}), in '{_short(row[0])}'; "
        "expected sums, products and quotients of sizes: constrain the sizes, as by 'length % 8 == 0'"
    )


def _different(row: Sequence[str], samples: Samples) -> BuiltDifferently:
    forms = [TOKENS.sub(lambda token: token[0] if token["string"] else "#", line) for line in row]
    other = next(i for i in range(1, len(row)) if forms[i] != forms[0])
    differs = next((i for i, (a, b) in enumerate(zip(row[0], row[other], strict=False)) if a != b), 0)
    advice = (
        "an array of a symbolic size cannot be a constant of NumPy: make it by operations, as pcp.iota"
        if "dense<" in row[0] and ("dense<[" in row[0] or 'dense<"' in row[0])
        else "avoid Python loops and choices by size, or constrain the sizes"
    )
    return BuiltDifferently(
        f"the program is built differently for {listed(samples[0])}: '{_short(row[0], differs)}', and for "
        f"{listed(samples[other])}: '{_short(row[other], differs)}'; expected the same operations for all sizes: {advice}"
    )


def _short(line: str, place: int = 0) -> str:
    """The line without its location; of a long one what is around a place."""
    line = re.sub(r" loc\(.*\)$", "", line)
    start = max(0, place - 80) if len(line) > 160 else 0
    shown = line[start : start + 160].strip()
    return f"{'...' if start else ''}{shown}{'...' if start + 160 < len(line) else ''}"
