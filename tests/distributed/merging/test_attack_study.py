"""Two of eight workers attack a whole run: with the default merge it ends where a clean one does. Minutes."""

from collections.abc import Callable

import numpy as np
import pytest
from benchmarks.distributed.attacks import ATTACKS, attack

from pcp.distributed.algorithms import DiLoCo
from pcp.distributed.round_arithmetic.lockstep import Lockstep
from pcp.models.published import gpt2_config
from pcp.training.data.token_file import write_token_file
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe

WORKERS, HOSTILE = 8, (2, 5)
STEPS, ROUNDS = 10, 30
VOCABULARY = 24
LOSS_ALLOWED = 0.05  # nats


def second_order_chain(length: int) -> np.ndarray:
    """Tokens of which each depends on the two before it, so that a small model learns for a while."""
    generator = np.random.default_rng(3)
    likely = generator.integers(0, VOCABULARY, (VOCABULARY, VOCABULARY, 3))
    choice = generator.choice(4, length, p=(0.5, 0.2, 0.1, 0.2))
    noise = generator.integers(0, VOCABULARY, length)
    tokens = [0, 1]
    for place in range(2, length):
        one, two = tokens[-2:]
        tokens.append(int(noise[place] if choice[place] == 3 else likely[one, two, choice[place]]))
    return np.array(tokens, np.int32)


@pytest.fixture(scope="module")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> DecoderRecipe:
    config = TrainingConfig(
        steps=STEPS * ROUNDS,
        batch=8,
        learning_rate=3e-3,
        final_learning_rate=3e-4,
        warmup_steps=20,
        inner_steps=STEPS,
        workers=WORKERS,
        seed=1,
    )
    model = gpt2_config(layers=1, heads=2, width=32, context=16, vocabulary=VOCABULARY, bias=False)
    tokens = second_order_chain(60_000)
    file = write_token_file(tmp_path_factory.mktemp("study") / "tokens.bin", tokens, VOCABULARY)
    return DecoderRecipe(config, model, file)


@pytest.fixture(scope="module")
def final_loss(recipe: DecoderRecipe) -> Callable[[str, str | None], float]:
    """The validation loss at the end, by merge and attack."""
    known: dict[tuple[str, str | None], float] = {}

    def final(merge: str, name: str | None) -> float:
        if (merge, name) not in known:
            tamper = None if name is None else attack(name, HOSTILE)
            run = Lockstep(recipe, DiLoCo(STEPS, merge=merge), WORKERS, tamper=tamper)
            for _ in range(ROUNDS):
                run.round()
            known[merge, name] = run.validation_loss()
        return known[merge, name]

    return final


@pytest.mark.long
@pytest.mark.parametrize("name", [None, *ATTACKS])
def test_the_default_merge_ends_where_a_clean_run_does(
    name: str | None, final_loss: Callable[[str, str | None], float]
) -> None:
    clean, found = final_loss("mean", None), final_loss("default", name)
    print(f"{name or 'nobody attacks'}: {found:.4f} nats; the mean of honest workers: {clean:.4f}")
    assert found <= clean + LOSS_ALLOWED


@pytest.mark.long
@pytest.mark.parametrize("name", ["sign flip", "sign flip x10", "stale"])
def test_the_plain_mean_does_not(name: str, final_loss: Callable[[str, str | None], float]) -> None:
    clean, found = final_loss("mean", None), final_loss("mean", name)
    print(f"{name}: {found:.4f} nats; the mean of honest workers: {clean:.4f}")
    assert not found <= clean + LOSS_ALLOWED
