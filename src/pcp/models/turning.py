"""Speeds of rotary positions from the settings that the `transformers` library writes: every kind of scaling.

Newer files hold `rope_parameters`, perhaps one for each type of layer; older ones `rope_theta` and `rope_scaling`.
"""

import math
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from pcp.models.config import Rotary

Settings = Mapping[str, Any]
Floats = np.ndarray[Any, np.dtype[np.float64]]


def rotary_settings(settings: Settings, layers: str = "") -> dict[str, Any]:
    """What the settings of a model say of its rotary positions, under the newer names.

    Arguments:
        layers: the type of layers that is meant, where each has its own.
    """
    newer = settings.get("rope_parameters") or {}
    if layers and isinstance(newer.get(layers), Mapping):
        newer = newer[layers]
    older = settings.get("rope_scaling") or {}
    found = {"rope_theta": settings.get("rope_theta", settings.get("rotary_emb_base")), **older, **newer}
    partial = settings.get("partial_rotary_factor", settings.get("rotary_pct"))
    found.setdefault("partial_rotary_factor", 1.0 if partial is None else partial)
    found["rope_type"] = found.get("rope_type") or found.get("type") or "default"
    if found["rope_type"] == "su":  # the former name
        found["rope_type"] = "longrope"
    if found.get("original_max_position_embeddings") is None:
        own = settings.get("original_max_position_embeddings") or settings.get("max_position_embeddings")
        found["original_max_position_embeddings"] = own
    return found


def rotary_of(settings: Settings, found: Settings, head_width: int) -> Rotary:
    """How queries and keys turn.

    Arguments:
        settings: of the model.
        found: as of `rotary_settings`, of a kind in `KINDS`.
        head_width: numbers of a query of one head.
    """
    width, base = int(head_width * found["partial_rotary_factor"]), float(found["rope_theta"] or 10000.0)
    more = KINDS[found["rope_type"]](found, base ** (-np.arange(0, width, 2) / width), settings)
    return Rotary(base, None if width == head_width else width, **more)


def _default(_found: Settings, _speeds: Floats, _settings: Settings) -> dict[str, Any]:
    return {}


def _linear(found: Settings, speeds: Floats, _settings: Settings) -> dict[str, Any]:
    return {"speeds": _floats(speeds / found["factor"])}


def _dynamic(found: Settings, _speeds: Floats, settings: Settings) -> dict[str, Any]:
    """Emozilla, "Dynamically scaled RoPE", 2023."""
    return {"growth": float(found["factor"]), "original": int(settings["max_position_embeddings"])}


def _llama3(found: Settings, speeds: Floats, _settings: Settings) -> dict[str, Any]:
    """Llama 3.1: slow pairs are slowed down, fast ones stay, those between are mixed."""
    low, high = found["low_freq_factor"], found["high_freq_factor"]
    turns = found["original_max_position_embeddings"] * speeds / (2 * math.pi)
    stays = np.clip((turns - low) / (high - low), 0, 1)
    return {"speeds": _floats(speeds * (stays + (1 - stays) / found["factor"]))}


def _yarn(found: Settings, speeds: Floats, settings: Settings) -> dict[str, Any]:
    """Peng et al., "YaRN: Efficient Context Window Extension of Large Language Models", 2023, section 3."""
    original, width = found["original_max_position_embeddings"], 2 * len(speeds)
    factor = found.get("factor") or settings["max_position_embeddings"] / original
    base = float(found["rope_theta"] or 10000.0)

    def pair(turns: float) -> float:
        return width * math.log(original / (turns * 2 * math.pi)) / (2 * math.log(base))

    low, high = pair(found.get("beta_fast") or 32), pair(found.get("beta_slow") or 1)
    if found.get("truncate", True):
        low, high = math.floor(low), math.ceil(high)
    low, high = max(low, 0), min(high, width - 1)
    slowed = np.clip((np.arange(len(speeds)) - low) / (high - low or 0.001), 0, 1)
    return {
        "speeds": _floats(speeds * (1 - slowed) + speeds / factor * slowed),
        "scale": _yarn_scale(found, factor),
    }


def _yarn_scale(found: Settings, factor: float) -> float:
    if found.get("attention_factor") is not None:
        return float(found["attention_factor"])

    def scale(times: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * times * math.log(factor) + 1.0

    one, every = found.get("mscale"), found.get("mscale_all_dim")
    return scale(one) / scale(every) if one and every else scale(1)


def _longrope(found: Settings, speeds: Floats, settings: Settings) -> dict[str, Any]:
    """Ding et al., "LongRoPE: Extending LLM Context Window Beyond 2 Million Tokens", 2024."""
    original = found["original_max_position_embeddings"]
    factor = found.get("factor") or settings["max_position_embeddings"] / original
    scale = found.get("attention_factor")
    if scale is None:
        scale = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(original))
    short, long = (_floats(speeds / np.asarray(found[kind])) for kind in ("short_factor", "long_factor"))
    return {"speeds": short, "long_speeds": long, "original": int(original), "scale": float(scale)}


def _floats(speeds: Floats) -> tuple[float, ...]:
    return tuple(float(speed) for speed in speeds)


KINDS: dict[str, Callable[[Settings, Floats, Settings], dict[str, Any]]] = {
    "default": _default,
    "linear": _linear,
    "dynamic": _dynamic,
    "llama3": _llama3,
    "yarn": _yarn,
    "longrope": _longrope,
}
"""Kind of scaling -> what it makes of the speeds of the base, as arguments of `Rotary`."""
