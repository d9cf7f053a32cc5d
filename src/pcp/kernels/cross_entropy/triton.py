"""Cross entropy and its gradient for NVIDIA GPUs, in Pallas by Triton: each reads the logits from memory once.

The loss hands the logarithms of the sums of exponentials to its gradient. The gradient is kept in bfloat16, and where the
logits are, it takes their memory.
"""

import functools
import operator
from collections.abc import Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.kernels.artifact import Application, Lowered
from pcp.kernels.cross_entropy.stablehlo import Rows
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, applies_to_f32, tensors
from pcp.kernels.pallas import (
    Array,
    Reference,
    jnp,
    launched,
    lax,
    next_power_of_two,
    pallas,
    triton,
)
from pcp.kernels.registry import register_with_gradient
from pcp.kernels.storage import BF16, as_kept, is_argument, widened
from pcp.ops.movement import reshape
from pcp.tensor import Tensor

MOST = 4096
"""Logits that a program has in registers at once."""

PER_THREAD = 32
"""Of these, how many a thread holds."""

LANES, PER_LANE, TOGETHER = 128, 4, 16
"""Of the sums of a row: columns, how many of them a thread has, and chunks that are read at once."""


@dataclass(frozen=True, slots=True)
class _Chunks:
    """A row of a matrix, some columns at a time."""

    row: Array
    width: int
    most: int

    @property
    def size(self) -> int:
        """Columns of a chunk."""
        return min(next_power_of_two(self.width), self.most)

    @property
    def count(self) -> int:
        """How many there are."""
        return -(-self.width // self.size)

    def columns(self, chunk: Array) -> Array:
        """Their numbers."""
        return chunk * self.size + jnp.arange(self.size)

    def read(self, reference: Reference, chunk: Array) -> Array:
        """A chunk in float32, -inf after the last column."""
        place = reference.at[self.row, pallas.ds(chunk * self.size, self.size)]
        inside = self.columns(chunk) < self.width
        return jnp.where(inside, triton.load(place, mask=inside, other=0.0).astype(jnp.float32), -jnp.inf)

    def write(self, reference: Reference, chunk: Array, x: Array) -> None:
        """Put it in its place."""
        place = reference.at[self.row, pallas.ds(chunk * self.size, self.size)]
        triton.store(place, x.astype(reference.dtype), mask=self.columns(chunk) < self.width)

    def normaliser(self, reference: Reference) -> tuple[Array, Array]:
        """The largest logit of the row, and the logarithm of the sum of the exponentials of what is below it. Each column of a
        chunk has a largest number and a sum of its own, which are put together once: no thread waits for another on the way.
        """

        def step(i: Array, state: tuple[Array, Array]) -> tuple[Array, Array]:
            largest, total = state
            chunks = [self.read(reference, i * TOGETHER + place) for place in range(TOGETHER)]
            top = functools.reduce(jnp.maximum, chunks, largest)
            finite = jnp.where(jnp.isfinite(top), top, 0.0)
            exponentials = [jnp.exp(x - finite) for x in chunks]
            return top, functools.reduce(operator.add, exponentials, total * jnp.exp(largest - finite))

        first = jnp.full((self.size,), -jnp.inf, jnp.float32), jnp.zeros((self.size,), jnp.float32)
        tops, totals = lax.fori_loop(0, -(-self.count // TOGETHER), step, first)
        top = jnp.max(tops)
        finite = jnp.where(jnp.isfinite(top), top, 0.0)
        return finite, jnp.log(jnp.sum(totals * jnp.exp(tops - finite)))


def normalisers(logits: Array, targets: Array) -> Sequence[Array]:
    """Logits (rows, classes) and targets (rows,) to the logarithm of the sum of each row's exponentials, and what this is above
    the logit of the target, (rows,) both. The largest logit, which may be so large as to swallow the logarithm, meets that of
    the target before it.
    """
    rows, classes = logits.shape
    threads = _Chunks(0, classes, LANES).size / PER_LANE
    return launched(_row, rows, [((rows,), "float32")] * 2, threads)(logits, targets)


def _row(logits: Reference, targets: Reference, result: Reference, above: Reference) -> None:
    row = pallas.program_id(0)
    largest, logarithm = _Chunks(row, logits.shape[1], LANES).normaliser(logits)
    chosen = logits[row, jnp.maximum(targets[row], 0)].astype(jnp.float32)
    result[row] = largest + logarithm
    above[row] = logarithm + (largest - chosen)


@dataclass(frozen=True, slots=True, weakref_slot=True)
class Gradient:
    """Logits (rows, classes), targets and factors (rows,) to (softmax, less 1 at the target) times the factor.

    Arguments:
        overwrites: whether the result takes the memory of logits in bfloat16. XLA copies logits that are needed later first.
    """

    overwrites: bool = True

    def __call__(self, logits: Array, targets: Array, factors: Array, *known: Array) -> Sequence[Array]:
        """In bfloat16. No class is number -1. The normaliser (rows,) is computed where it is not given."""
        rows, classes = logits.shape
        chunks = _Chunks(0, classes, MOST)
        results = [(logits.shape, "bfloat16")]
        in_place = {0: 0} if self.overwrites and logits.dtype == "bfloat16" else {}
        return launched(self._chunk, rows * chunks.count, results, chunks.size / PER_THREAD, in_place)(
            logits, targets, factors, *(known or normalisers(logits, targets)[:1])
        )

    def _chunk(
        self,
        logits: Reference,
        targets: Reference,
        factors: Reference,
        normaliser: Reference,
        result: Reference,
    ) -> None:
        count = _Chunks(0, logits.shape[1], MOST).count
        row, chunk = pallas.program_id(0) // count, pallas.program_id(0) % count
        chunks = _Chunks(row, logits.shape[1], MOST)
        softmax = jnp.exp(chunks.read(logits, chunk) - normaliser[row])
        chosen = jnp.where(chunks.columns(chunk) == targets[row], 1.0, 0.0)
        chunks.write(result, chunk, (softmax - chosen) * factors[row])


def _loss(op: ir.Operation) -> Application:
    rows = Rows.of(op)
    logits = reshape(as_kept(tensors(op)[0]), rows.logits.shape)
    shape = rows.named.results[0].shape
    return Application(
        normalisers,
        (logits, rows.targets),
        lambda results: [reshape(rows.losses(*results), shape), results[0]],
    )


def _gradient(op: ir.Operation, residuals: Sequence[Tensor]) -> Application:
    rows, operands = Rows.of(op), tensors(op)
    targets, factors = rows.factors(operands[2])
    logits = reshape(as_kept(operands[0]), rows.logits.shape)
    return Application(
        Gradient(overwrites=not is_argument(logits)),
        (logits, targets, factors, *residuals),
        lambda results: rows.named.cotangents(op, {0: reshape(widened(results[0]), operands[0].shape)}),
    )


def _applies(op: ir.Operation) -> bool:
    """Whether programs and columns are numbered in 32 bits. Places of logits are not: of large arrays Pallas has them in 64."""
    named = Named.of(op)
    logits = named.operands[0]
    if not applies_to_f32(op) or not logits.size:
        return False
    classes: int = logits.shape[named.attributes["axis"]]
    programs = logits.size // classes * _Chunks(0, classes, MOST).count
    return max(classes, programs) < 1 << 31


register_with_gradient(
    Kernel(
        "cross_entropy.triton",
        "the logits are read once",
        _applies,
        Lowered(_loss, "cuda"),
        requires=("sm_80",),
        version=3,
        hands=("cross_entropy.triton_normaliser",),
    ),
    Lowered(_gradient, "cuda"),
    about="softmax less 1 at the target, kept where logits in bfloat16 were",
    version=3,
    storages=(BF16,),
    keeps="the result",
)
