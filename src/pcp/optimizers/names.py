"""Optimizers by name, as a command and the settings of a run say them."""

import difflib
import importlib
from collections.abc import Callable
from typing import Any

from pcp.optimizers.adafactor import adafactor
from pcp.optimizers.adamw import adam, adamw
from pcp.optimizers.base import InvalidOptimizer, Optimizer, Schedule
from pcp.optimizers.lion import lion
from pcp.optimizers.muon import Muon
from pcp.optimizers.sgd import nesterov, sgd

_OPTAX = "pcp.importers.jax_optax"
"""A later layer, imported by whoever asks for a transformation of optax."""


def from_optax(transformation: Any) -> Optimizer:
    """A gradient transformation of optax as an optimizer: `from_optax(optax.chain(optax.clip(1.0), optax.adam(1e-3)))`.

    Its `update` is imported by `pcp.from_jax` into the training step, and its state is carried in its own types. Learning rates
    are optax's. PCP does not know which part of the state is kept from step to step (`kept` of an optimizer), so a plan within
    a tolerance judges all of it by its change.

    Arguments:
        transformation: with an `init` of parameters and an `update` of updates, state and parameters.

    Raises:
        InvalidOptimizer: it has no such functions, or, in a training step, its update needs more, as the value of the loss.
    """
    optimizer: Optimizer = importlib.import_module(_OPTAX).Optax(transformation)
    return optimizer


def _muon(
    learning_rate: float | Schedule,
    momentum: float = 0.95,
    weight_decay: float = 0.1,
    betas: tuple[float, float] = (0.9, 0.999),
) -> Muon:
    """Muon, with AdamW of the same rate and decay for what is no matrix."""
    return Muon(adamw(learning_rate, betas, weight_decay=weight_decay), momentum, weight_decay)


OPTIMIZERS: dict[str, Callable[..., Any]] = {
    "adamw": adamw,
    "adam": adam,
    "lion": lion,
    "muon": _muon,
    "adafactor": adafactor,
    "sgd": sgd,
    "nesterov": nesterov,
}


def by_name(name: str) -> Callable[..., Any]:
    """What makes the optimizer of a name, from a learning rate and further settings: `by_name("lion")(1e-4)`.

    Raises:
        InvalidOptimizer: there is none of that name.
    """
    if name in OPTIMIZERS:
        return OPTIMIZERS[name]
    near = difflib.get_close_matches(str(name).lower(), OPTIMIZERS, 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    raise InvalidOptimizer(
        f"there is no optimizer {name!r}{meant}; expected one of {', '.join(OPTIMIZERS)}, or an object with initial_state and "
        "update"
    )
