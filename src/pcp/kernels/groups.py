"""Groups: several operations of a block that a pattern names, as one site.

Where a kernel is to stand for a group, a composite takes its place: its operands are the inputs of the group, its function is a
copy of what stood there, and an attribute says which operand, or which number, is which input. Operations of the group that
others use as well stay for them.
"""

import functools
import hashlib
import json
import operator
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from pcp.ir import Argument, Builder, DType, Program, TensorSpec
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import (
    COMPOSITE,
    composite_attributes,
    decomposition_of,
    emit_composite,
    private_function,
)
from pcp.ir.toolkit.constants import splat_number
from pcp.ir.toolkit.dataflow import defining_op, operations_between, result_owner, users_of
from pcp.ir.toolkit.editing import clone_operations
from pcp.ir.toolkit.regions import returned_by, values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.kernels.regions import region_program
from pcp.kernels.registry import FAMILIES, Family, family_of
from pcp.ops.movement import full
from pcp.rewrite.outline import SHAPES
from pcp.rewrite.terms import Match, kind_of, matched
from pcp.rewrite.view import View
from pcp.tensor import Tensor, current_builder

_MATCHES = "matches"


@dataclass(frozen=True)
class Group:
    """Operations that are one site.

    Arguments:
        family: of kernels.
        matches: of the family's pattern, in order; several where that joins them.
    """

    family: Family
    matches: tuple[Match, ...]

    @cached_property
    def inputs(self) -> tuple[Value, ...]:
        """What comes in, each once. Numbers that are known are part of the group."""
        every = dict.fromkeys(value for match in self.matches for value in match.inputs.values())
        return tuple(value for value in every if _known_number(value) is None)

    @cached_property
    def results(self) -> tuple[Value, ...]:
        """What goes out."""
        every = tuple(value for match in self.matches for value in match.results)
        assert self.family.pattern is not None
        if not self.family.pattern.drops:
            return every
        own = self._own({result_owner(match.results[-1]) for match in self.matches}, every)
        ends = {match.results[-1] for match in self.matches}
        return tuple(value for value in every if value in ends or result_owner(value) not in own)

    @cached_property
    def last(self) -> ir.Operation:
        """The operation that ends it."""
        return result_owner(self.matches[-1].results[-1])

    @cached_property
    def members(self) -> list[ir.Operation]:
        """What computes it, constants and changes of shape among it, each behind what it depends on."""
        return operations_between(self.inputs, self.results)

    def key(self, keys: Mapping[ir.Operation, str]) -> str:
        """What the site is known by: the digests of the operations whose results go out."""
        ends = [keys[result_owner(value)] for value in self.results]
        return hashlib.sha256(" ".join([self.family.name, *ends]).encode()).hexdigest()

    def takes(self, keys: Mapping[ir.Operation, str]) -> frozenset[str]:
        """Keys of the operations that a kernel makes needless: those that nothing outside of the group uses."""
        own = self._own(set(map(result_owner, self.results)), self.results)
        computing = [op for op in own if _computes(op) and op in keys]
        return frozenset(key for op in computing for key in (keys[op], *_keys_inside(op, keys[op])))

    def hides(self, keys: Mapping[ir.Operation, str]) -> frozenset[str]:
        """Keys of those among them whose results do not go out."""
        return self.takes(keys) - {keys[result_owner(value)] for value in self.results}

    def reads(self, keys: Mapping[ir.Operation, str]) -> frozenset[str]:
        """Keys of the operations that make its inputs."""
        makers = map(defining_op, self.inputs)
        return frozenset(keys[op] for op in makers if op is not None and op in keys)

    def computes_twice(self) -> bool:
        """Whether it has a product that others need as well: it would be computed for them once more."""
        own = self._own(set(map(result_owner, self.results)), self.results)
        return any(op.name == "stablehlo.dot_general" and op not in own for op in self.members)

    def _own(self, ends: set[ir.Operation], results: Iterable[Value]) -> set[ir.Operation]:
        """Operations, and those before them that nothing else uses."""
        own = set(ends)
        for op in reversed(operations_between(self.inputs, results)):
            if all(user in own for user in users_of(op)):
                own.add(op)
        return own

    def emit(self, builder: Builder, inputs: Sequence[Value]) -> ir.Operation:
        """Add the composite that computes it, on other inputs, to a program."""

        def fill(block: ir.Block) -> list[Value]:
            known: dict[Value, Value] = dict(zip(self.inputs, block.arguments, strict=True))
            return clone_operations(self.members, known, block, self.results, decomposition_of)

        pattern = self.family.pattern
        assert pattern is not None
        places = {value: place for place, value in enumerate(self.inputs)}
        matches = [
            [match.form, {n: places.get(value, _known_number(value)) for n, value in match.inputs.items()}]
            for match in self.matches
        ]
        types = [value.type for value in self.inputs]
        symbol = private_function(builder.module.operation, pattern.name, types, fill)
        attributes = {**self.matches[0].attributes, _MATCHES: json.dumps(matches)}
        results = emit_composite(
            builder, pattern.name, inputs, [value.type for value in self.results], symbol, attributes
        )
        return result_owner(results[0])

    def region(self, around: Program, block: ir.Block) -> Program:
        """The group alone, as a Program of its inputs. What the program around it gives up to a result of the group is state
        of this one, too.

        Arguments:
            around: the program that it is in.
            block: of the `main` of that.
        """
        return region_program(
            self.inputs,
            lambda builder, inputs: list(self.emit(builder, inputs).results),
            dict(self._donated(around, block)),
        )

    def _donated(self, around: Program, block: ir.Block) -> Iterator[tuple[int, Argument]]:
        returned, places = returned_by(block), {value: place for place, value in enumerate(self.results)}
        own = {value: place for place, value in enumerate(self.inputs)}
        for value, entry in zip(block.arguments, around.arguments, strict=True):
            place = None if entry.alias is None else places.get(returned[entry.alias])
            if value in own and place is not None:
                yield (
                    own[value],
                    Argument(entry.name, entry.spec, entry.role, place, entry.kept, entry.group),
                )


def _computes(op: ir.Operation) -> bool:
    return op.name not in (*SHAPES, "stablehlo.constant")


def _keys_inside(op: ir.Operation, key: str) -> list[str]:
    """Keys of the operations of a composite that is no site alone: it counts as what it is made of."""
    if op.name != COMPOSITE or family_of(op) is not None:
        return []
    inside = decomposition_of(op).regions[0].blocks[0].operations
    count = sum(_computes(view.operation) for view in inside) - 1  # but for its end
    return [f"{key} {place}" for place in range(1, count)]


def users_between(inputs: Iterable[Value], results: Sequence[Value]) -> list[ir.Operation] | None:
    """The operations that stand before the end of a group and use a result, in order: they go behind its composite.

    Arguments:
        inputs: of the group.
        results: of the group, the last one at its end.

    Returns:
        None where one of them leads back into the group.
    """
    if len(results) == 1:
        return []
    taken_in, own = set(inputs), set(results)
    ends, last = set(map(result_owner, results)), result_owner(results[-1])
    after, users = set(own), list[ir.Operation]()
    has_begun = False
    for view in ir.InsertionPoint(last).block.operations:
        op = view.operation
        if op == last:
            break
        has_begun = has_begun or op in ends
        # Operations of the group that others use stay for them: they are moved like any other.
        if has_begun and op not in ends and not after.isdisjoint([*op.operands, *values_from_outside(op)]):
            users.append(op)
            after.update(op.results)
    return users if taken_in.isdisjoint(after - own) else None


def groups_in(block: ir.Block) -> list[Group]:
    """The groups of every family in a block and in the regions in it, in the order of their ends."""
    ending: dict[str, list[Family]] = {}
    for family in FAMILIES.values():
        for kind in family.pattern.ends if family.pattern is not None else ():
            ending.setdefault(kind, []).append(family)
    by_group: dict[tuple[str, int], list[Match]] = {}
    blocks: list[ir.Block] = []
    for op in walk_block(block):
        families = ending.get(kind_of(op), ())
        view = View.of(op.results[0]) if families and len(op.results) == 1 else None
        for family in families:
            assert family.pattern is not None
            match = matched(family.pattern, op, view)
            if match is None:
                continue
            around = ir.InsertionPoint(op).block
            if around not in blocks:
                blocks.append(around)
            # Matches that are not joined are told apart by how many there were before them.
            number = -blocks.index(around) - 1 if family.pattern.joins else len(by_group)
            by_group.setdefault((family.name, number), []).append(match)
    groups = [Group(FAMILIES[name], tuple(matches)) for (name, _), matches in by_group.items()]
    apart = [
        group
        for group in groups
        if _is_apart(group)
        and not group.computes_twice()
        and users_between(group.inputs, group.results) is not None
    ]
    return _without_circles(apart, block)


def _without_circles(groups: Sequence[Group], block: ir.Block) -> list[Group]:
    """The groups but those that wait for results of others that wait for theirs; of a circle the last one is left out.

    A group of one result is in no circle: nothing that comes into it depends on what goes out. Of the others each has a bit,
    and a value has the bits of those that it depends on.
    """
    several = [group for group in groups if len(group.results) > 1]
    if len(several) < 2:
        return list(groups)
    own: dict[ir.Operation, int] = {}
    for place, group in enumerate(several):
        for value in group.results:
            own[result_owner(value)] = own.get(result_owner(value), 0) | 1 << place
    bits: dict[Value, int] = {}
    for op in walk_block(block):
        taken = (bits.get(value, 0) for value in (*op.operands, *values_from_outside(op)))
        bits |= dict.fromkeys(op.results, functools.reduce(operator.or_, taken, own.get(op, 0)))
    waits: dict[int, int] = {}
    left_out = []
    for place, group in enumerate(several):
        reached, seen = functools.reduce(operator.or_, (bits.get(value, 0) for value in group.inputs), 0), 0
        waits[place] = reached
        while new := reached & ~seen:
            seen |= new
            more = (known for other, known in waits.items() if new >> other & 1)
            reached = functools.reduce(operator.or_, more, reached)
        if seen >> place & 1:
            left_out.append(group)
            del waits[place]
    return [group for group in groups if group not in left_out]


def _is_apart(group: Group) -> bool:
    """Whether no input of a group is one of its results, and all of it is in one block."""
    ends = [result_owner(value) for value in group.results]
    around = ir.InsertionPoint(group.last).block
    inside = set(group.results)
    return all(ir.InsertionPoint(op).block == around for op in ends) and not any(
        value in inside for value in group.inputs
    )


@dataclass(frozen=True, slots=True)
class Part:
    """One match of a group's pattern, as a kernel sees it.

    Arguments:
        form: which form of the pattern it has.
        inputs: by their names, those that the form has.
    """

    form: str
    inputs: Mapping[str, Tensor]


def operands_of(op: ir.Operation) -> list[tuple[str, int]]:
    """The inputs of the composite of a group: their names in the pattern, and which operands they are."""
    return [
        (name, each) for _, inputs in places_of(op) for name, each in inputs.items() if isinstance(each, int)
    ]


def parts_of(op: ir.Operation) -> list[Part]:
    """The matches that the composite of a group stands for."""
    builder = current_builder()

    def taken(place: float) -> Tensor:
        return full((), place, DType.f32) if isinstance(place, float) else Tensor(op.operands[place], builder)

    return [
        Part(form, {name: taken(place) for name, place in inputs.items()}) for form, inputs in places_of(op)
    ]


def places_of(op: ir.Operation) -> list[tuple[str, dict[str, int | float]]]:
    """The matches as they are written down: forms, and of every input by its name the operand, or the number that it is."""
    places: list[tuple[str, dict[str, int | float]]] = json.loads(composite_attributes(op)[_MATCHES])
    return places


def _known_number(value: Value) -> float | None:
    """A float32 number that stands in the program."""
    number = splat_number(value) if spec_of(value.type) in _NUMBERS else None
    return None if number is None else float(number)


_NUMBERS = (TensorSpec((), DType.f32), TensorSpec((1,), DType.f32))


def attributes_of(op: ir.Operation) -> dict[str, Any]:
    """The attributes of the composite in a group."""
    return {name: value for name, value in composite_attributes(op).items() if name != _MATCHES}
