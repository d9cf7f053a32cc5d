"""Settings of runs that are over in seconds."""

from pathlib import Path

import numpy as np
import pytest


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


@pytest.fixture
def settings(corpus: Path) -> list[str]:
    """Options of `pcp train`: 6 rounds of 4 steps by two workers."""
    chosen = {
        "steps": 24,
        "inner-steps": 4,
        "merge": "mean",  # what the replay in NumPy computes
        "shares": "equal",  # whatever else these cores do meanwhile
        "batch": 2,
        "warmup-steps": 4,
        "evaluate-every": 8,
        "checkpoint-every": 8,
    }
    options = [f"--{name}={value}" for name, value in chosen.items()]
    return ["--data", str(corpus), "--workers", "2", *options]
