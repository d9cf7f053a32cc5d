"""Kernels for a scatter that adds rows of updates to rows of a table: the gradient of an embedding."""

import functools
from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.ir.toolkit.regions import combiner
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import tensors
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.kernels.storage import BF16, F32, Storage
from pcp.ops.elementwise import equal, greater_equal, less, where
from pcp.ops.indexing.gathering import WindowAxes
from pcp.ops.indexing.reading import take
from pcp.ops.indexing.updating import scatter_add
from pcp.ops.linear.products import dot_general
from pcp.ops.movement import expand_dims, iota, pad, reshape
from pcp.ops.sorting.sorting import argsort
from pcp.tensor import Tensor

FEW = 64
"""Rows of a table, at most, that atomic sums wait for one another in: as of types of tokens."""
LARGEST = 2**30
"""Bytes of the matrix that says which row is which token, above which it is not worth a try."""


@dataclass(frozen=True, slots=True)
class Scattered:
    """Rows that are added to a table's.

    Arguments:
        table: shape (tokens, ...).
        numbers: shape (rows,), integers; a row whose number no token has is left out.
        updates: shape (rows, width), what is added.
    """

    table: Tensor
    numbers: Tensor
    updates: Tensor

    @classmethod
    def of(cls, op: ir.Operation) -> "Scattered":
        """Those of a scatter."""
        table, indices, updates = tensors(op)
        width = table.size // table.shape[0]
        return cls(table, reshape(indices, (indices.size,)), reshape(updates, (indices.size, width)))


def is_embedding_gradient(op: ir.Operation) -> bool:
    """Whether an operation adds rows to a table at places that integers say."""
    if op.name != "stablehlo.scatter" or len(op.operands) != 3 or combiner(op.regions[0]) != "add":
        return False
    axes = WindowAxes.of(op)
    table, indices, updates = (spec_of(value.type) for value in op.operands)
    lead = len(updates.shape) - (len(table.shape) - 1)
    return (
        len(table.shape) > 1
        and table.size > 0
        and indices.size > 0
        and axes.collapsed == axes.index_map == (0,)
        and axes.offset == tuple(range(lead, len(updates.shape)))
        and not axes.operand_batch
        and updates.shape[lead:] == table.shape[1:]
        and indices.size * (table.size // table.shape[0]) == updates.size
    )


def _one_hot(op: ir.Operation, storage: Storage) -> list[Tensor]:
    """table + (token of row = number)^T updates."""
    rows = Scattered.of(op)
    shape = (rows.numbers.size, rows.table.shape[0])
    chosen = equal(iota(shape, 1, rows.numbers.dtype), expand_dims(rows.numbers, 1))
    left, right = (each.astype(storage.dtype) for each in (chosen, rows.updates))
    summed = dot_general(left, right, ((0,), (0,)), dtype=DType.f32)
    return [rows.table + reshape(summed, rows.table.shape)]


def _sorted(op: ir.Operation) -> list[Tensor]:
    """Rows in the order of their tokens are added to one row of the table after another; others to a row that is cut off."""
    rows = Scattered.of(op)
    tokens, width = rows.table.shape[0], rows.updates.shape[1]
    inside = greater_equal(rows.numbers, 0) & less(rows.numbers, tokens)
    numbers = where(inside, rows.numbers, tokens)
    order = argsort(numbers)
    longer = pad(reshape(rows.table, (tokens, width)), ((0, 1), (0, 0)))
    summed = scatter_add(longer, take(numbers, order, 0), take(rows.updates, order, 0))
    return [reshape(summed[:tokens], rows.table.shape)]


def _is_f32(op: ir.Operation) -> bool:
    return all(spec_of(op.operands[i].type).dtype is DType.f32 for i in (0, 2))


def _is_small(op: ir.Operation) -> bool:
    rows, tokens = spec_of(op.operands[1].type).size, spec_of(op.operands[0].type).shape[0]
    return _is_f32(op) and 4 * rows * tokens <= LARGEST


def _has_few_tokens(op: ir.Operation) -> bool:
    return _is_small(op) and spec_of(op.operands[0].type).shape[0] <= FEW


register_family(
    Family("embedding_gradient", "rows added to those of a table that integers name", is_embedding_gradient)
)
register_kernel(
    Kernel(
        "embedding_gradient.one_hot",
        "a product with the matrix of ones where row and token meet, sums in float32",
        _is_small,
        StableHLO(_one_hot),
        storages=(F32, BF16),
        keeps="rows",
    )
)
register_kernel(
    Kernel(
        "embedding_gradient.few",
        "a product with the matrix of ones where row and token meet, in float32, where tokens are few",
        _has_few_tokens,
        StableHLO(functools.partial(_one_hot, storage=F32)),
        requires=("cuda",),
        together=lambda _: 0,
    )
)
register_kernel(
    Kernel("embedding_gradient.sorted", "rows in the order of their tokens", _is_f32, StableHLO(_sorted))
)
