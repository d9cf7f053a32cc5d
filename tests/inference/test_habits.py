"""What the files of a model say of its answers, and what goes before what."""

import json
from pathlib import Path
from typing import Any

import pytest

from pcp.inference.habits import Habits
from pcp.inference.sampling import InvalidSampling, Sampling
from pcp.training.data.tokenizer import CharacterTokenizer

LETTERS = CharacterTokenizer("abcdef")


def habits(folder: Path, generation: Any, config: Any) -> Habits:
    for name, content in (("generation_config.json", generation), ("config.json", config)):
        (folder / name).write_text(content if isinstance(content, str) else json.dumps(content))
    return Habits.of(folder, LETTERS)


@pytest.mark.parametrize(
    ("generation", "config", "ends"),
    [
        ({"eos_token_id": [4, 2]}, {"eos_token_id": 1}, (4, 2)),
        ({"eos_token_id": 3}, {"eos_token_id": 1}, (3,)),
        ({}, {"eos_token_id": 1}, (1,)),
        ({"eos_token_id": None}, {"eos_token_id": 1}, ()),
        ({"eos_token_id": [5, 6]}, {}, (5,)),  # the tokenizer has six
        ("no JSON", {"eos_token_id": [0]}, (0,)),
        ([1], {}, ()),
    ],
)
def test_which_tokens_end_an_answer(
    tmp_path: Path, generation: Any, config: Any, ends: tuple[int, ...]
) -> None:
    assert habits(tmp_path, generation, config).ends == ends


def test_what_a_user_says_goes_before_what_the_makers_recommend(tmp_path: Path) -> None:
    found = habits(tmp_path, {"temperature": 0.6, "top_k": 20, "top_p": 0.95, "num_beams": 4}, {})
    assert found.drawing({}) == Sampling(0.6, 20, 0.95)
    assert found.drawing({"temperature": 0, "top_k": 0, "seed": 4}) == Sampling(0, None, 0.95, seed=4)
    assert found.drawing({}, {"temperature": 1.0, "min_p": 0.1}) == Sampling(0.6, 20, 0.95, 0.1)
    assert Habits().drawing({}, {"temperature": 1.0}) == Sampling(1.0)
    assert Habits().drawing({}) == Sampling()
    with pytest.raises(InvalidSampling, match="top_p is 2; expected above 0, at most 1"):
        found.drawing({"top_p": 2})


def test_where_nothing_is_drawn_by_recommendation_only_the_penalty_stays(tmp_path: Path) -> None:
    found = habits(tmp_path, {"do_sample": False, "temperature": 0.6, "repetition_penalty": 1.1}, {})
    assert found.drawing({}) == Sampling(repetition_penalty=1.1)
