"""Settings of runs that are over in seconds."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.loss_files import plain

SHORT = {
    "workers": 2,
    "steps": 24,
    "inner-steps": 4,
    "merge": "mean",  # what the replay in NumPy computes
    "shares": "equal",  # whatever else these cores do meanwhile
    "warmup-steps": 4,
    "evaluate-every": 8,
    "checkpoint-every": 8,
}
"""6 rounds of 4 steps by two workers."""


@pytest.fixture(scope="session")
def corpus(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A text in which there is something to learn, small enough that an evaluation takes no time."""
    generator = np.random.default_rng(3)
    words = [
        "thou",
        "art",
        "more",
        "lovely",
        "and",
        "temperate",
        "rough",
        "winds",
        "do",
        "shake",
        "the",
        "buds",
    ]
    path = tmp_path_factory.mktemp("corpus") / "words.txt"
    path.write_text(" ".join(generator.choice(words, 4000)), encoding="utf-8")
    return path


def options(settings: dict[str, Any]) -> list[str]:
    """Settings as options of `pcp train`."""
    return [f"--{name.replace('_', '-')}={value}" for name, value in settings.items()]


@pytest.fixture
def settings(corpus: Path) -> list[str]:
    """Options of `pcp train` that train a GPT-2."""
    return options({"data": corpus, "batch": 2} | SHORT)


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Options of `pcp train` that train a small network from a file, of which no text is sampled."""
    return options(plain(tmp_path).settings() | SHORT)
