"""The part of a program that is made of matrices: products, sums and transpositions, each result named once.

An array of more axes is taken for the matrix whose rows are all but its last axis, a vector for a column. Whatever else
computes a matrix is a leaf.
"""

import math
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cached_property

from pcp.ir import DType, Program, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ops.linear.dot_axes import DotAxes

Shape = tuple[int, int]
Place = tuple[int, int]
"""A value of the entry block: the index of its operation, -1 for arguments, and which result or argument it is."""


@dataclass(frozen=True, slots=True)
class Term:
    """A matrix.

    Arguments:
        op: `Leaf`, `Dot`, `Add` or `T`.
        children: places of its operands among the terms.
        shape: rows and columns.
        dtype: of its elements.
        leaf: of a leaf, the value.
    """

    op: str
    children: tuple[int, ...]
    shape: Shape
    dtype: DType
    leaf: Place = (-1, -1)


@dataclass(frozen=True)
class Matrices:
    """What is known of the matrices of a program, or of a part of it.

    Arguments:
        terms: operands before what takes them; equal ones once.
        roots: values that something else takes, with the term that each is.
    """

    terms: tuple[Term, ...]
    roots: tuple[tuple[Place, int], ...]

    @property
    def products(self) -> int:
        """How many products there are."""
        return sum(term.op == "Dot" for term in self.terms)

    @cached_property
    def parts(self) -> tuple["Matrices", ...]:
        """The parts that have nothing to do with one another and may be computed otherwise, in order."""
        parts = (self._part(members) for members in self._connected())
        return tuple(part for part in parts if part.roots and part._has_others)

    @cached_property
    def kind(self) -> tuple[object, ...]:
        """Equal for parts that compute the same of other leaves."""
        terms = tuple((term.op, term.children, term.shape, term.dtype) for term in self.terms)
        return terms, tuple(term for _, term in self.roots)

    def _connected(self) -> Iterator[list[int]]:
        """Terms but leaves, in groups: those that take one another, and products that share an operand."""
        group = list(range(len(self.terms)))

        def of(term: int) -> int:
            while group[term] != term:
                group[term] = group[group[term]]
                term = group[term]
            return term

        sharing: dict[tuple[int, int], int] = {}
        for place, term in enumerate(self.terms):
            for side, child in enumerate(term.children):
                if self.terms[child].op != "Leaf":
                    group[of(place)] = of(child)
                if term.op == "Dot":
                    group[of(place)] = of(sharing.setdefault((side, child), place))
        members = defaultdict[int, list[int]](list)
        for place, term in enumerate(self.terms):
            if term.op != "Leaf":
                members[of(place)].append(place)
        yield from members.values()

    def _part(self, members: list[int]) -> "Matrices":
        needed = sorted({*members, *(child for place in members for child in self.terms[place].children)})
        places = {place: number for number, place in enumerate(needed)}
        terms = (self.terms[place] for place in needed)
        return Matrices(
            tuple(replace(term, children=tuple(places[child] for child in term.children)) for term in terms),
            tuple((value, places[term]) for value, term in self.roots if term in places),
        )

    @property
    def _has_others(self) -> bool:
        """Whether a product takes what another is in, or shares an operand with another."""
        inside: list[bool] = []
        operands = set[tuple[int, int]]()
        for term in self.terms:
            below = any(inside[child] for child in term.children)
            if term.op == "Dot" and (below or not operands.isdisjoint(enumerate(term.children))):
                return True
            operands |= set(enumerate(term.children)) if term.op == "Dot" else set()
            inside.append(below or term.op == "Dot")
        return False


class _Reading:
    """The terms of one block."""

    def __init__(self, block: ir.Block) -> None:
        self.places: dict[Value, Place] = {value: (-1, i) for i, value in enumerate(block.arguments)}
        self.known: dict[Value, int] = {}
        self.terms: dict[Term, int] = {}
        self.entered: list[Term] = []
        self.roots: dict[Place, int] = {}
        for index, view in enumerate(block.operations):
            op = view.operation
            self.places |= {value: (index, i) for i, value in enumerate(op.results)}
            number = self.read(op)
            if number is not None:
                self.known[op.results[0]] = number
                continue
            for value in _taken(op):
                if value in self.known:
                    self.roots[self.places[value]] = self.known[value]

    def read(self, op: ir.Operation) -> int | None:
        """The term that an operation computes; None where it computes none that is understood."""
        if len(op.results) != 1 or op.name not in _READ:
            return None
        result = spec_if_tensor(op.results[0].type)
        if result is None or not result.dtype.is_float or not result.shape or not result.size:
            return None
        if op.name == "stablehlo.add":
            return self.term("Add", [self.matrix(value) for value in op.operands], result)
        if op.name == "stablehlo.transpose":
            order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
            return self.term("T", [self.matrix(op.operands[0])], result) if order == [1, 0] else None
        of = [spec_if_tensor(value.type) for value in op.operands]
        precision = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
        if "algorithm" in op.attributes or "HIGH" in precision or any(each is None for each in of):
            return None
        dots = DotAxes.of(op)
        axes, shapes = dots.contract, [each.shape for each in of if each is not None]
        ranks = [len(shape) for shape in shapes]
        if (
            dots.batch != ((), ())
            or {each.dtype for each in of if each} != {result.dtype}
            or len(axes[0]) != 1
            or ranks[1] > 2
            or (ranks[0] > 2 and (axes[0][0] != ranks[0] - 1 or ranks[1] < 2))
        ):
            return None
        x, y = (self.matrix(value) for value in op.operands)
        if axes[0][0] == 0:  # a column, or the rows of a matrix
            x = self.transposed(x)
        if axes[1][0] == 1:
            y = self.transposed(y)
        if ranks[0] > 1:
            return self.term("Dot", [x, y], result)
        row = self.enter(Term("Dot", (x, y), (1, result.size), result.dtype))
        return self.transposed(row)

    def matrix(self, value: Value) -> int:
        """The term that a value is."""
        if value in self.known:
            return self.known[value]
        spec = spec_if_tensor(value.type)
        assert spec is not None
        return self.enter(Term("Leaf", (), matrix_shape(spec), spec.dtype, self.places[value]))

    def transposed(self, term: int) -> int:
        """The transposition of a term."""
        of = self.entered[term]
        return self.enter(Term("T", (term,), (of.shape[1], of.shape[0]), of.dtype))

    def term(self, op: str, children: list[int], result: TensorSpec) -> int:
        """A term, entered."""
        return self.enter(Term(op, tuple(children), matrix_shape(result), result.dtype))

    def enter(self, term: Term) -> int:
        """The place of a term, of equal ones that of the first."""
        place = self.terms.setdefault(term, len(self.terms))
        if place == len(self.entered):
            self.entered.append(term)
        return place


_READ = ("stablehlo.dot_general", "stablehlo.add", "stablehlo.transpose")


def _taken(op: ir.Operation) -> list[Value]:
    """What an operation takes, those that its regions take from outside among them."""
    return [*op.operands, *values_from_outside(op)]


def matrix_shape(spec: TensorSpec) -> Shape:
    """Rows and columns of the matrix that an array is taken for."""
    return (math.prod(spec.shape[:-1]), spec.shape[-1]) if len(spec.shape) > 1 else (spec.shape[0], 1)


def matrices_of(program: Program) -> Matrices:
    """The matrices of a program."""
    module = program.module()
    inline_calls(module)
    return matrices_in(entry_block(module))


def matrices_in(block: ir.Block) -> Matrices:
    """The matrices of a block into which calls are inlined."""
    reading = _Reading(block)
    return Matrices(tuple(reading.entered), tuple(reading.roots.items()))
