"""The driver of rewrites: every operation is tried against the rows that begin at its kind, until none matches."""

import logging
from collections import Counter
from collections.abc import Mapping, Sequence

from pcp.errors import PCPError
from pcp.ir import Builder, Program
from pcp.ir.bindings import context, ir
from pcp.ir.toolkit.dataflow import is_used
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import walk_block
from pcp.rewrite.pattern import is_beyond_rows
from pcp.rewrite.row import Row
from pcp.tensor import building

log = logging.getLogger("pcp.rewrite")

ROUNDS = 8
"""How many times as many rewrites as there are operations are made before the rows are said to undo each other."""


class RewriteDiverges(PCPError):
    """Rows that go on rewriting a program without end."""


def rewrite(program: Program, rows: Sequence[Row]) -> Program:
    """The program with every row applied wherever its pattern stands, until none does.

    Arguments:
        program: any Program; it stays as it is.
        rows: the table; earlier rows come first where several match.

    Returns:
        A Program with the same arguments and results; the given one if no row matches.

    Raises:
        RewriteDiverges: the rows rewrite each other's results without end.
    """
    module = program.module()
    inline_calls(module)
    return Program.from_module(module) if apply_rows(module, rows) else program


def apply_rows(module: ir.Module, rows: Sequence[Row]) -> Counter[str]:
    """Apply rows to a module in place, calls inlined, until none matches; returns how often each was applied.

    Operations that bear a mark, an attribute such as `pcp.tap` or `sdy.sharding`, stay: no row knows what it says.

    Raises:
        RewriteDiverges: the rows rewrite each other's results without end.
    """
    table: dict[str, list[Row]] = {}
    for row in rows:
        table.setdefault(row.root, []).append(row)
    block = entry_block(module)
    counts: Counter[str] = Counter()
    limit = before = None
    with context(), building(Builder(module, block)) as builder:
        while before != counts.total():
            before = counts.total()
            candidates = [op for op in walk_block(block) if op.name in table]
            limit = ROUNDS * (len(candidates) + 1) if limit is None else limit
            counts += _round(candidates, builder, table)
            del candidates  # no Python object may stand for what is erased now
            erase_dead(block)
            if counts.total() > limit:
                name, count = counts.most_common(1)[0]
                raise RewriteDiverges(
                    f"{count} rewrites by {name!r} did not end; its result, or the result of another row, "
                    "contains its pattern again"
                )
    for name, count in counts.items():
        log.info("%s: %d places", name, count)
    return counts


def _round(
    operations: Sequence[ir.Operation], builder: Builder, table: Mapping[str, Sequence[Row]]
) -> Counter[str]:
    """Try every operation once; what is replaced has no uses left, and is passed over."""
    counts: Counter[str] = Counter()
    for op in operations:
        if any(is_used(result) for result in op.results) and not is_beyond_rows(op):
            name = _applied(op, builder, table[op.name])
            if name is not None:
                counts[name] += 1
    return counts


def _applied(op: ir.Operation, builder: Builder, rows: Sequence[Row]) -> str | None:
    """Replace an operation as the first row says that matches; returns that row's name."""
    with builder.before(op):
        builder.pinned = op.location
        try:
            for row in rows:
                replacement = row.replace(op)
                if replacement is not None:
                    for old, new in zip(op.results, replacement, strict=True):
                        old.replace_all_uses_with(new.value)
                    return row.name
        finally:
            builder.pinned = None
    return None
