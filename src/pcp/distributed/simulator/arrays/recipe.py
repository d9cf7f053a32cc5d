"""A recipe whose every batch moves the parameters by a vector that is known: the loss is a scalar product with the batch."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, cached_property
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np

from pcp import ops
from pcp.distributed.round_arithmetic.fragments import Partition
from pcp.ir import Program
from pcp.optimizers import SGD
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.run_data import SampleData
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.data.samples import Samples
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.recipe import Recipe

EMBEDDING = "embedding"
SIZES = {EMBEDDING: 6, "bias": 2, "kernel": 5, "output": 4}
TOTAL = sum(SIZES.values())
SAMPLES = 61  # batches after which they come again in another order


def _parts(vector: Any) -> dict[str, Any]:
    """Nested parameters from a vector of all of them."""
    parts, start = {}, 0
    for name, size in SIZES.items():
        parts[name] = vector[start : start + size]
        start += size
    return parts


@dataclass(frozen=True)
class LinearRecipe(Recipe):
    """`loss(parameters, x) = <parameters, x>`, plain gradient descent with rate 1: batch x moves the parameters by -x.

    All x are multiples of 1/32 up to 1, so a sum of many is exact in f32.
    """

    @cached_property
    def parameters(self) -> dict[str, Any]:
        """Some numbers."""
        return _parts(np.arange(TOTAL, dtype=np.float32) / 8 - 1)

    @cached_property
    def data(self) -> SampleData:
        """The vectors x."""
        drawn = np.random.default_rng(11).integers(-32, 33, (SAMPLES, TOTAL)).astype(np.float32) / 32
        return SampleData(*(Samples(Path("simulated"), (part,)) for part in (drawn, drawn[:1])))

    @property
    def file(self) -> bytes:
        """The content of the file of samples."""
        file = BytesIO()
        write_arrays(file, {"0": self.data.training.arrays[0]})
        return file.getvalue()

    @cached_property
    def loss(self) -> Program:
        """See `Recipe`."""

        def loss(parameters: Any, x: Tensor) -> Tensor:
            return ops.sum(ops.concatenate([parameters[name] * part for name, part in _parts(x[0]).items()]))

        return trace(loss, specs_of(self.parameters), spec((1, TOTAL), "f32"))

    @property
    def evaluation(self) -> Program:
        """The loss."""
        return self.loss

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The loss of one sample."""
        return float(evaluate(*self.data.validation.arrays))

    @cached_property
    def optimizer(self) -> Any:
        """Plain gradient descent; the run's description is one of gradient descent, too."""
        return SGD(1.0)


@cache
def recipe() -> LinearRecipe:
    """The recipe of every simulated run on arrays."""
    return LinearRecipe(TrainingConfig(steps=1 << 20, batch=1, clip_norm=0.0, seed=3))


@cache
def movement(partition: Partition, batch: int) -> tuple[Any, ...]:
    """How far downhill a batch moves each fragment: flat."""
    (x,) = recipe().batches.batch(batch)
    return tuple(np.asarray(each, np.float64) for each in partition.vectors(_parts(x[0])))
