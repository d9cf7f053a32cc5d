"""The prepared program never has all logits at once: its loss and gradient are a loop over blocks of examples. What is chosen
after that is for one block."""

import functools
from collections.abc import Iterator
from typing import Any

from pcp.ir import Program
from pcp.planning.paths.checks import PathMismatch, is_integer, refused
from pcp.planning.paths.move import Kind, Move, Stage
from pcp.rewrite.memory.linear_losses import without_logits


@functools.lru_cache(maxsize=8)
def with_blocks(program: Program, most: int) -> Program:
    """The program, whose logits of more than so many bytes are made in blocks; itself if it has none."""
    return without_logits(program, most)


def _applied(program: Program, most: int) -> Program:
    in_blocks = with_blocks(program, most)
    if in_blocks.digest == program.digest:
        raise PathMismatch(
            f"the path makes logits of {most} bytes at once, and program {program.digest[:12]} has no more: plan again"
        )
    return in_blocks


def _read(value: Any) -> Iterator[Move]:
    if not is_integer(value) or value < 1:
        raise refused("blocks", value, "bytes from 1, or no such entry")
    return iter([BLOCKS.move(value)])


BLOCKS = Kind(
    "blocks",
    "blocks",
    Stage.prepared,
    written=lambda moves: moves[0].value,
    read=_read,
    applied=lambda program, moves: _applied(program, moves[0].value),
    words=lambda moves: f"the loss in blocks, of {moves[0].value >> 20} MiB of logits or of few examples",
)
