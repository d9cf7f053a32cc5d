"""What a run's settings lead to: tokenizers by name, micro-batches, and what is refused."""

import sys
from pathlib import Path
from typing import Any

import pytest

from pcp.training.data.tokenizer import TokenizerUnreadable
from pcp.training.extras import MissingExtra
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.recipes.prepare import prepare
from pcp.training.recipes.recipe import Recipe
from pcp.training.run_folder import RunFolder

TEXT = "the quick brown fox jumps over the lazy dog, naïvely. " * 40


def prepared(path: Path, data: bytes = TEXT.encode(), **settings: Any) -> Recipe:
    path.mkdir(exist_ok=True)
    (path / "corpus.txt").write_bytes(data)
    config = TrainingConfig().replaced(data=str(path / "corpus.txt"), **settings)
    return prepare(RunFolder.create(path / "run", config))


@pytest.mark.parametrize(("name", "size"), [("characters", len(set(TEXT))), ("bytes", 256)])
def test_tokenizers_by_name(tmp_path: Path, name: str, size: int) -> None:
    recipe = prepared(tmp_path, tokenizer=name)
    assert recipe.model.vocabulary == size
    tokens = RunFolder(tmp_path / "run").tokenizer().encode(TEXT)
    assert recipe.tokens.training[:50].tolist() == tokens[:50].tolist()


def test_bytes_need_not_be_text(tmp_path: Path) -> None:
    data = bytes(range(256)) * 40
    assert prepared(tmp_path, data, tokenizer="bytes").tokens.training[128:256].tolist() == list(
        data[128:256]
    )


def test_byte_pairs_learnt_from_the_data(tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    recipe = prepared(tmp_path, TEXT.encode() * 6, tokenizer="bpe", vocabulary=280)
    assert recipe.model.vocabulary == 280
    tokenizer = RunFolder(tmp_path / "run").tokenizer()
    assert tokenizer.decode(tokenizer.encode(TEXT).tolist()) == TEXT


def test_byte_pairs_without_the_package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(MissingExtra, match=r"pip install 'planetary-compute-protocol\[tokenizers\]'"):
        prepared(tmp_path, tokenizer="bpe")


def test_an_unknown_tokenizer(tmp_path: Path) -> None:
    with pytest.raises(TokenizerUnreadable, match="cannot read the tokenizer words: No such file"):
        prepared(tmp_path, tokenizer="words")


def test_accumulation_takes_the_same_batches(tmp_path: Path) -> None:
    whole = prepared(tmp_path / "whole", batch=4)
    parts = prepared(tmp_path / "parts", batch=4, accumulate=2)
    assert parts.loss.arguments[-1].spec.shape == (2, 64)
    assert parts.step.arguments[-1].spec == whole.step.arguments[-1].spec
    assert parts.tokens_per_step == whole.tokens_per_step
    assert (parts.batches.batch(3)[0] == whole.batches.batch(3)[0]).all()


def test_rematerialisation_changes_the_step_alone(tmp_path: Path) -> None:
    kept = prepared(tmp_path / "kept", batch=2)
    again = prepared(tmp_path / "again", batch=2, remat="dots_saveable")
    assert again.loss == kept.loss
    tanh = [each.step.to_stablehlo().count("stablehlo.tanh") for each in (kept, again)]
    assert tanh[1] == 2 * tanh[0]


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"accumulate": 5}, "accumulate is 5; expected a divisor of batch, which is 12"),
        ({"accumulate": 0}, "accumulate is 0; expected at least 1"),
        ({"vocabulary": 100}, "vocabulary is 100; expected at least 256"),
    ],
)
def test_settings_out_of_range(settings: dict[str, int], message: str) -> None:
    with pytest.raises(InvalidTrainingConfig, match=message):
        TrainingConfig().replaced(**settings)
