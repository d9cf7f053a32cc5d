"""The driver of rewrites: every operation is tried against the rows that begin at its kind, until none matches."""

import logging
from collections import Counter
from collections.abc import Iterator, Sequence

from pcp.autodiff.regions import erase_dead, is_used
from pcp.errors import PCPError
from pcp.ir import Builder, Program
from pcp.ir.bindings import context, inline_calls, ir
from pcp.ir.program import main_of
from pcp.rewrite.row import Row
from pcp.rewrite.table import ROWS
from pcp.tensor import building

log = logging.getLogger("pcp.rewrite")

ROUNDS = 8
"""How many times as many rewrites as there are operations are made before the rows are said to undo each other."""


class RewriteDiverges(PCPError):
    """Rows that go on rewriting a program without end."""


def rewrite(program: Program, rows: Sequence[Row] = ROWS) -> Program:
    """The program with every row applied wherever its pattern stands, until none does.

    Arguments:
        program: any Program; it stays as it is.
        rows: the table; earlier rows come first where several match.

    Returns:
        A Program with the same arguments and results; the given one if no row matches.

    Raises:
        RewriteDiverges: the rows rewrite each other's results without end.
    """
    table: dict[str, list[Row]] = {}
    for row in rows:
        table.setdefault(row.root, []).append(row)
    module = program.module()
    inline_calls(module)
    block = main_of(module).regions[0].blocks[0]
    with context(), building(Builder(module, block)) as builder:
        counts = _until_none_matches(block, builder, table)
    if not counts:
        return program
    _clean(block)
    for name, count in counts.items():
        log.info("%s: %d places", name, count)
    return Program.from_module(module)


def _until_none_matches(block: ir.Block, builder: Builder, table: dict[str, list[Row]]) -> Counter[str]:
    """Try every operation, again and again until a round changes nothing; returns how often each row was applied.

    None is erased on the way: what is replaced has no uses left and is passed over.
    """
    counts: Counter[str] = Counter()
    operations = [op for op in _inside(block) if op.name in table]
    limit, before = ROUNDS * (len(operations) + 1), -1
    while counts.total() > before:
        before = counts.total()
        for op in operations:
            if any(is_used(result) for result in op.results):
                counts.update(_applied(op, builder, table[op.name]))
        if counts.total() > limit:
            name, count = counts.most_common(1)[0]
            raise RewriteDiverges(
                f"{count} rewrites by {name!r} and no end; its result, or that of another row, holds its own pattern again"
            )
        operations = [op for op in _inside(block) if op.name in table]
    return counts


def _applied(op: ir.Operation, builder: Builder, rows: Sequence[Row]) -> list[str]:
    """Replace an operation as the first row says that matches; returns that row's name."""
    for row in rows:
        with builder.before(op):
            builder.pinned = op.location
            found = row.replace(op)
            builder.pinned = None
        if found is not None:
            for old, new in zip(op.results, found, strict=True):
                old.replace_all_uses_with(new.value)
            return [row.name]
    return []


def _inside(block: ir.Block) -> Iterator[ir.Operation]:
    """Every operation of a block and of the regions in it."""
    for view in list(block.operations):
        op = view.operation
        yield op
        for region in op.regions:
            for inner in region.blocks:
                yield from _inside(inner)


def _clean(block: ir.Block) -> None:
    """Erase what nothing uses any more, in the block and in the regions inside."""
    for op in _inside(block):
        for region in op.regions:
            for inner in region.blocks:
                erase_dead(inner)
    erase_dead(block)
