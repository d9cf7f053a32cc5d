"""What serving a model will take, before it is loaded: memory, and how fast it can be by what its device reads and computes."""

import time
from dataclasses import dataclass

import numpy as np

from pcp.backends import Target
from pcp.inference.reading import reading
from pcp.inference.text_model import CACHE_BYTES, TextModel
from pcp.ir.tree import flatten
from pcp.ops.linear.stored import FORMATS
from pcp.planning import plan
from pcp.planning.capacity import memory_limit
from pcp.tracing import spec, trace
from pcp.training.utilisation import peak_of

BITS = {"": 0} | {name: round(each.row_bytes(1024) / 128) for name, each in FORMATS.items()}
"""Of an element of a stored matrix; 0 as it is."""
PROMPT = 512
"""Tokens of the prompt that a forecast speaks of, or the context if that is shorter."""
_PROBE_BYTES, _TRIES = 1 << 28, 4


@dataclass(frozen=True, slots=True)
class Forecast:
    """What a model takes and gives.

    Arguments:
        weight_bytes: of the weights as they are stored on the device.
        cache_bytes: of keys and values.
        limit_bytes: of the device's memory that may be used.
        tokens_per_second: of one text, at most: each token reads all weights.
        prompt: tokens of a prompt.
        first_token_seconds: after that prompt, at least: each of its tokens is multiplied with all weights.
    """

    weight_bytes: int
    cache_bytes: int
    limit_bytes: int
    tokens_per_second: float
    prompt: int
    first_token_seconds: float

    @property
    def fits(self) -> bool:
        """Whether the memory is enough."""
        return self.weight_bytes + self.cache_bytes <= self.limit_bytes


def forecast(model: TextModel, device: str, weights: str, rows: int, cache: str = "") -> Forecast:
    """The forecast for a model whose weights are mapped and not read.

    Arguments:
        weights, cache: how matrices, keys and values are stored; see `TextModel.engine`.
        rows: texts at once.
    """
    leaves, tree = flatten(model.parameters)
    stored, weight_bytes, numbers = BITS.get(weights, 0), 0, 0
    for name, leaf in zip(tree.names(), leaves, strict=True):
        size, part = int(np.prod(leaf.shape, dtype=np.int64)), name.rpartition(".")[2]
        is_matrix, is_part = len(leaf.shape) > 1, part in ("values", "scales", "offsets")
        own = np.dtype(leaf.dtype).itemsize * 8
        weight_bytes += size * (stored if stored and is_matrix and not is_part else own) // 8
        if is_matrix and part not in ("scales", "offsets"):
            numbers += size * (2 if is_part and leaf.dtype == np.uint8 else 1)
    empty = reading(model.config).empty_cache(model.parameters, 1, 1, cache)
    of_token = sum(leaf.nbytes for leaf in flatten(empty)[0])
    held = max(min(rows * model.config.context * of_token, CACHE_BYTES), model.config.context * of_token)
    prompt = min(PROMPT, model.config.context - 1)
    speed = bytes_per_second(device)
    seconds = max(2 * prompt * numbers / peak_of(device).flops_per_second, weight_bytes / speed)
    limit = memory_limit(Target.of(device))
    return Forecast(weight_bytes, held, limit, speed / weight_bytes, prompt, seconds)


def bytes_per_second(device: str) -> float:
    """How fast a device reads its memory: the fastest of a few sums of 256 MiB, measured now."""
    shape = (_PROBE_BYTES // 4096, 1024)
    summed = plan(trace(lambda x: x.sum(axis=1), spec(shape, "f32")), device)
    run = summed.bind(*summed.place_first(np.ones(shape, np.float32))).run
    seconds = []
    for _ in range(_TRIES):
        start = time.perf_counter()
        np.asarray(run())
        seconds.append(time.perf_counter() - start)
    return _PROBE_BYTES / min(seconds)
