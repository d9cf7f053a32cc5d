"""The operations of a program, each as a program of its own: what is measured in every place, and what passes between them."""

from collections.abc import Mapping
from dataclasses import dataclass

from pcp.backends import Placement, Target
from pcp.ir import Program
from pcp.ir.bindings import context
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning.paths.path import Path
from pcp.planning.placing.cheapest import Flow
from pcp.rewrite.pieces import Body, Cutter
from pcp.rewrite.regions import UnknownOperation, check_divisible, opened


@dataclass(frozen=True, slots=True)
class Operations:
    """The operations of a program that can be placed, by numbers; those that compute the same are one.

    Arguments:
        keys: of the operations, as a `Placement` names them.
        names: what they are called in StableHLO, without its name.
        programs: of each alone; equal ones are one object.
        counts: how often each is computed.
        flows: the values that pass between them.
    """

    keys: tuple[str, ...]
    names: tuple[str, ...]
    programs: tuple[Program, ...]
    counts: tuple[int, ...]
    flows: tuple[Flow, ...]


def operations_in(program: Program) -> Operations:
    """The operations of a program; what is computed wherever it is read, as constants and broadcasts, is part of its readers.

    Raises:
        NotDivisible: the program runs as a whole only.
    """
    module = opened(program)
    check_divisible(module)
    block = entry_block(module)
    keys = operation_digests(module)
    body = Body(block, block_operations(block), returned_by(block))
    with context():
        alone = Cutter(program, body).segments(
            [(place, place + 1) for place in range(len(body.sequence))], lambda _: False
        )
    numbers: dict[str, int] = {}
    nodes = [numbers.setdefault(keys[each.op], len(numbers)) for each in body.sequence]
    firsts = [nodes.index(number) for number in range(len(numbers))]
    maker = {value: node for node, each in zip(nodes, body.sequence, strict=True) for value in each.makes}
    flows = [
        Flow(
            maker.get(value),
            tuple(dict.fromkeys(nodes[place] for place in body.readers.get(value, ()))),
            value in body.returned,
            spec_of(body.values[value].type).bytes,
        )
        for value in (*range(len(program.arguments)), *maker)
    ]
    return Operations(
        tuple(numbers),
        tuple(body.sequence[place].op.name.partition(".")[2] for place in firsts),
        tuple(alone.sequence[place].program for place in firsts),
        tuple(nodes.count(number) for number in range(len(numbers))),
        tuple(flow for flow in flows if flow.readers or (flow.is_result and flow.maker is not None)),
    )


def placed(program: Program, places: Mapping[str, str], base: Path | None = None) -> Path:
    """A path on which some operations run elsewhere.

    Arguments:
        program: as the user wrote it.
        places: by the key of an operation (`Operations.keys`), or by a name for all that are called so, a backend and one of
            its devices, as `{"tanh": "arena:cpu"}`.
        base: the path whose operations these are; None is the plain one.

    Raises:
        UnknownOperation: the program has no such operation that can be placed.
        NotDivisible: the program runs as a whole only.
        UnknownBackend, UnknownDevice: a place is not here.
    """
    base = Path.plain(program) if base is None else base
    operations = operations_in(base.applied(program))
    chosen: dict[str, str] = {}
    for wanted, place in places.items():
        pairs = zip(operations.keys, operations.names, strict=True)
        keys = [key for key, name in pairs if wanted in (key, name)]
        if not keys:
            raise UnknownOperation(
                f"{wanted!r} is told to run on {place}, and is no operation of the program that can be placed; expected a key, "
                f"or one of the names {', '.join(sorted(set(operations.names)))}"
            )
        chosen |= dict.fromkeys(keys, named(Target.of(place)))
    return base.placed(Placement.of(chosen))


def named(target: Target) -> str:
    """A place as a placement names it."""
    return f"{target.backend}:{target.device}"
