"""What a Shepherd computes for audits: whether a blob is an inner state, and how far two results lie apart."""

import math
from typing import Any

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.coordinator.effects import CompareStates
from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.inner_state import load_inner, relative_distance
from pcp.distributed.round_arithmetic.program_fit import Arrays
from pcp.distributed.round_arithmetic.programs import inner_step
from pcp.distributed.shepherd.merger import Merger
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir import DType, TensorSpec
from pcp.ir.tree import LEAF, flatten
from pcp.ir.types import dtype_of
from pcp.training.recipes.recipe import Recipe

_NAMES_BYTES = 1 << 20  # of a file's header


class StateChecks:
    """Looks at stored inner states.

    Arguments:
        recipe: what is trained.
        algorithm: how it is merged.
        store: where blobs are.
        merger: knows the fragments, and decodes pushes.
    """

    def __init__(self, recipe: Recipe, algorithm: Algorithm, store: BlobStore, merger: Merger) -> None:
        leaves, tree = flatten(inner_step(recipe, algorithm).initial_state(recipe.parameters))
        specs = tuple(TensorSpec(tuple(leaf.shape), dtype_of(leaf.dtype)) for leaf in leaves)
        sizes = [merger.partition.size(fragment) for fragment in range(merger.partition.count)]
        self._state = Arrays(tree, specs)
        self._vectors = [Arrays(LEAF, (TensorSpec((size,), DType.f32),)) for size in sizes]
        self._store = store
        self._merger = merger
        # Beside the state: anchors, references and residuals, and at most two unsettled vectors and one held.
        self.largest_bytes: int = sum(leaf.nbytes for leaf in leaves) + 6 * 4 * sum(sizes) + _NAMES_BYTES

    def check(self, blob: Blob) -> None:
        """Make sure that a blob is an inner state of this run, of finite numbers.

        Raises:
            ArraysRefused: it is not.
        """
        self._load(blob)

    def distance(self, effect: CompareStates) -> float:
        """How far the results of an audit lie apart; see `relative_distance`.

        Raises:
            ArraysRefused: a blob holds something else.
        """
        largest = 0.0
        if effect.states is not None:
            largest = relative_distance(*(self._load(blob) for blob in effect.states))
        if effect.payloads is not None:
            pushes = [self._merger.decoded(effect.fragment, blob) for blob in effect.payloads]
            largest = max(largest, relative_distance(*pushes))
        return largest if math.isfinite(largest) else math.inf

    def _load(self, blob: Blob) -> Any:
        return load_inner(self._store, blob, self._state, self._vectors)
