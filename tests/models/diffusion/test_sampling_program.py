"""All of sampling as one program, beside the same steps in NumPy."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

from pcp.models.diffusion.samplers import steps_of
from pcp.models.diffusion.sampling import guided, noise_of, sampling_program
from pcp.models.diffusion.schedule import Schedule
from pcp.ops.elementwise import tanh
from pcp.ops.movement import reshape
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace

SHAPE = (3, 3, 2)
RNG = np.random.default_rng()


def says(weights: Any, x: Any, times: Any, labels: Any) -> Any:
    """A model of a few operations, of Tensors and of arrays."""
    mixed = x @ weights
    bent = tanh(mixed) if isinstance(mixed, Tensor) else np.tanh(mixed)
    told = times * 1e-3 + (0 if labels is None else labels * 0.1)
    return bent + (reshape(told, (-1, 1, 1, 1)) if isinstance(told, Tensor) else told.reshape(-1, 1, 1, 1))


@pytest.mark.parametrize(
    ("sampler", "settings"), [("ddim", {}), ("ddpm", {}), ("dpm++", {}), ("euler", {"flow": 1})]
)
def test_the_program_takes_the_steps_of_the_table(sampler: str, settings: dict[str, int]) -> None:
    flow = (
        {"_class_name": "FlowMatchEulerDiscreteScheduler"}
        if settings
        else {"clip_sample": sampler != "dpm++"}
    )
    steps = steps_of(sampler, Schedule.of(flow, "here"), 5)
    weights = RNG.normal(size=(2, 2)).astype(np.float32)
    program = sampling_program(says, specs_of(weights), SHAPE, steps, 4, with_labels=True)
    key = RNG.integers(0, 2**32, 2, dtype=np.uint32)
    numbers, labels = np.array([0, 5, 2, 7], np.int32), np.array([0, 1, 2, 1], np.int32)
    noises = [
        np.asarray(
            run(
                trace(lambda k, n, s=step: noise_of(k, n, s, SHAPE), spec((2,), "u32"), spec((4,), "i32")),
                key,
                numbers,
            )
        )
        for step in range(6)
    ]
    x, before = noises[0].astype(np.float64), 0.0
    for number, time in enumerate(steps.times):
        row = {name: float(column[number]) for name, column in steps.columns.items()}
        said = says(weights, x, np.full(4, time), labels)
        image = row.get("image_x", 0) * x + row.get("image_p", 0) * said
        image = image if steps.clip is None else image.clip(-steps.clip, steps.clip)
        values = {"x_x": x, "x_p": said, "x_image": image, "x_before": before, "x_noise": noises[number + 1]}
        x, before = sum(row.get(name, 0) * value for name, value in values.items()), image
    made = np.asarray(run(program, weights, key, numbers, labels))
    assert np.abs(made - x).max() < 2e-5 * max(1, np.abs(x).max())
    assert program.text.count("stablehlo.while") == 1


def test_the_noise_of_an_image_follows_from_its_number_alone() -> None:
    def drawn(numbers: list[int], step: int, seed: int) -> np.ndarray:
        program = trace(
            lambda k, n: noise_of(k, n, step, (200,)), spec((2,), "u32"), spec((len(numbers),), "i32")
        )
        return np.asarray(run(program, np.array([0, seed], np.uint32), np.array(numbers, np.int32)))

    many = drawn([0, 1, 2, 3], 1, 7)
    np.testing.assert_array_equal(many[2:3], drawn([2], 1, 7))
    assert not np.any(many[0] == many[1])
    assert not np.any(many == drawn([0, 1, 2, 3], 2, 7))
    assert not np.any(many == drawn([0, 1, 2, 3], 1, 8))
    assert abs(many.mean()) < 0.2
    assert abs(many.std() - 1) < 0.2


def test_guidance_leads_away_from_images_of_no_class() -> None:
    weights, x = RNG.normal(size=(2, 2)).astype(np.float32), RNG.normal(size=(3, *SHAPE)).astype(np.float32)
    times, labels = RNG.uniform(0, 1000, 3).astype(np.float32), np.array([0, 1, 2], np.int32)
    led = guided(says, 2.5, 9)
    program = trace(lambda *given: led(*given), *map(specs_of, (weights, x, times, labels)))
    with_class, without = says(weights, x, times, labels), says(weights, x, times, labels * 0 + 9)
    expected = without + 2.5 * (with_class - without)
    np.testing.assert_allclose(
        np.asarray(run(program, weights, x, times, labels)), expected, rtol=1e-4, atol=1e-5
    )
    assert guided(says, 1, 9) is says
    assert guided(says, 3, None) is says
