"""What kernels in Pallas for NVIDIA GPUs have in common. Triton compiles them; JAX is imported where one is lowered.

Triton's tensors have sizes that are powers of two: a row that is shorter is read with a mask.
"""

import importlib
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any

from pcp.ir.bindings import ir
from pcp.kernels.named import Named

Array = Any
Reference = Any


@dataclass(frozen=True, slots=True)
class _Module:
    """A module that is imported when something of it is asked for: most processes need no jax here, which takes its time."""

    name: str

    def __getattr__(self, attribute: str) -> Any:
        return getattr(importlib.import_module(self.name), attribute)


jax, jnp, lax = _Module("jax"), _Module("jax.numpy"), _Module("jax.lax")
pallas, triton = _Module("jax.experimental.pallas"), _Module("jax.experimental.pallas.triton")


@dataclass(frozen=True, slots=True)
class Rows:
    """Some rows of a matrix in registers, as many columns as the next power of two, 0 where there is none.

    Arguments:
        first: the first row's number.
        count: how many; a power of two.
        rows, width: of the matrix.
    """

    first: Array
    count: int
    rows: int
    width: int

    @property
    def padded(self) -> int:
        """Columns in registers."""
        return next_power_of_two(self.width)

    @property
    def inside(self) -> Array:
        """Where the matrix has a number."""
        shape = (self.count, self.padded)
        columns = lax.broadcasted_iota(jnp.int32, shape, 1) < self.width
        return columns & (lax.broadcasted_iota(jnp.int32, shape, 0) + self.first < self.rows)

    def read(self, reference: Reference) -> Array:
        """These rows of a matrix, in float32."""
        return triton.load(reference.at[self._place], mask=self.inside, other=0.0).astype(jnp.float32)

    def write(self, reference: Reference, x: Array) -> None:
        """Put them in their place, rounded to what the matrix keeps."""
        triton.store(reference.at[self._place], x.astype(reference.dtype), mask=self.inside)

    def stochastically_rounded(self, x: Array) -> Array:
        """Float32 as bfloat16, up or down by a chance that keeps the mean (Gupta et al. 2015, section 3).

        Rounding to nearest loses all of a small term that is added to what was rounded before, again and again in the same
        direction. The chance is a hash of each number and its place: the same rows give the same bits.
        """
        bits = lax.bitcast_convert_type(x, jnp.uint32)
        rows, columns = (lax.broadcasted_iota(jnp.uint32, x.shape, axis) for axis in (0, 1))
        first = lax.convert_element_type(self.first, jnp.uint32)
        mixed = bits + ((rows + first) * jnp.uint32(self.width) + columns) * jnp.uint32(0x9E3779B1)
        for shift, factor in ((16, 0x85EBCA6B), (13, 0xC2B2AE35)):  # the end of MurmurHash3
            mixed = (mixed ^ (mixed >> jnp.uint32(shift))) * jnp.uint32(factor)
        up = (bits + (mixed >> jnp.uint32(16))) & jnp.uint32(0xFFFF0000)
        finite = jnp.abs(x) < jnp.inf
        return jnp.where(finite, lax.bitcast_convert_type(up, jnp.float32), x).astype(jnp.bfloat16)

    @property
    def _place(self) -> tuple[Any, Any]:
        return pallas.ds(self.first, self.count), pallas.ds(0, self.padded)


@dataclass(frozen=True, slots=True)
class Tiles:
    """How a matrix is shared out to programs: to each some columns of some rows, a few of these at once.

    Arguments:
        rows: of a program.
        together: how many of them at once; more where there are fewer columns.
        columns: of a program, at most, a power of two; they divide the width.
        per_thread: numbers that a thread has at once.
    """

    rows: int
    together: int
    columns: int
    per_thread: int

    def launched(
        self,
        body: Callable[..., None],
        shape: tuple[int, int],
        results: Sequence[tuple[tuple[int, ...], str]],
    ) -> Callable[..., Sequence[Array]]:
        """As the function of this name; of a matrix, whose rows are a multiple of a program's."""
        columns, together = self.block(shape[1])
        programs = shape[0] // self.rows * (shape[1] // columns)
        return launched(body, programs, results, together * columns / self.per_thread)

    def run(
        self, width: int, step: Callable[[Array, Array], Sequence[Array]], count: int
    ) -> tuple[Array, Array, Sequence[Array]]:
        """In a program, take a step for some rows after others.

        Arguments:
            width: of the matrix.
            step: from rows, and the first column, to as many arrays as are to be added up.
            count: of these.

        Returns:
            The program's number among those of its columns, its first column, and for each array the sums of its columns,
            (1, columns).
        """
        columns, together = self.block(width)
        program = pallas.program_id(0)
        row, first = program // (width // columns), program % (width // columns) * columns

        def turn(i: Array, totals: tuple[Array, ...]) -> tuple[Array, ...]:
            added = step(pallas.ds(row * self.rows + i * together, together), first)
            return tuple(total + x for total, x in zip(totals, added, strict=True))

        nothing = (jnp.zeros((together, columns), jnp.float32),) * count
        totals = lax.fori_loop(0, self.rows // together, turn, nothing)
        return row, first, [jnp.sum(total, axis=0, keepdims=True) for total in totals]

    def block(self, width: int) -> tuple[int, int]:
        """Columns of a program, and rows that it has at once, of a matrix of this width."""
        columns = math.gcd(self.columns, width)
        return columns, min(self.rows, self.together * self.columns // columns)


def is_numbered_in_32_bits(op: ir.Operation) -> bool:
    """Whether all arrays of an operation have elements, but fewer than 2^31: places in them are computed in 32 bits."""
    named = Named.of(op)
    return all(0 < spec.size < 1 << 31 for spec in (*named.operands, *named.results))


def next_power_of_two(count: int) -> int:
    """The smallest that is no less."""
    return 1 << (count - 1).bit_length()


def launched(
    body: Callable[..., None],
    programs: int,
    results: Sequence[tuple[tuple[int, ...], str]],
    threads: float,
    in_place: Mapping[int, int] = MappingProxyType({}),
    stages: int | None = None,
) -> Callable[..., Sequence[Array]]:
    """A function of JAX arrays that runs a body once for each program.

    Arguments:
        body: of references to the arrays and to the results.
        programs: how many.
        results: their shapes, and element types by name.
        threads: of a program, about.
        in_place: places of arrays, and of the results that are written over them.
        stages: of a loop, how many turns are read ahead; None as Triton has it.
    """
    warps = min(next_power_of_two(math.ceil(threads / 32)), 16)
    call: Callable[..., Sequence[Array]] = pallas.pallas_call(
        body,
        out_shape=[jax.ShapeDtypeStruct(shape, dtype) for shape, dtype in results],
        grid=(programs,),
        compiler_params=triton.CompilerParams(num_warps=warps, num_stages=stages),
        input_output_aliases=dict(in_place),
    )
    return call
