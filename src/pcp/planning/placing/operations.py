"""The operations of a program, each as a program of its own: what is measured in every place, and what passes between them."""

from dataclasses import dataclass

from pcp.ir import Program
from pcp.ir.bindings import context
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning.placing.costs import Flow
from pcp.rewrite.pieces import Body, Cutter
from pcp.rewrite.regions import check_divisible, opened


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
