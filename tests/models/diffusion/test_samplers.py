"""Samplers as tables: those that are right end at the image, whatever the schedule, if the model always says the truth."""

import itertools

import numpy as np
import pytest

from pcp.models.diffusion.samplers import SAMPLERS, Steps, own_sampler, steps_of
from pcp.models.diffusion.schedule import Schedule, UnsupportedSchedule

BETAS = ("linear", "scaled_linear", "squaredcos_cap_v2")
PREDICTIONS = ("epsilon", "sample", "v_prediction")
SPACINGS = ("leading", "trailing", "linspace")


def truth(schedule: Schedule, image: np.ndarray, x: np.ndarray, alpha: float, sigma: float) -> np.ndarray:
    """What a model that knows the image says."""
    noise = (x - alpha * image) / sigma
    return {
        "epsilon": noise,
        "sample": image,
        "v_prediction": alpha * noise - sigma * image,
        "flow_prediction": noise - image,
    }[schedule.prediction]


def run(schedule: Schedule, steps: Steps, image: np.ndarray, x: np.ndarray, noise: np.ndarray) -> np.ndarray:
    """All steps in float64."""
    before = first = x * 0
    for number, time in enumerate(steps.times):
        row = {name: float(column[number]) for name, column in steps.columns.items()}
        if schedule.is_flow:
            sigma = float(time) / schedule.times
            alpha = 1 - sigma
        else:
            alpha = float(np.sqrt(np.float64(schedule.alphas()[int(time)])))
            sigma = float(np.sqrt(1 - alpha**2))
        said = truth(schedule, image, x, alpha, sigma)
        held = (x - alpha * image) / sigma
        first = held if number == 0 else first
        # Without new noise that of the beginning stays as it is; steps of DDIM end beside the times of linspace.
        if "x_noise" not in steps.columns and schedule.settings.get("timestep_spacing") != "linspace":
            assert np.abs(held - first).max() < 2e-2 * np.abs(first).max(), number
        made = row.get("image_x", 0) * x + row.get("image_p", 0) * said
        made = made if steps.clip is None else made.clip(-steps.clip, steps.clip)
        values = {"x_x": x, "x_p": said, "x_image": made, "x_before": before, "x_noise": noise}
        x, before = sum(row.get(name, 0) * value for name, value in values.items()), made
    return x


@pytest.mark.parametrize("sampler", ["ddim", "ddpm", "dpm++"])
def test_a_sampler_ends_at_the_image_that_the_model_knows(sampler: str) -> None:
    rng = np.random.default_rng()
    for betas, prediction, spacing, steps in itertools.product(BETAS, PREDICTIONS, SPACINGS, (1, 8, 20)):
        schedule = Schedule.of(
            {"beta_schedule": betas, "prediction_type": prediction, "timestep_spacing": spacing}, "here"
        )
        image, x, noise = rng.uniform(-0.9, 0.9, (3, 40))
        table = steps_of(sampler, schedule, steps)
        assert len(table.times) == steps
        made = run(schedule, table, image, x * 2, noise)
        assert np.abs(made - image).max() < 2e-3, (betas, prediction, spacing, steps)


@pytest.mark.parametrize("sampler", ["euler", "dpm++"])
def test_so_it_does_along_a_flow(sampler: str) -> None:
    rng = np.random.default_rng()
    for shift, karras, steps in itertools.product((1.0, 3.0), (False, True), (1, 6, 20)):
        settings = {
            "_class_name": "FlowMatchEulerDiscreteScheduler",
            "shift": shift,
            "use_karras_sigmas": karras,
        }
        schedule = Schedule.of(settings, "here")
        image, x, noise = rng.uniform(-0.9, 0.9, (3, 40))
        made = run(schedule, steps_of(sampler, schedule, steps), image, x, noise)
        assert np.abs(made - image).max() < 1e-4, (shift, karras, steps)


def test_levels_say_how_images_are_mixed_with_noise() -> None:
    for betas in BETAS:
        alpha, sigma = Schedule.of({"beta_schedule": betas, "rescale_betas_zero_snr": True}, "here").levels()
        assert np.allclose(alpha.astype(np.float64) ** 2 + sigma.astype(np.float64) ** 2, 1, atol=1e-6)
        assert alpha[-1] == 0
        assert np.all(np.diff(sigma) >= 0)
    alpha, sigma = Schedule.of(
        {"_class_name": "FlowMatchEulerDiscreteScheduler", "shift": 3.0}, "here"
    ).levels()
    assert np.allclose(alpha + sigma, 1)
    assert sigma[499] == pytest.approx(3 * 0.5 / (1 + 2 * 0.5))


def test_clipping_is_as_the_scheduler_says() -> None:
    assert (
        steps_of("ddim", Schedule.of({"clip_sample": True, "clip_sample_range": 2.0}, "here"), 4).clip == 2.0
    )
    assert steps_of("ddim", Schedule.of({"_class_name": "DDIMScheduler"}, "here"), 4).clip == 1.0
    assert steps_of("ddim", Schedule.of({"clip_sample": False}, "here"), 4).clip is None


def test_a_schedule_has_a_sampler_of_its_own() -> None:
    named = {
        "DDIMScheduler": "ddim",
        "DPMSolverMultistepScheduler": "dpm++",
        "FlowMatchEulerDiscreteScheduler": "euler",
    }
    for name, sampler in named.items():
        assert own_sampler(Schedule.of({"_class_name": name}, "here")) == sampler
    assert set(named.values()) <= set(SAMPLERS)


@pytest.mark.parametrize(
    ("sampler", "settings", "steps", "words"),
    [
        (
            "ddimm",
            {},
            4,
            r"there is no sampler 'ddimm' \(did you mean 'ddim'\?\); choose one of ddim, ddpm, euler, dpm\+\+",
        ),
        ("ddim", {}, 0, "steps is 0; expected a whole number from 1 to 1000"),
        ("ddim", {"num_train_timesteps": 50}, 51, "steps is 51; expected a whole number from 1 to 50"),
        ("euler", {}, 4, r"euler is not for a model of betas; choose ddim, ddpm or dpm\+\+"),
        (
            "ddim",
            {"_class_name": "FlowMatchEulerDiscreteScheduler"},
            4,
            r"not for a model of flows; choose euler or dpm\+\+",
        ),
        ("ddim", {"thresholding": True}, 4, "here sets thresholding to True; PCP samples with False"),
        (
            "ddim",
            {"beta_schedule": "laplace"},
            4,
            "sets beta_schedule to 'laplace'; PCP samples with 'linear', 'scaled_linear'",
        ),
        ("dpm++", {"solver_order": 3}, 4, "sets solver_order to 3; PCP samples with 1, 2"),
    ],
)
def test_what_is_not_there_is_told(sampler: str, settings: dict[str, object], steps: int, words: str) -> None:
    with pytest.raises(UnsupportedSchedule, match=words):
        steps_of(sampler, Schedule.of(settings, "here"), steps)
