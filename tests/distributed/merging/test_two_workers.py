"""The default merge among two: one of them poisons, and the run still learns, or stands still and says so."""

import zlib
from collections.abc import Callable, Mapping
from pathlib import Path

import numpy as np
import pytest
from benchmarks.distributed.attacks import Attack

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.merging import Merged, Segment, State, merge
from pcp.distributed.merging.base import Vector
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import write_token_file
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe
from tests.distributed.merging.contributions import SEGMENTS, SIZE, distance, honest, loaders

ROUNDS = 12
VOCABULARY = 24


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> DecoderRecipe:
    """A model that learns within a few rounds which token follows which."""
    config = TrainingConfig(
        steps=10 * ROUNDS,
        batch=4,
        learning_rate=3e-3,
        final_learning_rate=3e-4,
        warmup_steps=10,
        inner_steps=10,
        workers=2,
        seed=1,
    )
    model = gpt2_config(layers=1, heads=2, width=16, context=8, vocabulary=VOCABULARY, bias=False)
    generator, tokens = np.random.default_rng(3), [0]
    for _ in range(20_000):
        next_one = (tokens[-1] * 5 + 7) % VOCABULARY
        tokens.append(next_one if generator.random() > 0.1 else int(generator.integers(0, VOCABULARY)))
    folder: Path = tmp_path_factory.mktemp("two")
    return DecoderRecipe(
        config, model, write_token_file(folder / "tokens.bin", np.array(tokens, np.int32), VOCABULARY)
    )


def poisoned(change: Callable[[np.ndarray], np.ndarray], first_round: int = 0) -> Attack:
    """The second worker sends something else from a round on."""

    def send(round: int, _fragment: int, pushed: Mapping[int, Vector]) -> Mapping[int, Vector]:
        return {
            worker: change(np.asarray(vector)) if worker == 1 and round >= first_round else vector
            for worker, vector in pushed.items()
        }

    return send


def noise(vector: np.ndarray) -> np.ndarray:
    """A thousand times as long, in any direction."""
    random = np.random.default_rng(zlib.crc32(vector.tobytes())).standard_normal(vector.size)
    found: np.ndarray = 1000 * np.linalg.norm(vector) / np.linalg.norm(random) * random
    return found.astype(np.float32)


def losses(recipe: DecoderRecipe, name: str, tamper: Attack | None) -> tuple[float, float]:
    run = Lockstep(recipe, DiLoCo(10, merge=name), 2, tamper=tamper)
    before = run.validation_loss()
    for _ in range(ROUNDS):
        run.round()
    return before, run.validation_loss()


@pytest.mark.parametrize(
    "tamper",
    [
        poisoned(lambda vector: -10 * vector, first_round=3),
        poisoned(noise),
        poisoned(lambda vector: 1e-6 * vector, first_round=3),
    ],
    ids=["sign flip x10 from the fourth round on", "noise x1000", "next to nothing from the fourth round on"],
)
def test_one_of_two_poisons_and_the_run_still_learns(recipe: DecoderRecipe, tamper: Attack) -> None:
    before, clean = losses(recipe, "mean", None)
    assert clean < before - 2.0
    assert losses(recipe, "default", tamper)[1] < clean + 0.2


def test_what_contradicts_from_the_first_round_on_stops_the_training_and_undoes_nothing(
    recipe: DecoderRecipe,
) -> None:
    before, after = losses(recipe, "default", poisoned(lambda vector: -10 * vector))
    assert after == before


def rounds_of(rows: list[np.ndarray], weights: tuple[float, ...] = (1.0, 1.0)) -> list[Merged]:
    state: State | None = None
    found = []
    for each in rows:
        found.append(merge("default", SEGMENTS)(loaders(each), weights[: len(each)], state))
        state = found[-1].state
    return found


def test_of_two_neither_is_longer_than_the_other() -> None:
    rows = honest(3, 2, 0.3)
    [plain] = rounds_of([rows])
    rows[1] *= 1e4
    [merged] = rounds_of([rows])
    assert distance(merged.mean, np.asarray(plain.mean, np.float64)) < 0.2
    assert "is left of it" in merged.verdicts[1].reason
    assert merged.verdicts[0].reason == ""


def test_who_sends_nothing_does_not_take_the_other_along() -> None:
    rows = [honest(seed, 2, 0.3) for seed in (3, 3, 4)]
    rows[1] = rows[1] * 1.1  # nothing is sent twice
    rows[2][1] *= 1e-9
    merged = rounds_of(rows)[-1]
    assert distance(2 * np.asarray(merged.mean), rows[2][0].astype(np.float64)) < 0.3


def test_one_alone_may_be_twice_as_long_as_is_usual() -> None:
    rows = [honest(3, 2, 0.3), honest(3, 1, 0.3) * 1000]
    usual, alone = rounds_of(rows)
    ratio = np.linalg.norm(np.asarray(alone.mean)) / np.linalg.norm(np.asarray(usual.mean))
    assert 1.5 < ratio < 2.5
    [first] = rounds_of([rows[1]])
    assert distance(first.mean, rows[1][0].astype(np.float64)) < 1e-6, "nothing is usual in the first round"


def test_of_two_that_contradict_each_other_the_one_counts_that_earlier_rounds_agree_with() -> None:
    common = honest(5, 4, 0.5)
    flipped = np.stack([common[2], -common[3]])
    [_, merged] = rounds_of([common[:2], flipped])
    assert [verdict.weight for verdict in merged.verdicts] == [1.0, 0.0]
    assert "it contradicts the other, which agrees more with earlier rounds" in merged.verdicts[1].reason


def test_of_two_that_contradict_each_other_in_the_first_round_neither_counts() -> None:
    common = honest(5, 2, 0.5)
    [merged] = rounds_of([np.stack([common[0], -common[1]])])
    assert not np.asarray(merged.mean).any()
    for verdict in merged.verdicts:
        assert verdict.reason == (
            "the two contradict each other, and no earlier round says which is right, so neither counts"
        )


def test_segments_are_those_of_the_state() -> None:
    state = merge("default", [Segment("weights", SIZE)]).initial_state()
    assert {name: value.shape for name, value in state.items()} == {
        "seen": (1024, 64),
        "norms": (16, 1),
        "direction": (512,),
    }


def test_the_state_keeps_its_element_types_where_the_training_stands_still() -> None:
    default = merge("default", SEGMENTS)
    vector = np.ones(SIZE, np.float32)
    first = default.initial_state()
    after = default(loaders(np.stack([vector, -vector])), [1.0, 1.0]).state
    assert {name: each.dtype for name, each in after.items()} == {
        name: each.dtype for name, each in first.items()
    }
