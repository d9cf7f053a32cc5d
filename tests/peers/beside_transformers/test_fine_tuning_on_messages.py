"""`pcp train --model FOLDER --data chats.jsonl`: the loss of the answers is what transformers computes of the same labels."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from tests.peers.beside_transformers.test_fine_tuning import QUICK, saved, trained

SAID = ["to be", "or not", "that", "is", "noble"]


def test_a_decoder_learns_answers_and_transformers_agrees(tmp_path: Path) -> None:
    kind = saved(QUICK, tmp_path / "model")
    choose = np.random.default_rng().choice
    chats = [
        [{"role": "user", "content": choose(SAID)}, {"role": "assistant", "content": choose(SAID)}]
        for _ in range(40)
    ]
    data = tmp_path / "chats.jsonl"
    data.write_text("".join(json.dumps({"messages": each}) + "\n" for each in chats))
    settings = {"model": str(tmp_path / "model"), "data": str(data), "tokenizer": "bytes", "context": 32}
    recipe, records, out = trained(tmp_path / "run", settings)
    losses = [record["loss"] for record in records if "loss" in record]
    assert losses[-1] < losses[0]
    loaded, expected = kind.from_pretrained(out).eval(), []
    for tokens, targets in recipe.data.validation.in_batches(4):
        answers = [bytes(row[row >= 0].tolist()).decode().strip() for row in targets]
        assert set(answers) <= {*SAID}
        labels = np.concatenate([np.full((4, 1), -100), targets[:, :-1]], axis=1)
        with torch.no_grad():
            given = {"input_ids": tokens, "labels": labels}
            loss = loaded(
                **{name: torch.from_numpy(each.astype(np.int64)) for name, each in given.items()}
            ).loss
        expected.append(loss.item())
    assert records[-1]["validation_loss"] == pytest.approx(np.mean(expected), rel=1e-5)
