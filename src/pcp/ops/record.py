"""The record of an operation: all that PCP knows about one operation of StableHLO or CHLO, in one place.

A file of a family declares its operations. From the records are derived: the rules of differentiation and batching, which
values a gradient keeps or makes again, costs, estimates of memory, folding of constants, and the table of derivatives in the
documentation. An operation lacks nothing that its kind needs: `missing_fields` says what it lacks, and a test asks it of all.

To add an elementwise operation, declare it in a file of `pcp.ops.elementwise` and give it a row of tests.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Final

from pcp.ir.bindings import ir
from pcp.ops.batching import BATCHING, BatchingRule
from pcp.ops.derivative import REFUSED, RULES, Cotangent, Expansion, Rule


class Kind(StrEnum):
    """What an operation does with its operands; it decides which fields its record needs."""

    elementwise = "each element of the result comes from the elements at its place"
    broadcasting = "an elementwise operation that first broadcasts its operands"
    movement = "elements go to other places"
    creation = "makes a value from nothing but attributes and shapes"
    reduction = "joins elements by a body, or sorts them"
    product = "multiplies and adds up"
    solver = "solves, factorises or transforms whole matrices"
    control = "runs its regions"
    communication = "speaks to other devices"
    outside = "speaks to what lies outside of the program"
    call = "calls something by its name"
    structure = "bundles, orders or returns values"
    replaced = "is written out as other operations before anything is derived from it"
    unsupported = "is not derived from"


class Cost(StrEnum):
    """What making a result once more costs, in the order in which it grows."""

    free = "nothing: no element is computed, and a compiler that fuses writes none"
    move = "reading and writing: cheaper to do again than to keep"
    arithmetic = "no more than some instructions for each element: cheaper to do again than to keep"
    function = "an elementary function for each element"
    heavy_move = "moves, draws or hands on whole arrays; no arithmetic is counted"
    work = "more than one step for each element of the result"


class Missing:
    """The value of a field that a record does not state."""

    def __repr__(self) -> str:
        return "MISSING"


MISSING: Final = Missing()


@dataclass(frozen=True, slots=True)
class Supplied:
    """A rule that stands with the engine it needs, such as those of loops.

    Arguments:
        by: the module that enters it, by `supply_derivatives` or `supply_batching`.
    """

    by: str


@dataclass(frozen=True, slots=True)
class Refused:
    """No derivative.

    Arguments:
        reason: why, and what to do instead; the error says so.
    """

    reason: str


@dataclass(frozen=True, slots=True)
class Linear:
    """An operation that is a linear map of some operands together, so that its tangent is itself, applied to tangents.

    Arguments:
        operands: which; None means all. The others, indices and predicates, stay as they are.
        if_adding: only if its body adds two elements.
    """

    operands: tuple[int, ...] | None = None
    if_adding: bool = False


Fold = Callable[..., Any]
"""From the arrays of constant operands, and the operation, to the array of the result; None where it must not be folded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """What PCP knows about an operation.

    Arguments:
        name: `stablehlo.add`, `chlo.erf`.
        kind: what it does, which decides what else must be stated.
        cost: what making its results once more costs.
        rounds: whether its float32 results are rounded, so that their last bit may be another in another program.
        derivative: its rule as `pcp.ops.derivative` describes it; `Refused`; or `Supplied`.
        tangents: the tangents of its results from its operation and those of its operands, `(primal, *tangents)`, where the
            transpose of its derivative would do more than it must. None is zero.
        batching: its rule as `pcp.ops.batching` describes it; None to run it sample by sample; or `Supplied`.
        linear: in which operands it is a linear map.
        is_bilinear: whether it is linear in each of its two operands, the other being fixed.
        fuses: whether a compiler computes it where it is read and writes no result; elementwise and free ones it does anyway.
        fuses_operands: whether a compiler computes its operands where it reads them; those that are fused do so anyway.
        has_effect: whether it may not run twice: it draws anew, speaks to others, or calls what is not known.
        scalars: operands that may be scalars for tensors of any shape.
        flops: its floating-point operations, where they are not one for each element of its results.
        fold: its result for constant operands, where IEEE 754 defines that to the last bit.
        functions: the functions of `pcp.ops` that are this operation alone; each says in its docstring what it computes.
        types: the kinds of element types that these functions take.
    """

    name: str
    kind: Kind
    cost: Cost | Missing = MISSING
    rounds: bool | Missing = MISSING
    derivative: Rule | Refused | Supplied | Missing = MISSING
    tangents: Callable[..., Sequence[Cotangent]] | None = None
    batching: BatchingRule | Supplied | Missing | None = MISSING
    linear: Linear | None = None
    is_bilinear: bool = False
    fuses: bool = False
    fuses_operands: bool = False
    has_effect: bool = False
    scalars: tuple[int, ...] = ()
    flops: Callable[[ir.Operation], int] | None = None
    fold: Fold | None = None
    functions: tuple[str, ...] = ()
    types: tuple[str, ...] = ()

    @property
    def is_elementwise(self) -> bool:
        """Whether operands and results have one shape, and places do not mix."""
        return self.kind is Kind.elementwise

    @property
    def is_cheap(self) -> bool:
        """Whether its results cost less to make again than to write and read."""
        return self.cost in (Cost.free, Cost.move, Cost.arithmetic)

    @property
    def is_fused(self) -> bool:
        """Whether a compiler writes no result if one such operation alone reads it."""
        return self.fuses or self.is_elementwise or self.cost is Cost.free

    @property
    def reads_fused(self) -> bool:
        """Whether what it alone reads need not be written."""
        return self.fuses_operands or self.is_fused


RECORDS: dict[str, Record] = {}
"""Every record by the full name of its operation."""

_ALWAYS = ("cost", "rounds", "derivative", "batching")
NEEDED: dict[Kind, tuple[str, ...]] = {
    **dict.fromkeys(Kind, _ALWAYS),
    Kind.replaced: (),
    Kind.call: ("cost",),
    Kind.unsupported: ("derivative",),
}
"""The fields that a record of each kind must state, or its kind for it."""

OF_KIND: dict[Kind, Mapping[str, Any]] = {
    Kind.broadcasting: {"cost": Cost.work, "rounds": False, "batching": None},
    Kind.movement: {"rounds": False},
    Kind.creation: {"rounds": False, "derivative": None, "batching": None},
    Kind.reduction: {"cost": Cost.work, "rounds": False},
    Kind.product: {"cost": Cost.work, "rounds": True},
    Kind.solver: {"cost": Cost.work, "rounds": False},
    Kind.control: {"cost": Cost.work, "rounds": False},
    Kind.communication: {"cost": Cost.heavy_move, "rounds": False, "has_effect": True},
    Kind.outside: {"cost": Cost.heavy_move, "rounds": False, "has_effect": True, "batching": None},
    Kind.structure: {"cost": Cost.free, "rounds": False},
}
"""What holds for the operations of a kind, unless a record says otherwise."""


def declare(name: str, kind: Kind, **fields: Any) -> Record:
    """Enter the record of an operation, and its rules in those in force.

    Arguments:
        name: a name without a dialect is one of StableHLO.
        fields: as `Record` has them; those of `OF_KIND` need not be repeated.
    """
    whole = full_name(name)
    record = RECORDS[whole] = Record(name=whole, kind=kind, **{**OF_KIND.get(kind, {}), **fields})
    _enter(record)
    return record


def supply_derivatives(rows: Mapping[str, Rule]) -> None:
    """Enter rules that stand with their engine, or of calls, which have no record."""
    for name, rule in rows.items():
        whole = full_name(name)
        if whole in RECORDS:
            RECORDS[whole] = replace(RECORDS[whole], derivative=rule)
        RULES[whole] = rule


def supply_batching(rows: Mapping[str, BatchingRule]) -> None:
    """Enter batching rules that stand with their engine."""
    for name, rule in rows.items():
        whole = full_name(name)
        RECORDS[whole] = replace(RECORDS[whole], batching=rule)
        BATCHING[whole] = rule


def missing_fields(record: Record) -> Sequence[str]:
    """What a record does not state although its kind needs it, or what nobody has supplied."""
    return [name for name in NEEDED[record.kind] if isinstance(getattr(record, name), Missing | Supplied)]


def kind_of(name: str) -> Kind | None:
    """What an operation does, by its full name; None of one without a record."""
    record = RECORDS.get(name)
    return None if record is None else record.kind


def is_bilinear(name: str) -> bool:
    """Whether an operation is linear in each of its two operands, as a product is."""
    record = RECORDS.get(name)
    return record is not None and record.is_bilinear


def is_cheap(name: str) -> bool:
    """Whether the results of an operation cost less to make again than to write and read."""
    record = RECORDS.get(name)
    return record is not None and record.is_cheap


def is_shipped(name: str) -> bool:
    """Whether the derivative of an operation is that of its record; one that a user put in its place decides alone."""
    record = RECORDS.get(name)
    return record is None or name not in RULES or RULES[name] is record.derivative


def full_name(name: str) -> str:
    """The name with its dialect."""
    return name if "." in name else f"stablehlo.{name}"


def _enter(record: Record) -> None:
    rule = record.derivative
    if isinstance(rule, Refused):
        REFUSED[record.name] = rule.reason
    if rule is None or isinstance(rule, tuple | Expansion) or callable(rule):
        RULES[record.name] = rule
    if callable(record.batching):
        BATCHING[record.name] = record.batching
