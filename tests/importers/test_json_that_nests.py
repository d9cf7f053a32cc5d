"""JSON that nests without end, in files that somebody gave, is refused like other JSON that is none."""

from pathlib import Path

import pytest

from pcp.importers.weights import WeightsUnreadable, _places
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.tokenizer import TokenizerUnreadable
from pcp.training.recipes.model_folder import holds_transformers_model

NESTED = "[" * 100_000


def test_an_index_of_weights(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors.index.json").write_text(NESTED)
    with pytest.raises(WeightsUnreadable, match=r"is not an index of safetensors files; .*RecursionError"):
        _places(tmp_path / "model.safetensors.index.json")


def test_settings_of_a_model(tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text(NESTED)
    assert not holds_transformers_model(tmp_path)


def test_a_tokenizer() -> None:
    with pytest.raises(TokenizerUnreadable, match="This is not a saved tokenizer of a kind known here"):
        tokenizer_from_json(NESTED)
