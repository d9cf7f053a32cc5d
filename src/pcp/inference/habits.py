"""What the files of a model say of its answers: where they end, and how tokens are drawn."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pcp.inference.sampling import Sampling
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import Tokenizer

SETTINGS = ("temperature", "top_k", "top_p", "min_p", "repetition_penalty")
"""Of `Sampling`, that generation_config.json may recommend."""


@dataclass(frozen=True, slots=True)
class Habits:
    """How a model answers where nobody says otherwise.

    Arguments:
        ends: tokens that end an answer.
        sampling: settings of `Sampling` that its makers recommend; what a user says goes before.
    """

    ends: tuple[int, ...] = ()
    sampling: Mapping[str, float] = field(default_factory=dict)

    @staticmethod
    def of(folder: Path, tokenizer: Tokenizer) -> "Habits":
        """The habits in a folder of transformers: generation_config.json, config.json, and the tokenizer's own end."""
        generation, config = (_json_in(folder / name) for name in ("generation_config.json", "config.json"))
        found = generation.get("eos_token_id", config.get("eos_token_id"))
        ends = [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, int)]
        own = tokenizer.end_of_text if isinstance(tokenizer, BytePairTokenizer) else None
        if own is not None and own not in ends:
            ends.append(own)
        known = {name: generation[name] for name in SETTINGS if isinstance(generation.get(name), int | float)}
        if generation.get("do_sample") is False:
            known = {name: value for name, value in known.items() if name == "repetition_penalty"}
        return Habits(tuple(each for each in ends if each < tokenizer.vocabulary_size), known)

    def drawing(self, said: Mapping[str, Any], otherwise: Mapping[str, Any] | None = None) -> Sampling:
        """How tokens are drawn: as a user says, else as the makers recommend, else in another way.

        Arguments:
            said, otherwise: settings of `Sampling` by name.

        Raises:
            InvalidSampling: a setting that makes no sense.
        """
        settings = {**(otherwise or {}), **self.sampling, **said}
        if settings.get("top_k") in (0, -1):  # how some say "among all"
            settings["top_k"] = None
        return Sampling(**settings)


def _json_in(file: Path) -> dict[str, Any]:
    try:
        content = json.loads(file.read_text("utf-8"))
    except (OSError, ValueError, RecursionError):  # whoever reads the model has complained of what matters
        return {}
    return content if isinstance(content, dict) else {}
