"""Which shapes of a step are compiled before anybody waits for them: some at the start, others beside the steps that run.

A step needs no program of just its shape: one of more rows, tokens or pages computes it, too. So a few large shapes, compiled
at the start, answer everything at once, and those that are asked for again and again are compiled beside.
"""

from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any

from pcp.inference.reading import LEAST_WIDTH
from pcp.inference.scheduler import Limits, power_of_two

SHORTEST_CHUNK = 16
"""Parts of a prompt are padded to this, or a power of two above."""

WIDE = 1024
"""Tokens that the tables of the shapes of the start have room for, or the context if that is shorter."""

ASKED = 8
"""Steps that another shape computes before a shape is compiled for them."""


@dataclass(frozen=True, slots=True)
class Shape:
    """What a program is compiled for.

    Arguments:
        rows: texts.
        chunk: tokens of each.
        width: pages of each.
        every: whether a token is drawn behind each of the chunk, and not only behind the last.
        edited: whether scores are changed before: penalties, biases, masks.
        turns: how many tokens are drawn one after another, each behind the one before; of a chunk of 1.
        limited: whether some are drawn from the best ones only. Otherwise a program of several turns has no branch: a GPU waits
            for the host at each.
    """

    rows: int
    chunk: int
    width: int
    every: bool = False
    edited: bool = False
    turns: int = 1
    limited: bool = True

    @property
    def draws(self) -> int:
        """Tokens drawn, all rows together."""
        return self.rows * (self.chunk if self.every else 1)

    @property
    def work(self) -> int:
        """What it costs, roughly: tokens, each of which looks at all pages."""
        return self.rows * self.chunk * (64 + self.width)

    def covers(self, other: "Shape") -> bool:
        """Whether its program computes the step of another shape."""
        return (
            self.rows >= other.rows
            and self.chunk >= other.chunk
            and self.width >= other.width
            and self.every == other.every
            and self.edited >= other.edited
            and self.turns == other.turns
            and self.limited >= other.limited
        )


def first_shapes(limits: Limits, page: int, edited: bool, least: int = LEAST_WIDTH) -> list[Shape]:
    """The shapes that are compiled at the start, the most needed first: at most eight, and two more of several turns.

    Arguments:
        page: tokens of a page.
        edited: whether scores are changed before they are drawn from where nobody says otherwise.
        least: pages that the table of a row has at least.
    """
    context, rows = limits.context, power_of_two(limits.rows)
    of_context = -(-context // page)
    narrow = min(least, of_context)
    wide = min(max(power_of_two(-(-WIDE // page)), least), of_context)
    wanted = [
        (1, 1, narrow),
        (1, SHORTEST_CHUNK, narrow),
        (rows, 1, narrow),
        (min(rows, max(limits.chunk // SHORTEST_CHUNK, 1)), SHORTEST_CHUNK, narrow),
        (1, 4 * SHORTEST_CHUNK, narrow),
        (rows, 1, wide),
        (1, 1, wide),
        (1, power_of_two(limits.chunk), wide),
    ]
    shapes = [Shape(r, min(c, context), w, edited=edited) for r, c, w in wanted]
    if limits.turns > 1 and not edited:
        shapes += [Shape(each, 1, wide, turns=limits.turns, limited=False) for each in (1, rows)]
    return list(dict.fromkeys(shapes))


class Beside:
    """Compiles shapes in a thread of its own, while steps run.

    Arguments:
        compile: makes the program of a shape; called in that thread.
    """

    def __init__(self, compile: Callable[[Shape], Any]) -> None:
        self._compile = compile
        self._pool = ThreadPoolExecutor(1, thread_name_prefix="pcp compiler")
        self._begun: dict[Shape, Future[Any]] = {}
        self._asked: Counter[Shape] = Counter()

    def ask(self, shape: Shape) -> None:
        """Say that a shape would have been used, or will be soon; `ASKED` times have it compiled."""
        self._asked[shape] += 1
        if self._asked[shape] >= ASKED and shape not in self._begun:
            self._begun[shape] = self._pool.submit(self._compile, shape)

    def wait(self, shape: Shape) -> None:
        """Wait for a shape if it is being compiled; one that still waits is given up, and is the caller's to compile.

        Raises:
            Exception: what its compilation raised.
        """
        begun = self._begun.pop(shape, None)
        if begun is not None and not begun.cancel():
            begun.result()

    def close(self) -> None:
        """Compile no more; waits for what is being compiled now."""
        self._pool.shutdown(wait=True, cancel_futures=True)


def next_width(shape: Shape, longest: int, page: int, context: int) -> Shape | None:
    """The shape of the next width, once a text has filled three quarters of this one."""
    wider = min(2 * shape.width, -(-context // page))
    is_near = wider > shape.width and 4 * longest > 3 * shape.width * page
    return replace(shape, width=wider) if is_near else None
