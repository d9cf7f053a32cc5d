"""Fragments: the parameters cut into parts of nearly equal size, each of which travels as one flat f32 vector."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.ops.elementwise import convert
from pcp.ops.movement import concatenate, reshape, slice_
from pcp.tensor import Tensor


class TooManyFragments(PCPError):
    """More fragments than there are arrays to put into them, or none."""


@dataclass(frozen=True, slots=True)
class Segment:
    """The place of one parameter array in the vector of its fragment.

    Arguments:
        name: dotted name of the array.
        leaf: its number in the nested parameters.
        start: where it begins.
        spec: its shape and element type.
    """

    name: str
    leaf: int
    start: int
    spec: TensorSpec

    @property
    def stop(self) -> int:
        """Where it ends."""
        return self.start + self.spec.size


@dataclass(frozen=True, slots=True)
class Partition:
    """Which parameter arrays make each fragment. A vector holds its arrays raveled, in their order in the nesting.

    Arguments:
        tree: the nesting of the parameters.
        fragments: the arrays of each fragment.
    """

    tree: Tree
    fragments: tuple[tuple[Segment, ...], ...]

    @property
    def count(self) -> int:
        """P, the number of fragments."""
        return len(self.fragments)

    def size(self, fragment: int) -> int:
        """Elements of a fragment's vector."""
        return self.fragments[fragment][-1].stop

    def vectors(self, parameters: Any) -> tuple[npt.NDArray[np.float32], ...]:
        """The vectors of parameters that are arrays."""
        leaves = flatten(parameters)[0]
        return tuple(
            np.concatenate([np.asarray(leaves[part.leaf]).astype(np.float32).ravel() for part in parts])
            for parts in self.fragments
        )

    def parameters(self, vectors: Sequence[npt.NDArray[np.float32]]) -> Any:
        """The nested parameters of vectors that are arrays; inverse of `vectors`."""
        leaves: dict[int, npt.NDArray[Any]] = {}
        for parts, vector in zip(self.fragments, vectors, strict=True):
            for part in parts:
                piece = np.asarray(vector)[part.start : part.stop].reshape(part.spec.shape)
                leaves[part.leaf] = piece.astype(part.spec.dtype.numpy)
        return self.tree.unflatten(leaves[i] for i in range(len(leaves)))

    def flat(self, fragment: int, parameters: Any) -> Tensor:
        """The vector of a fragment, from nested Tensors."""
        leaves = flatten(parameters)[0]
        pieces = [
            reshape(convert(leaves[part.leaf], DType.f32), (part.spec.size,))
            for part in self.fragments[fragment]
        ]
        return concatenate(pieces) if len(pieces) > 1 else pieces[0]

    def placed(self, fragment: int, vector: Tensor, parameters: Any) -> Any:
        """Nested Tensors in which the arrays of a fragment are those of a vector."""
        leaves = list(flatten(parameters)[0])
        for part in self.fragments[fragment]:
            piece = slice_(vector, (part.start,), (part.stop,))
            leaves[part.leaf] = convert(reshape(piece, part.spec.shape), part.spec.dtype)
        return self.tree.unflatten(leaves)

    def assembled(self, vectors: Sequence[Tensor]) -> Any:
        """Nested Tensors from the vectors of all fragments."""
        parameters: Any = self.tree.unflatten(range(self.tree.leaf_count))
        for fragment, vector in enumerate(vectors):
            parameters = self.placed(fragment, vector, parameters)
        return parameters


def partition(parameters: Any, count: int) -> Partition:
    """Cut parameters into fragments of nearly equal size: the largest array first, each to the smallest fragment so far.

    Equal shapes give equal fragments on every machine.

    Arguments:
        parameters: nested arrays, or anything with shapes and element types.
        count: P.

    Raises:
        TooManyFragments: there are fewer arrays than fragments, or no fragment is asked for.

    Source: Graham, "Bounds on Multiprocessing Timing Anomalies", 1969, section 5 (longest processing time first).
    """
    leaves, tree = flatten(parameters)
    if not 1 <= count <= len(leaves):
        raise TooManyFragments(
            f"{count} fragments were asked for; the parameters are {len(leaves)} arrays, and a fragment holds at least "
            f"one: choose from 1 to {len(leaves)} fragments"
        )
    specs = [TensorSpec(tuple(leaf.shape), dtype_of(leaf.dtype)) for leaf in leaves]
    sizes, members = [0] * count, [[] for _ in range(count)]  # type: list[int], list[list[int]]
    for leaf in sorted(range(len(leaves)), key=lambda i: (-specs[i].size, i)):
        # An empty fragment comes first even where arrays of no elements have made others as light.
        smallest = min(range(count), key=lambda f: (sizes[f], len(members[f]), f))
        sizes[smallest] += specs[leaf].size
        members[smallest].append(leaf)
    names = tree.names()

    def segments(indices: list[int]) -> tuple[Segment, ...]:
        placed, start = [], 0
        for leaf in sorted(indices):
            placed.append(Segment(names[leaf], leaf, start, specs[leaf]))
            start += specs[leaf].size
        return tuple(placed)

    return Partition(tree, tuple(segments(each) for each in members))
