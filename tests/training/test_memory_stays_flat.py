"""Nothing piles up: neither over many training steps nor over many traces and derivatives."""

import gc
import multiprocessing
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

import pcp

PAGE = 4096
STATUS = Path("/proc/self/statm")

pytestmark = pytest.mark.skipif(not STATUS.exists(), reason="resident memory is read from /proc")


def resident() -> float:
    """Resident memory of this process, in MiB."""
    gc.collect()
    return int(STATUS.read_text().split()[1]) * PAGE / 2**20


Alone = Callable[[Callable[[int], tuple[float, int]], int], tuple[float, int]]


@pytest.fixture(scope="module")
def alone() -> Iterator[Alone]:
    """What a function measures in a process of these tests: what others have left behind grows the heap by chance."""
    with ProcessPoolExecutor(1, multiprocessing.get_context("spawn")) as processes:
        yield lambda measure, count: processes.submit(measure, count).result()


def loss(params: dict[str, Any], x: Any) -> Any:
    """A network with a loop, whose gradient has one too."""
    y = pcp.tanh(x @ params["up"]) @ params["down"]
    y = pcp.fori_loop(0, 3, lambda _, z: z * 0.5 + pcp.sin(z), y)
    return (y**2).mean()


PARAMS = {
    "up": np.random.default_rng(0).standard_normal((8, 16)).astype(np.float32),
    "down": np.random.default_rng(1).standard_normal((16, 8)).astype(np.float32),
}
X = np.random.default_rng(2).standard_normal((4, 8)).astype(np.float32)


def grown_over_steps(steps: int) -> tuple[float, int]:
    """Growth of resident memory, in MiB, and of the number of live buffers, over training steps after the first 500."""
    step = pcp.training_step(loss, pcp.optimizers.adamw(1e-3), PARAMS, pcp.spec(X.shape, "f32"))
    plan = pcp.plan(step)
    state, metrics = step.initial_state(PARAMS), {}
    for _ in range(500):
        state, metrics = plan.run(state, (X,))
    float(metrics["loss"])
    memory, buffers = resident(), len(jax.live_arrays())
    for _ in range(steps):
        state, metrics = plan.run(state, (X,))
    float(metrics["loss"])
    return resident() - memory, len(jax.live_arrays()) - buffers


def grown_over_builds(builds: int) -> tuple[float, int]:
    """Growth of resident memory, in MiB, and of the number of Python objects, over builds after the first 50."""
    for _ in range(50):
        pcp.grad(pcp.trace(loss, PARAMS, pcp.spec(X.shape, "f32")))
    memory, objects = resident(), len(gc.get_objects())
    for _ in range(builds):
        pcp.grad(pcp.trace(loss, PARAMS, pcp.spec(X.shape, "f32")))
    return resident() - memory, len(gc.get_objects()) - objects


def test_memory_is_flat_over_ten_thousand_steps(alone: Alone) -> None:
    memory, buffers = alone(grown_over_steps, 10_000)
    assert buffers == 0
    assert memory < 4  # the state is 6 kB: keeping it would take 60 MiB


def test_building_does_not_leak(alone: Alone) -> None:
    memory, objects = alone(grown_over_builds, 100)
    assert objects < 50
    assert memory < 3  # their modules would take 5 MiB


@pytest.mark.long
def test_two_thousand_builds_do_not_leak(alone: Alone) -> None:
    memory, objects = alone(grown_over_builds, 2000)
    assert objects < 100
    assert memory < 3


def grown_by(size: int) -> tuple[float, int]:
    """Growth of resident memory, in MiB, and of the number of live buffers, by a hoard of numbers and ten results."""
    plan = pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec(X.shape, "f32")))
    memory, buffers = resident(), len(jax.live_arrays())
    kept = [plan.run(X) for _ in range(10)]
    hoard = np.ones(size)
    grown = resident() - memory, len(jax.live_arrays()) - buffers
    del kept, hoard  # which have to live until here
    return grown


def test_a_leak_would_be_seen(alone: Alone) -> None:
    memory, buffers = alone(grown_by, 2**23)  # 64 MiB
    assert buffers == 10
    assert memory > 32
