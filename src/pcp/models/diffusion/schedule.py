"""How noisy images are at each time, as a scheduler_config.json of diffusers says it, and what a model predicts of them.

An image with noise is alpha * image + sigma * noise. With betas alpha^2 + sigma^2 = 1; of a flow alpha + sigma = 1.
"""

import itertools
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from pcp.errors import PCPError

Array = np.ndarray[Any, Any]

_MOST_BETA = 0.999
PREDICTIONS = ("epsilon", "sample", "v_prediction", "flow_prediction")
"""What a model predicts: the noise, the image, alpha * noise - sigma * image, or noise - image."""

_FLOWS = ("FlowMatchEulerDiscreteScheduler",)
_REFUSED = {
    "thresholding": (False, None),
    "use_exponential_sigmas": (False, None),
    "use_beta_sigmas": (False, None),
    "use_lu_lambdas": (False, None),
    "use_dynamic_shifting": (False, None),
    "invert_sigmas": (False, None),
    "shift_terminal": (None, 0),
    "stochastic_sampling": (False, None),
    "euler_at_final": (False, None),
    "variance_type": (None, "fixed_small", "fixed_large", "learned", "learned_range"),
    "beta_schedule": (None, "linear", "scaled_linear", "squaredcos_cap_v2"),
    "timestep_spacing": (None, "leading", "trailing", "linspace"),
    "prediction_type": (None, *PREDICTIONS),
    "algorithm_type": (None, "dpmsolver++"),
    "solver_type": (None, "midpoint", "heun"),
    "solver_order": (None, 1, 2),
    "final_sigmas_type": (None, "zero", "sigma_min"),
}


class UnsupportedSchedule(PCPError):
    """A schedule of noise that PCP does not have, or a number of steps that it has not."""


@dataclass(frozen=True)
class Schedule:
    """A schedule of noise.

    Arguments:
        settings: of a scheduler, as diffusers names them; what is left out is as in the sampler that reads it.
    """

    settings: Mapping[str, Any]

    @staticmethod
    def of(settings: Mapping[str, Any], where: str) -> "Schedule":
        """The schedule that settings describe.

        Arguments:
            where: the file, for messages.

        Raises:
            UnsupportedSchedule: they have something that changes the steps and that PCP has not.
        """
        for name, accepted in _REFUSED.items():
            value = settings.get(name)
            if value not in accepted:
                known = ", ".join(repr(each) for each in accepted if each is not None)
                raise UnsupportedSchedule(f"{where} sets {name} to {value!r}; PCP samples with {known}")
        return Schedule(dict(settings))

    @property
    def is_flow(self) -> bool:
        """Whether noise grows along straight lines."""
        return self.settings.get("_class_name") in _FLOWS or bool(self.settings.get("use_flow_sigmas"))

    @property
    def times(self) -> int:
        """Times that a model was trained at."""
        return int(self.settings.get("num_train_timesteps", 1000))

    @property
    def prediction(self) -> str:
        """What the model predicts, one of `PREDICTIONS`."""
        return "flow_prediction" if self.is_flow else str(self.settings.get("prediction_type", "epsilon"))

    @property
    def clip(self) -> float | None:
        """Bound of the pixels of a predicted image; None where there is none."""
        clips = self.settings.get(
            "clip_sample", self.settings.get("_class_name") in ("DDIMScheduler", "DDPMScheduler")
        )
        return float(self.settings.get("clip_sample_range", 1.0)) if clips else None

    def alphas(self) -> Array:
        """alpha^2 at every time of a schedule with betas, f32[times]: rounded as diffusers rounds it, for that models saw.

        Source: Ho et al., 2020, section 2; cosines: Nichol and Dhariwal, "Improved DDPM", 2021, equation 17; rescaled: Lin et
        al., "Common Diffusion Noise Schedules and Sample Steps are Flawed", 2023, algorithm 1.
        """
        s, f32 = self.settings, np.float32
        low, high = s.get("beta_start", 0.0001), s.get("beta_end", 0.02)
        kind = s.get("beta_schedule") or "linear"
        if s.get("trained_betas") is not None:
            betas = np.asarray(s["trained_betas"], f32)
        elif kind == "linear":
            betas = np.linspace(low, high, self.times).astype(f32)
        elif kind == "scaled_linear":
            betas = np.linspace(low**0.5, high**0.5, self.times).astype(f32) ** 2
        else:
            bars = [
                math.cos((t / self.times + 0.008) / 1.008 * math.pi / 2) ** 2 for t in range(self.times + 1)
            ]
            betas = np.array([min(1 - b / a, _MOST_BETA) for a, b in itertools.pairwise(bars)], f32)
        products = np.cumprod(1 - betas, dtype=f32)
        if not s.get("rescale_betas_zero_snr"):
            return products
        roots = np.sqrt(products)
        rescaled = ((roots - roots[-1]) * (roots[0] / (roots[0] - roots[-1]))) ** 2
        return np.cumprod(np.concatenate([rescaled[:1], rescaled[1:] / rescaled[:-1]]), dtype=f32)

    def levels(self) -> tuple[Array, Array]:
        """alpha and sigma at every time that a model is trained at, f32[times]; of a flow at (1, ..., times) / times."""
        if self.is_flow:
            sigma = np.arange(1, self.times + 1) / self.times
            shift = float(self.settings.get("shift", 1.0))
            sigma = shift * sigma / (1 + (shift - 1) * sigma)
            return (1 - sigma).astype(np.float32), sigma.astype(np.float32)
        alphas = self.alphas()
        return np.sqrt(alphas), np.sqrt(1 - alphas)
