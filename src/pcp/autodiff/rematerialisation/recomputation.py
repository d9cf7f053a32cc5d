"""Recomputation in a finished program, whoever made it: values are made again behind the place where the most is alive.

In a training step this place is the end of the forward pass. Composites and calls are written out before, so that each of
their values counts by itself.
"""

from dataclasses import dataclass
from functools import cached_property

from pcp.autodiff.rematerialisation.candidates import Candidate, Candidates
from pcp.autodiff.rematerialisation.emission import write_schedule
from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.ir import Program
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import flatten, inline_calls


@dataclass(frozen=True, slots=True, order=True)
class Recomputation:
    """What is made again in a program.

    Arguments:
        begin: how many of its operations stand before the place where the most is alive.
        kept: numbers of the values from before that are kept, arguments first; the others are made again where they are read.
        makes: the digest of the program that this makes.
    """

    begin: int
    kept: tuple[int, ...]
    makes: str = ""


class Recomputable:
    """A program in which values may be made again.

    Arguments:
        program: any Program.
    """

    def __init__(self, program: Program) -> None:
        self.program = program
        module = _flat(program)
        block = entry_block(module)
        self._begin = _fullest(JointGraph(block, 0))
        self._graph = JointGraph(block, self._begin)
        self.flops = max(1, sum(self._graph.flops))
        """Floating-point operations of the program."""

    @cached_property
    def candidates(self) -> Candidates:
        """What may be kept."""
        return Candidates(self._graph)

    def made(self, candidate: Candidate) -> tuple[Recomputation, Program]:
        """What a candidate makes again, and the program that does."""
        chosen = Recomputation(self._begin, tuple(sorted(candidate.kept)))
        program = recomputed(self.program, chosen)
        return Recomputation(chosen.begin, chosen.kept, program.digest), program


def recomputed(program: Program, chosen: Recomputation) -> Program:
    """The program that makes values again; whether it is the one that `chosen.makes` names is for the caller to see."""
    module = _flat(program)
    block = entry_block(module)
    operations = [op.operation for op in block.operations][:-1]
    graph = JointGraph(block, min(chosen.begin, len(operations)))
    order = graph.schedule(frozenset(chosen.kept).__contains__)
    with context(), ir.Location.unknown():
        write_schedule(module, block, graph, operations, order)
    erase_dead(block)
    return Program.from_module(module)


def _flat(program: Program) -> ir.Module:
    module = program.module()
    inline_calls(module)
    flatten(module)
    erase_dead(entry_block(module))
    return module


def _fullest(graph: JointGraph) -> int:
    """The number of operations before the place across which the most bytes are carried, without arguments and results."""
    last = {value: index for index, reads in enumerate(graph.reads) for value in reads}
    unmoved = graph.constant.union(graph.returned)
    grows = [0] * (len(graph.names) + 2)
    for value, index in graph.maker.items():
        if value in last and value not in unmoved:
            grows[index + 1] += graph.bytes(value)
            grows[last[value] + 1] -= graph.bytes(value)
    carried, most, place = 0, 0, 0
    for index, change in enumerate(grows):
        carried += change
        if carried > most:
            most, place = carried, index
    return place
