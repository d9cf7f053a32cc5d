"""The part of a program that is made of matrices: products, sums and transpositions, each result named once.

An array of more axes is taken for the matrix whose rows are all but its last axis. Whatever else computes a matrix is a leaf.
"""

import math
from dataclasses import dataclass

from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_if_tensor
from pcp.ops.linear.dot_axes import DotAxes

Place = tuple[int, int]
"""A value of the entry block: the index of its operation, -1 for arguments, and which result or argument it is."""


@dataclass(frozen=True, slots=True)
class Term:
    """A matrix.

    Arguments:
        op: `Leaf`, `Dot`, `Add` or `T`.
        children: places of its operands among the terms.
        shape: rows and columns.
        leaf: of a leaf, the value.
    """

    op: str
    children: tuple[int, ...]
    shape: tuple[int, int]
    leaf: Place = (-1, -1)


@dataclass(frozen=True, slots=True)
class Matrices:
    """What is known of the matrices of a program.

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


class _Reading:
    """The terms of one block."""

    def __init__(self, block: ir.Block) -> None:
        self.places: dict[Value, Place] = {value: (-1, i) for i, value in enumerate(block.arguments)}
        self.known: dict[Value, int] = {}
        self.terms: dict[Term, int] = {}
        self.roots: dict[Place, int] = {}
        for index, view in enumerate(block.operations):
            op = view.operation
            self.places |= {value: (index, i) for i, value in enumerate(op.results)}
            found = self.read(op)
            if found is not None:
                self.known[op.results[0]] = found
                continue
            for value in _taken(op):
                if value in self.known:
                    self.roots[self.places[value]] = self.known[value]

    def read(self, op: ir.Operation) -> int | None:
        """The term that an operation computes; None where it computes none that is understood."""
        if len(op.results) != 1 or op.name not in _READ:
            return None
        result = spec_if_tensor(op.results[0].type)
        if result is None or not result.dtype.is_float or len(result.shape) < 2 or not result.size:
            return None
        shape = (math.prod(result.shape[:-1]), result.shape[-1])
        if op.name == "stablehlo.add":
            return self.term("Add", [self.matrix(value) for value in op.operands], shape)
        if op.name == "stablehlo.transpose":
            order = list(ir.DenseI64ArrayAttr(op.attributes["permutation"]))
            return self.term("T", [self.matrix(op.operands[0])], shape) if order == [1, 0] else None
        of = [spec_if_tensor(value.type) for value in op.operands]
        precision = str(op.attributes["precision_config"]) if "precision_config" in op.attributes else ""
        if "algorithm" in op.attributes or "HIGH" in precision or any(each is None for each in of):
            return None
        dots = DotAxes.of(op)
        axes, shapes = dots.contract, [each.shape for each in of if each is not None]
        if (
            dots.batch != ((), ())
            or {each.dtype for each in of if each} != {result.dtype}
            or len(shapes[1]) != 2
        ):
            return None
        if (
            len(axes[0]) != 1
            or len(shapes[0]) < 2
            or (len(shapes[0]) > 2 and axes[0][0] != len(shapes[0]) - 1)
        ):
            return None
        x, y = (self.matrix(value) for value in op.operands)
        if axes[0][0] == 0 and len(shapes[0]) == 2:
            x = self.transposed(x)
        if axes[1][0] == 1:
            y = self.transposed(y)
        return self.term("Dot", [x, y], shape)

    def matrix(self, value: Value) -> int:
        """The term that a value is."""
        if value in self.known:
            return self.known[value]
        spec = spec_if_tensor(value.type)
        assert spec is not None
        shape = (math.prod(spec.shape[:-1]), spec.shape[-1])
        return self.enter(Term("Leaf", (), shape, self.places[value]))

    def transposed(self, term: int) -> int:
        """The transposition of a term."""
        rows, columns = list(self.terms)[term].shape
        return self.term("T", [term], (columns, rows))

    def term(self, op: str, children: list[int], shape: tuple[int, int]) -> int:
        """A term, entered."""
        return self.enter(Term(op, tuple(children), shape))

    def enter(self, term: Term) -> int:
        """The place of a term, of equal ones that of the first."""
        return self.terms.setdefault(term, len(self.terms))


_READ = ("stablehlo.dot_general", "stablehlo.add", "stablehlo.transpose")


def _taken(op: ir.Operation) -> list[Value]:
    """What an operation takes, those that its regions take from outside among them."""
    return [*op.operands, *values_from_outside(op)]


def matrices_of(program: Program) -> Matrices:
    """The matrices of a program."""
    module = program.module()
    inline_calls(module)
    reading = _Reading(entry_block(module))
    return Matrices(tuple(reading.terms), tuple(reading.roots.items()))
