"""Every family as its configuration makes it: imported as it is called, trained beside PyTorch, and with symbolic sizes."""

from typing import Any

import numpy as np
import pytest
import torch
from tests.peers.beside_transformers.families import CAUSAL, MASKED, TRANSLATING, built, tokens

import pcp
from pcp.symbolic.template import BuiltDifferently

QUICK = ("gpt2", "bert", "t5")
TRAINED = {**CAUSAL, **MASKED, **TRANSLATING}
UNROLLED = ("mamba", "mamba2")
"""Those of whose operations the number depends on the length."""
SYMBOLIC = [name for name in CAUSAL if name not in UNROLLED]
LEARNING_RATE, DECAY = 3e-3, 0.1


def shown(names: Any, quick: tuple[str, ...]) -> list[Any]:
    """Families of which only some are tried in every run."""
    return [name if name in quick else pytest.param(name, marks=pytest.mark.long) for name in names]


@pytest.mark.parametrize("family", shown(TRAINED, QUICK))
def test_twenty_steps_have_the_losses_of_torch(family: str) -> None:
    model = built(*TRAINED[family])
    text = tokens(2, 9)
    imported = pcp.from_torch(model, input_ids=text, labels=text, output="loss")
    optimizer = pcp.optimizers.adamw(
        LEARNING_RATE, betas=(0.9, 0.95), weight_decay=DECAY, decays=lambda *_: True
    )
    step = pcp.training_step(imported.program, optimizer)
    held = [imported.buffers] if imported.buffers else []
    plan, state = pcp.plan(step), step.initial_state(imported.weights, *held)
    theirs = torch.optim.AdamW(model.parameters(), LEARNING_RATE, betas=(0.9, 0.95), weight_decay=DECAY)
    losses = []
    for _ in range(20):
        state, metrics = plan.run(state, (text.numpy(), text.numpy()))
        loss = model(input_ids=text, labels=text).loss
        theirs.zero_grad()
        loss.backward()
        theirs.step()
        losses.append(float(metrics["loss"]))
        assert losses[-1] == pytest.approx(loss.item(), rel=2e-3)
    assert losses[-1] < losses[0]  # of Cohere, whose scores are scaled down, by a fortieth


@pytest.mark.long
@pytest.mark.parametrize("family", SYMBOLIC)
def test_one_program_is_right_at_every_batch_and_length(family: str) -> None:
    model = built(*CAUSAL[family])
    text = pcp.spec(("batch", "length"), "i32")
    imported: Any = pcp.from_torch(model, input_ids=text, output="logits", constraints=["length <= 32"])
    held = [imported.buffers] if imported.buffers else []
    rng = np.random.default_rng()
    for batch, length in ((1, 32), *rng.integers(1, 30, (2, 2)).tolist()):
        x = rng.integers(3, 43, (batch, length)).astype(np.int32)
        plan = pcp.plan(imported.program.at(batch=batch, length=length), "arena:cpu")
        found = np.asarray(plan.run(imported.weights, *held, x))
        with torch.no_grad():
            wanted = model(torch.from_numpy(x.astype(np.int64))).logits.numpy()
        assert np.abs(found - wanted).max() <= 1e-4 * np.abs(wanted).max(), (batch, length)


@pytest.mark.long
@pytest.mark.parametrize("family", UNROLLED)
def test_a_decoder_that_is_unrolled_by_its_length_is_refused(family: str) -> None:
    text = pcp.spec(("batch", "length"), "i32")
    with pytest.raises(
        BuiltDifferently, match=r"the program has \d+ lines for .* expected as many operations for all sizes"
    ):
        pcp.from_torch(built(*CAUSAL[family]), input_ids=text, output="logits", constraints=["length <= 32"])
