"""Optimizers whose moments are kept in fewer bits: bfloat16, or bytes with a scale for each block.

An update reads them in float32 and writes them back. A moment moves by a thousandth of itself in a step, which is less than
such numbers are apart: to the nearest, it would stay where it is. So it is rounded by chance (`pcp.ops.by_chance`).

Source: Dettmers, Lewis, Shleifer and Zettlemoyer, "8-bit Optimizers via Block-wise Quantization", 2022.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.ir import DType
from pcp.ir.tree import flatten, map_tree
from pcp.ops.by_chance import bf16_by_chance, noise_of
from pcp.ops.elementwise import abs_, clip, convert, floor, maximum, shift_right, sign, sqrt, where
from pcp.ops.linear.stored import FORMATS
from pcp.ops.movement import concatenate, reshape, zeros
from pcp.ops.reductions.primitives import max_
from pcp.optimizers.base import Optimizer, Parameters, State, kept_by, require
from pcp.tensor import Tensor, as_tensor

BLOCK = 256
"""Numbers that share a scale."""
LEAST = 4096
"""Numbers of a moment; a smaller one stays as it is."""
SQUARES = "second"
"""The entry of moments of squares: never negative, and divided by."""
_BYTES = FORMATS["int8"]


@dataclass(frozen=True, slots=True)
class Stored:
    """An optimizer that computes as another one does, and keeps its moments in fewer bits. Make one with `stored`.

    Arguments:
        optimizer: the other one.
        moments: `bf16` or `int8`.

    State:
        as the other's. In the place of a moment of at least 4,096 numbers of float32 stands one in bfloat16, or a pair of bytes
        (blocks, 256) and scales (blocks,), of its numbers in order.
    """

    optimizer: Optimizer
    moments: str

    def __post_init__(self) -> None:
        require(self.moments in ("bf16", "int8"), self, "moments='bf16' or moments='int8'")
        expected = (
            "an optimizer that says which entries of its state are moments (`kept`), as pcp.optimizers.adamw makes; of groups, "
            "each optimizer is stored by itself"
        )
        names = kept_by(self.optimizer)
        require(bool(names) and not any("." in name for name in names), self, expected)

    @property
    def kept(self) -> Mapping[str, float]:
        """What the optimizer says of its state."""
        return kept_by(self.optimizer)

    def initial_state(self, parameters: Parameters) -> State:
        """The optimizer's, its moments in fewer bits."""
        state = self.optimizer.initial_state(parameters)
        return {**state, **{name: self._begun(state[name], parameters) for name in self._names(state)}}

    def update(
        self, gradients: Parameters, state: State, parameters: Parameters, step: Tensor
    ) -> tuple[Parameters, State, dict[str, Tensor]]:
        """One step; see `Optimizer`."""
        names = self._names(state)
        moments = {name: self._read(state[name], parameters) for name in names}
        updated, new, reported = self.optimizer.update(gradients, {**state, **moments}, parameters, step)
        written = {
            name: map_tree(lambda x, name=name: self._written(name, x) if _is_large(x) else x, new[name])
            for name in names
        }
        return updated, {**new, **written}, reported

    def _names(self, state: State) -> list[str]:
        """Of the moments that there are: without momentum there is none."""
        return [name for name in self.kept if name in state]

    def _begun(self, moments: Any, parameters: Parameters) -> Any:
        pairs = zip(flatten(moments)[0], flatten(parameters)[0], strict=False)
        nested_alike = flatten(moments)[1] == flatten(parameters)[1]
        expected = "an optimizer whose moments are nested like the parameters, and as large, as those of pcp.optimizers.adamw"
        require(nested_alike and all(one.shape == other.shape for one, other in pairs), self, expected)

        def begun(x: Any) -> Any:
            if not _is_large(x):
                return as_tensor(x)
            if self.moments == "bf16":
                return np.zeros(x.shape, DType.bf16.numpy)
            blocks = -(-math.prod(x.shape) // BLOCK)
            return np.zeros((blocks, BLOCK), np.int8), np.zeros(blocks, np.float32)

        return map_tree(begun, moments)

    def _read(self, moments: Any, parameters: Parameters) -> Any:
        """Moments in float32, nested like the parameters."""
        leaves = iter(flatten(moments)[0])

        def read(parameter: Tensor) -> Tensor:
            x = next(leaves)
            if not _is_large(parameter):
                return as_tensor(x)
            if self.moments == "bf16":
                return convert(x, DType.f32)
            wide = reshape(_BYTES.read(x, next(leaves)), (-1,))[: parameter.size]
            wide = reshape(wide, parameter.shape)
            square = wide * wide
            return square * square * sign(wide)

        return map_tree(read, parameters)

    def _written(self, name: str, x: Tensor) -> Any:
        if self.moments == "bf16":
            return bf16_by_chance(x)
        x = sign(x) * sqrt(sqrt(abs_(x)))
        blocks = -(-x.size // BLOCK)
        flat = concatenate([reshape(x, (-1,)), zeros((blocks * BLOCK - x.size,), DType.f32)])
        rows = reshape(flat, (blocks, BLOCK))
        scales = max_(abs_(rows), -1, keepdims=True) / np.float32(_BYTES.largest)
        chance = convert(shift_right(noise_of(rows), np.uint32(8)), DType.f32) * np.float32(2.0**-24)
        values = floor(rows / where(scales > 0.0, scales, 1.0) + chance)
        if name == SQUARES:  # what is divided by never becomes 0, unless it was
            values = where(rows > 0.0, maximum(values, 1.0), values)
        values = clip(values, -_BYTES.largest, _BYTES.largest)
        return convert(values, DType.i8), reshape(scales, (blocks,))


def stored(optimizer: Optimizer, moments: str = "int8") -> Stored:
    """An optimizer that keeps its moments in fewer bits: of AdamW, 2 or 4 bytes for each parameter instead of 8.

    Bytes hold the fourth root of a number's size, so that numbers of one block may lie 2e8 apart. AdamW's parameters move in 40
    steps of noisy gradients as in float64 but for 0.3 % in bfloat16, and in bytes for 3 % where the gradients of a block are up
    to 10 apart, 6 % where they are 100 apart, and 12 % where they are 1,000 apart (`tests/optimizers/test_stored.py`).

    Arguments:
        optimizer: whose moments are nested like the parameters, as `adamw`, `lion` or `sgd`.
        moments: `int8`, bytes with a scale for each 256; or `bf16`.

    Raises:
        InvalidOptimizer: the optimizer does not say which of its state are moments, or `moments` is something else.
    """
    return Stored(optimizer, moments)


def _is_large(x: Any) -> bool:
    return math.prod(x.shape) >= LEAST and str(x.dtype) in ("f32", "float32")
