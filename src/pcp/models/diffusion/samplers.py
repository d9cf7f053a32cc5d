"""Samplers as tables: what a step makes of the noisy image, the model's word on it, and noise, in numbers known beforehand.

Every sampler here is one line of arithmetic with other numbers in each step:

    image = clip(image_x * x + image_p * prediction)
    x = x_x * x + x_p * prediction + x_image * image + x_before * image of the step before + x_noise * noise
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.errors import nearest
from pcp.models.diffusion.schedule import Schedule, UnsupportedSchedule

Array = np.ndarray[Any, Any]

_RHO = 7.0
_FEW = 15
"""Steps below which DPM++ takes a simpler last step."""


@dataclass(frozen=True)
class Steps:
    """The numbers of a sampler, f32[steps] each, by names as in the lines above.

    Arguments:
        times: what the model is told.
        columns: by their names; what is left out is 0.
        clip: bound of the image; None: none.
    """

    times: Array
    columns: dict[str, Array]
    clip: float | None = None

    @staticmethod
    def of(times: Any, rows: list[dict[str, float]], clip: float | None = None) -> "Steps":
        """Steps from a row of numbers for each."""
        names = sorted({name for row in rows for name, value in row.items() if value})
        columns = {name: np.array([row.get(name, 0.0) for row in rows], np.float32) for name in names}
        return Steps(np.asarray(times, np.float32), columns, clip)


def steps_of(sampler: str, schedule: Schedule, steps: int) -> Steps:
    """The steps of a sampler.

    Arguments:
        sampler: a name of `SAMPLERS`.
        schedule: that of the model.
        steps: how often the model is asked.

    Raises:
        UnsupportedSchedule: there is no such sampler, it does not fit the schedule, or steps are below 1 or too many.
    """
    if sampler not in SAMPLERS:
        raise UnsupportedSchedule(
            f"there is no sampler {sampler!r}{nearest(sampler, SAMPLERS)}; choose one of {', '.join(SAMPLERS)}"
        )
    if type(steps) is not int or not 1 <= steps <= schedule.times:
        raise UnsupportedSchedule(
            f"steps is {steps}; expected a whole number from 1 to {schedule.times}, the times that the model was trained at"
        )
    if schedule.is_flow != (sampler == "euler") and sampler != "dpm++":
        fits = "euler or dpm++" if schedule.is_flow else "ddim, ddpm or dpm++"
        kind = "flows" if schedule.is_flow else "betas"
        raise UnsupportedSchedule(f"the sampler {sampler} is not for a model of {kind}; choose {fits}")
    return SAMPLERS[sampler](schedule, steps)


def own_sampler(schedule: Schedule) -> str:
    """The sampler that goes with a schedule where none is asked for."""
    if schedule.is_flow:
        return "euler"
    return "dpm++" if str(schedule.settings.get("_class_name")).startswith("DPMSolver") else "ddim"


def image_of(prediction: str, alpha: float, sigma: float) -> dict[str, float]:
    """The image, from x = alpha * image + sigma * noise and what is predicted."""
    if prediction == "epsilon":
        return {"image_x": 1 / alpha, "image_p": -sigma / alpha}
    if prediction == "v_prediction":
        return {"image_x": alpha, "image_p": -sigma}
    if prediction == "flow_prediction":
        return {"image_x": 1.0, "image_p": -sigma}
    return {"image_p": 1.0}


def _noise_of(prediction: str, alpha: float, sigma: float) -> dict[str, float]:
    """The noise in it."""
    if prediction == "epsilon":
        return {"x_p": 1.0}
    if prediction == "v_prediction":
        return {"x_x": sigma, "x_p": alpha}
    return {"x_x": 1 / sigma, "x_p": -alpha / sigma}


def _spaced(schedule: Schedule, steps: int, default: str) -> Array:
    """The times of steps, from noisy to clean."""
    s, times = schedule.settings, schedule.times
    kind = s.get("timestep_spacing") or default
    if kind == "linspace":
        return np.linspace(0, times - 1, steps).round()[::-1].astype(np.int64)
    if kind == "leading":
        return (np.arange(steps) * (times // steps))[::-1] + int(s.get("steps_offset") or 0)
    return np.round(np.arange(times, 0, -times / steps)).astype(np.int64)[:steps] - 1


def ddim(schedule: Schedule, steps: int) -> Steps:
    """Song et al., "Denoising Diffusion Implicit Models", 2020, equation 12, without noise."""
    alphas, prediction = schedule.alphas().astype(np.float64), schedule.prediction
    times, stride = _spaced(schedule, steps, "leading"), schedule.times // steps
    last = 1.0 if schedule.settings.get("set_alpha_to_one", True) else float(alphas[0])
    rows = []
    for time in times:
        now, then = float(alphas[time]), float(alphas[time - stride]) if time >= stride else last
        alpha, sigma = math.sqrt(now), math.sqrt(1 - now)
        row = image_of(prediction, alpha, sigma)
        noise = _noise_of(prediction, alpha, sigma)
        kept = math.sqrt(1 - then)
        rows.append(
            row | {name: kept * value for name, value in noise.items()} | {"x_image": math.sqrt(then)}
        )
    return Steps.of(times, rows, schedule.clip)


def ddpm(schedule: Schedule, steps: int) -> Steps:
    """Ho et al., "Denoising Diffusion Probabilistic Models", 2020, algorithm 2: each step adds noise again."""
    alphas, prediction = schedule.alphas().astype(np.float64), schedule.prediction
    times = _spaced(schedule, steps, "leading")
    large = schedule.settings.get("variance_type") == "fixed_large"
    rows = []
    for time, following in zip(times, [*times[1:], None], strict=True):
        now, then = float(alphas[time]), 1.0 if following is None else float(alphas[following])
        ratio = now / then
        variance = 1 - ratio if large else max((1 - then) / (1 - now) * (1 - ratio), 1e-20)
        moved = {
            "x_image": math.sqrt(then) * (1 - ratio) / (1 - now),
            "x_x": math.sqrt(ratio) * (1 - then) / (1 - now),
            "x_noise": math.sqrt(variance) if time > 0 else 0.0,
        }
        rows.append(image_of(prediction, math.sqrt(now), math.sqrt(1 - now)) | moved)
    return Steps.of(times, rows, schedule.clip)


def euler(schedule: Schedule, steps: int) -> Steps:
    """Along a flow, straight on from each time to the next.

    Source: Lipman et al., "Flow Matching for Generative Modeling", 2022; the shift: Esser et al., "Scaling Rectified Flow
    Transformers", 2024, equation 23.
    """
    sigmas = _of_flow(schedule, steps)
    rows = [
        {"x_x": 1.0, "x_p": float(then - now), "image_x": 1.0, "image_p": -float(now)}
        for now, then in zip(sigmas, [*sigmas[1:], 0.0], strict=True)
    ]
    return Steps.of(sigmas * schedule.times, rows)


def dpm(schedule: Schedule, steps: int) -> Steps:
    """DPM-Solver++(2M): a step looks at the images of this step and of the one before.

    Source: Lu et al., "DPM-Solver++", 2022, algorithm 2.
    """
    s, flow = schedule.settings, schedule.is_flow
    if flow:
        sigmas = _of_flow(schedule, steps)
        times, last = sigmas * schedule.times, 0.0
        if s.get("use_flow_sigmas"):
            times = times.astype(np.int64)
    else:
        times, sigmas, last = _of_betas(schedule, steps)
    last = last if s.get("final_sigmas_type") == "sigma_min" else 0.0
    levels = [_level(float(np.float32(sigma)), flow) for sigma in [*sigmas, last]]
    rows = []
    for step in range(steps):
        (alpha, sigma), (alpha_then, sigma_then) = levels[step], levels[step + 1]
        final = step == steps - 1 and (last == 0 or (s.get("lower_order_final", True) and steps < _FEW))
        grown = _growth(levels[step], levels[step + 1])
        moved = -alpha_then * math.expm1(-grown)
        row = image_of(schedule.prediction, alpha, sigma)
        row |= {"x_x": sigma_then / sigma, "x_image": moved}
        if step and not final and s.get("solver_order", 2) == 2:
            slope = moved / 2
            if s.get("solver_type") == "heun":
                slope = alpha_then * (math.expm1(-grown) / grown + 1)
            slope *= grown / _growth(levels[step - 1], levels[step])
            row |= {"x_image": moved + slope, "x_before": -slope}
        rows.append(row)
    return Steps.of(times, rows)


def _level(sigma: float, flow: bool) -> tuple[float, float]:
    """alpha and sigma from sigma, or from sigma / alpha where they are no flow."""
    alpha = 1 - sigma if flow else 1 / math.sqrt(sigma**2 + 1)
    return alpha, sigma if flow else sigma * alpha


def _growth(now: tuple[float, float], then: tuple[float, float]) -> float:
    """How much the logarithm of alpha / sigma grows."""
    logarithms = [
        -math.inf if not alpha else math.inf if not sigma else math.log(alpha / sigma)
        for alpha, sigma in (now, then)
    ]
    return logarithms[1] - logarithms[0]


def _of_flow(schedule: Schedule, steps: int) -> Array:
    """sigma of the steps along a flow."""
    s, times = schedule.settings, schedule.times
    if s.get("use_flow_sigmas"):
        shift = float(s.get("flow_shift", 1.0))
        parts = (1 - np.linspace(1, 1 / times, steps + 1))[::-1][:-1]
        return np.asarray(shift * parts / (1 + (shift - 1) * parts))
    shift = float(s.get("shift", 1.0))

    def shifted(sigma: Any) -> Any:
        return shift * sigma / (1 + (shift - 1) * sigma)

    sigmas = shifted(np.linspace(shifted(1.0), shifted(1 / times), steps))
    return _karras(sigmas[0], sigmas[-1], steps) if s.get("use_karras_sigmas") else np.asarray(sigmas)


def _of_betas(schedule: Schedule, steps: int) -> tuple[Array, Array, float]:
    """Times of the steps of DPM++, sigma / alpha there, and the least of these."""
    times: Array
    s, alphas = schedule.settings, schedule.alphas()
    if s.get("rescale_betas_zero_snr"):
        alphas[-1] = 2.0**-24
    ratios = np.sqrt((1 - alphas) / alphas)
    lowest = s.get("lambda_min_clipped", -math.inf)
    count = int(np.sum(-np.log(ratios) >= float(lowest)))
    kind = s.get("timestep_spacing") or "linspace"
    if s.get("use_karras_sigmas"):
        sigmas = _karras(ratios[-1], ratios[0], steps)
        between = np.interp(np.log(sigmas), np.log(ratios), np.arange(len(ratios)))
        times = between if s.get("beta_schedule") == "squaredcos_cap_v2" else between.round()
        return times.astype(np.int64), sigmas, float(ratios[0])
    if kind == "linspace":
        times = np.linspace(0, count - 1, steps + 1).round()[::-1][:-1].astype(np.int64)
    elif kind == "leading":
        times = (np.arange(steps + 1) * (count // (steps + 1)))[::-1][:-1] + int(s.get("steps_offset") or 0)
    else:
        times = np.arange(count, 0, -schedule.times / steps).round().astype(np.int64)[:steps] - 1
    return times, ratios[times], float(ratios[0])


def _karras(most: float, least: float, steps: int) -> Array:
    """Karras et al., "Elucidating the Design Space of Diffusion-Based Generative Models", 2022, equation 5."""
    ends = float(most) ** (1 / _RHO), float(least) ** (1 / _RHO)
    return np.asarray((ends[0] + np.linspace(0, 1, steps) * (ends[1] - ends[0])) ** _RHO)


SAMPLERS: dict[str, Callable[[Schedule, int], Steps]] = {
    "ddim": ddim,
    "ddpm": ddpm,
    "euler": euler,
    "dpm++": dpm,
}
