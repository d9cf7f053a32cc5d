"""What was chosen from all that is equal, as a value: the steps by which parts of a program are computed, written down.

A form is followed without whatever found it. That its steps compute what the part computes is looked at each time: both are
applied to a random vector with random matrices in the place of leaves, modulo a prime, where unequal ones differ almost surely.

Source: Freivalds, "Probabilistic machines can use less running time", IFIP 1977; Schwartz, "Fast probabilistic algorithms for
verification of polynomial identities", JACM 1980.
"""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.rewrite.equality.extraction import Choice, Operation
from pcp.rewrite.equality.matrices import Matrices, Shape
from pcp.rewrite.equality.saturation import Graph

_PRIME = 1_048_573
_RANK = 4
_TRIALS = 2
_MOST_APPLIED, _MOST_ELEMENTS = 20_000, 1 << 25
_TOO_LONG = "to see whether the form computes what the program does takes too long"
JOINS, SLICES = ("Beside", "Below"), ("Columns", "Rows")


class FormMismatch(PCPError):
    """A form that does not fit a program, or computes something else."""


@dataclass(frozen=True, slots=True, order=True)
class Step:
    """One operation of a form.

    Arguments:
        op: of the language of terms.
        operands: places of steps before it; of a join two or more.
        numbers: of a leaf, its term in the part; of a slice, where it begins and ends.
    """

    op: str
    operands: tuple[int, ...] = ()
    numbers: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, order=True)
class PartForm:
    """How parts of a program that are alike are computed.

    Arguments:
        parts: their numbers.
        steps: operands before what takes them.
        roots: the step that each root of a part is.
    """

    parts: tuple[int, ...]
    steps: tuple[Step, ...]
    roots: tuple[int, ...]


@dataclass(frozen=True, slots=True, order=True)
class Form:
    """An equal program.

    Arguments:
        parts: the parts that are computed otherwise.
        makes: the digest of the program that this makes; empty where that is not known yet.
    """

    parts: tuple[PartForm, ...]
    makes: str = ""

    def __str__(self) -> str:
        count = sum(len(each.parts) for each in self.parts)
        names = [step.op for each in self.parts for step in each.steps if step.op != "Leaf"]
        counted = ", ".join(f"{names.count(name)} {name}" for name in dict.fromkeys(names))
        return f"{count} part{'s' * (count > 1)} by {counted}"


def form_of(graph: Graph, choice: Choice, parts: Sequence[int]) -> PartForm:
    """A choice as steps: matrices that are joined one after another are joined at once.

    Arguments:
        parts: numbers of the parts that it is taken for.
    """

    def operands(name: str) -> list[str]:
        node = choice.nodes[name]
        if node.op not in JOINS:
            return list(node.children)
        return [
            inner
            for child in node.children
            for inner in (operands(child) if choice.nodes[child].op == node.op else [child])
        ]

    needed, waiting = set[str](), list(graph.roots)
    while waiting:
        name = waiting.pop()
        if name not in needed:
            needed.add(name)
            waiting += operands(name)
    places: dict[str, int] = {}
    steps: list[Step] = []
    for name, node in choice.nodes.items():
        if name in needed:
            places[name] = len(steps)
            steps.append(Step(node.op, tuple(places[each] for each in operands(name)), node.numbers))
    return PartForm(tuple(parts), tuple(steps), tuple(places[root] for root in graph.roots))


def shapes_of(form: PartForm, part: Matrices) -> list[Shape]:
    """The shape of each step.

    Raises:
        FormMismatch: a step does not fit its operands, or a root has another shape.
    """
    shapes: list[Shape] = []
    for place, step in enumerate(form.steps):
        if any(not 0 <= operand < place for operand in step.operands):
            raise FormMismatch(f"step {place} takes steps {step.operands}; expected steps before it")
        shape = _shape(step, [shapes[operand] for operand in step.operands], part)
        if shape is None:
            operands_shapes = [shapes[operand] for operand in step.operands]
            raise FormMismatch(
                f"step {place}, {step.op}{step.numbers or ''}, does not fit operands of shapes {operands_shapes}"
            )
        shapes.append(shape)
    wanted = [part.terms[root].shape for _, root in part.roots]
    if any(not 0 <= root < len(shapes) for root in form.roots) or [shapes[r] for r in form.roots] != wanted:
        raise FormMismatch(f"the form has results {form.roots}; expected steps of shapes {wanted}")
    return shapes


def steps_as_operations(form: PartForm, part: Matrices) -> list[Operation]:
    """What is computed by the steps, but leaves; a join of several is one operation.

    Raises:
        FormMismatch: a step does not fit its operands.
    """
    shapes = shapes_of(form, part)
    return [
        Operation(step.op, tuple(shapes[operand] for operand in step.operands), shape)
        for step, shape in zip(form.steps, shapes, strict=True)
        if step.op != "Leaf"
    ]


def is_written(form: PartForm, part: Matrices) -> bool:
    """Whether the steps are those of the part as it is written."""
    numbers: dict[Step, int] = {}

    def numbered(steps: Sequence[Step]) -> list[int]:
        """Of each step a number, the same for equal ones."""
        numbers_of_steps: list[int] = []
        for step in steps:
            alike = replace(step, operands=tuple(numbers_of_steps[operand] for operand in step.operands))
            numbers_of_steps.append(numbers.setdefault(alike, len(numbers)))
        return numbers_of_steps

    mine, written = numbered(form.steps), numbered(_as_steps(part))
    return [mine[root] for root in form.roots] == [written[root] for _, root in part.roots]


def check_equal(form: PartForm, part: Matrices) -> None:
    """Look whether the steps compute what a part computes, on random matrices.

    Raises:
        FormMismatch: they do not, or do not fit; or to find out takes too long.
    """
    shapes = shapes_of(form, part)
    for trial in range(_TRIALS):
        rng = np.random.default_rng(trial)
        leaves = _Leaves(part, rng)
        mine = _Applied(form.steps, shapes, leaves)
        written = _Applied(_as_steps(part), [term.shape for term in part.terms], leaves)
        for (_, root), place in zip(part.roots, form.roots, strict=True):
            vector = rng.integers(0, _PRIME, part.terms[root].shape[1])
            try:
                is_equal = np.array_equal(written(root, vector, False), mine(place, vector, False))
            except RecursionError:
                raise FormMismatch(_TOO_LONG) from None
            if not is_equal:
                raise FormMismatch(f"step {place} of the form does not compute what the program does")


Vector = np.ndarray[Any, Any]


def _as_steps(part: Matrices) -> list[Step]:
    return [
        Step("Leaf", (), (place,)) if term.op == "Leaf" else Step(term.op, term.children)
        for place, term in enumerate(part.terms)
    ]


class _Leaves:
    """A random matrix of low rank for every leaf, as two thin factors."""

    def __init__(self, part: Matrices, rng: np.random.Generator) -> None:
        self.part, self.rng = part, rng
        self.made: dict[int, tuple[Vector, Vector]] = {}

    def __getitem__(self, place: int) -> tuple[Vector, Vector]:
        if place not in self.made:
            rows, columns = self.part.terms[place].shape
            left = self.rng.integers(0, _PRIME, (rows, _RANK))
            self.made[place] = left, self.rng.integers(0, _PRIME, (columns, _RANK))
        return self.made[place]


class _Applied:
    """Steps applied to vectors: from the right, or, transposed, from the left."""

    def __init__(self, steps: Sequence[Step], shapes: Sequence[Shape], leaves: _Leaves) -> None:
        self.steps, self.shapes, self.leaves = steps, shapes, leaves
        self.known: dict[tuple[int, bool, bytes], Vector] = {}
        self.elements = 0

    def __call__(self, place: int, vector: Vector, is_left: bool) -> Vector:
        key = (place, is_left, hashlib.blake2b(vector.tobytes(), digest_size=16).digest())
        if key not in self.known:
            applied = self._apply(self.steps[place], vector, is_left)
            self.elements += applied.size
            if len(self.known) >= _MOST_APPLIED or self.elements > _MOST_ELEMENTS:
                raise FormMismatch(_TOO_LONG)
            self.known[key] = applied
        return self.known[key]

    def _apply(self, step: Step, vector: Vector, is_left: bool) -> Vector:
        of = step.operands
        match step.op:
            case "Leaf":
                left, right = self.leaves[step.numbers[0]]
                first, second = (left, right) if is_left else (right, left)
                leaf: Vector = (second @ (first.T @ vector % _PRIME)) % _PRIME
                return leaf
            case "Dot":
                for operand in of if is_left else reversed(of):
                    vector = self(operand, vector, is_left)
                return vector
            case "T":
                return self(of[0], vector, not is_left)
            case "Add":
                pieces, is_joined = [vector, vector], False
            case "Beside" | "Below":
                ends = np.cumsum([self.shapes[operand][step.op == "Beside"] for operand in of])
                is_joined = is_left == (step.op == "Beside")
                pieces = [vector] * len(of) if is_joined else np.split(vector, ends[:-1])
            case _:
                begin, end = step.numbers
                if is_left == (step.op == "Columns"):
                    return self(of[0], vector, is_left)[begin:end]
                spread = np.zeros(self.shapes[of[0]][step.op == "Columns"], np.int64)
                spread[begin:end] = vector
                return self(of[0], spread, is_left)
        applied = [self(operand, piece, is_left) for operand, piece in zip(of, pieces, strict=True)]
        joined: Vector = np.concatenate(applied) if is_joined else np.sum(applied, axis=0) % _PRIME
        return joined


def _shape(step: Step, of: Sequence[Shape], part: Matrices) -> Shape | None:
    """The shape of a step; None where it does not fit."""
    match step.op, len(of), len(step.numbers):
        case "Leaf", 0, 1:
            place = step.numbers[0]
            is_leaf = 0 <= place < len(part.terms) and part.terms[place].op == "Leaf"
            return part.terms[place].shape if is_leaf else None
        case "Dot", 2, 0:
            return (of[0][0], of[1][1]) if of[0][1] == of[1][0] else None
        case "Add", 2, 0:
            return of[0] if of[0] == of[1] else None
        case "T", 1, 0:
            return of[0][1], of[0][0]
        case "Beside" | "Below", count, 0 if count > 1:
            axis = int(step.op == "Beside")
            if len({each[1 - axis] for each in of}) > 1:
                return None
            total, other = sum(each[axis] for each in of), of[0][1 - axis]
            return (other, total) if axis else (total, other)
        case "Columns" | "Rows", 1, 2:
            begin, end = step.numbers
            axis = int(step.op == "Columns")
            if not 0 <= begin < end <= of[0][axis]:
                return None
            return (of[0][0], end - begin) if axis else (end - begin, of[0][1])
    return None
