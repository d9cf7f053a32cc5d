"""A finished program in less memory, whoever made it: its batch in parts, and values made again.

What is made again are values from before the place where the most is alive that are read behind it; in a training step, this
place is the end of the forward pass. Composites and calls are written out before, so that each of their values counts by
itself. Where a loop holds more than what is around it, values are made again in the loop.
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
from pcp.ir.toolkit.regions import block_operations
from pcp.rewrite.memory.parts import flat_module, in_parts


@dataclass(frozen=True, slots=True, order=True)
class Recomputation:
    """How a program is computed in less memory.

    Arguments:
        parts: in how many parts its batch is computed.
        begin: how many operations stand before the place where the most is alive.
        kept: numbers of the values from before that are kept, arguments first; the others are made again where they are read.
        makes: the digest of the program that this makes.
    """

    parts: int
    begin: int
    kept: tuple[int, ...]
    makes: str = ""


class Recomputable:
    """A program whose batch is computed in parts, and in which values may be made again.

    Arguments:
        program: any Program.
        parts: in how many parts.
    """

    def __init__(self, program: Program, parts: int = 1) -> None:
        self._original, self._parts = program, parts
        divided = program if parts == 1 else in_parts(program, parts)
        self.divided = divided
        """The program in parts; None if it cannot be computed so."""

    @cached_property
    def _graph(self) -> JointGraph:
        assert self.divided is not None
        module = flat_module(self.divided)
        return _fullest(module)[1]

    @cached_property
    def flops(self) -> int:
        """Floating-point operations of what is alive together: the program, or one trip of its loop."""
        return max(1, sum(self._graph.flops))

    @cached_property
    def candidates(self) -> Candidates:
        """What may be kept."""
        return Candidates(self._graph)

    def made(self, candidate: Candidate) -> tuple[Recomputation, Program]:
        """What a candidate makes again, and the program that does."""
        begin, kept = self._graph.forward, tuple(sorted(candidate.kept))
        program = recomputed(self._original, Recomputation(self._parts, begin, kept))
        return Recomputation(self._parts, begin, kept, program.digest), program


def recomputed(program: Program, chosen: Recomputation) -> Program:
    """The program in parts, with values made again; the caller looks whether it is the one that `chosen.makes` names."""
    divided = program if chosen.parts == 1 else in_parts(program, chosen.parts)
    module = flat_module(program if divided is None else divided)
    block, _ = _fullest(module)
    operations = block_operations(block)
    graph = JointGraph(block, min(chosen.begin, len(operations)))
    order = graph.schedule(frozenset(chosen.kept).__contains__)
    with context(), ir.Location.unknown():
        write_schedule(module, block, graph, operations, order)
    erase_dead(block)
    erase_dead(entry_block(module))
    return Program.from_module(module)


def _fullest(module: ir.Module) -> tuple[ir.Block, JointGraph]:
    """The block in which the most is alive at once, `main` or the body of a loop in it, and its graph, cut there."""
    main = entry_block(module)
    loops = (op.regions[1].blocks[0] for op in block_operations(main) if op.name == "stablehlo.while")
    blocks = []
    for block in (main, *loops):
        most, begin = _most_alive(JointGraph(block, 0))
        blocks.append((most, begin, block))
    _, begin, block = max(blocks, key=lambda each: each[0])
    return block, JointGraph(block, begin)


def _most_alive(graph: JointGraph) -> tuple[int, int]:
    """The most bytes that are carried across a place, without arguments and results; how many operations stand before it."""
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
    return most, place
