"""What a differentiated program takes in memory, estimated from the order of its operations and the shapes of its values.

A compiler that fuses does not write the result of an operation on single elements if another such operation is its only
reader: that value takes nothing, and what it is computed from lives as long as the reader needs it. All other values take
their bytes from where they are made to where they are last read. Arguments and results take theirs throughout.
"""

from collections.abc import Sequence

from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.ops.record import RECORDS, Cost, Kind, kind_of


def peak_bytes(graph: JointGraph, order: Sequence[int]) -> int:
    """The most bytes that a program takes at once.

    Arguments:
        graph: the program.
        order: its backward pass, as `JointGraph.schedule` returns it.
    """
    sequence = [*range(graph.forward), *order]
    values = _Values(graph, sequence)
    steps = len(sequence)
    last = [-1] * len(values.bytes)
    returned = {source for value in graph.returned for source in values.sources_of(value)}
    for step, sources in enumerate(values.reads):
        for value in sources:
            last[value] = step
    frees: list[list[int]] = [[] for _ in range(steps)]
    held = sum(graph.bytes(v) for v in range(graph.argument_count)) + sum(map(graph.bytes, graph.returned))
    peak = now = held
    for step in range(steps):
        for value in values.makes[step]:
            if value in returned:  # counted already
                continue
            now += values.bytes[value]
            frees[max(last[value], step)].append(value)
        peak = max(peak, now + values.scratch[step])
        now -= sum(values.bytes[value] for value in frees[step])
    return peak


class _Values:
    """The values that a sequence of operations keeps in memory: each making of a value is one of its own."""

    def __init__(self, graph: JointGraph, sequence: list[int]) -> None:
        self.bytes: list[int] = []
        self.reads: list[list[int]] = []
        self.makes: list[list[int]] = []
        self.scratch: list[int] = []
        self._sources: dict[int, tuple[int, ...]] = {}
        again: dict[int, tuple[int, ...]] = {}
        readers = _readers(graph, sequence)
        for op in sequence:
            index = op if op >= 0 else ~op
            read = graph.reads[index]
            known = again if op < 0 or index >= graph.forward else self._sources
            sources = {s for v in read for s in known.get(v, self._sources.get(v, ()))}
            self.reads.append(sorted(sources))
            self.makes.append([])
            # Compilers rearrange the operands of a product before they multiply.
            copied = graph.reads[index] if kind_of(graph.names[index]) is Kind.product else ()
            self.scratch.append(sum(map(graph.bytes, copied)))
            for value in graph.results[index]:
                if value in graph.constant:
                    continue
                if _is_fused(graph.names[index], readers.get((op < 0, value), [])):
                    buffers = tuple(sources)
                else:
                    buffers = (len(self.bytes),)
                    self.bytes.append(graph.bytes(value))
                    self.makes[-1].append(buffers[0])
                (again if op < 0 else self._sources)[value] = buffers

    def sources_of(self, value: int) -> tuple[int, ...]:
        """The values in memory that a value is computed from: itself, unless it is fused."""
        return self._sources.get(value, ())


def _readers(graph: JointGraph, sequence: list[int]) -> dict[tuple[bool, int], list[str]]:
    """The names of the operations that read each making of a value: (whether it was made again, value)."""
    again: set[int] = set()
    readers: dict[tuple[bool, int], list[str]] = {}
    for op in sequence:
        index = op if op >= 0 else ~op
        for value in graph.reads[index]:
            second = value in again and (op < 0 or index >= graph.forward)
            readers.setdefault((second, value), []).append(graph.names[index])
        if op < 0:
            again.update(graph.results[index])
    for value in graph.returned:
        readers.setdefault((False, value), []).append("return")
    return readers


def _is_fused(name: str, readers: list[str]) -> bool:
    record = RECORDS.get(name)
    if record is None or not record.is_fused:
        return False
    return record.cost is Cost.free or (len(readers) < 2 and all(map(_reads_what_is_fused, readers)))


def _reads_what_is_fused(name: str) -> bool:
    record = RECORDS.get(name)
    return record is not None and record.reads_fused
