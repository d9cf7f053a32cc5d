"""`pcp generate` on a folder as `transformers` writes it: the text of its weights, and what is refused."""

import json
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from safetensors.numpy import save_file

import pcp
from pcp.cli import main
from pcp.importers.transformers_folder import read_transformers_folder
from pcp.inference import Sampling, TextModel
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.names import to_transformers
from pcp.models.published import gpt2_config

tokenizers = pytest.importorskip("tokenizers")

TEXT = "to be or not to be, that is the question: whether 'tis nobler in the mind to suffer"
CONFIG = gpt2_config(layers=2, heads=2, width=16, context=40, vocabulary=270)
SETTINGS = {
    "model_type": "gpt2",
    "architectures": ["GPT2LMHeadModel"],
    "n_layer": 2,
    "n_head": 2,
    "n_embd": 16,
    "n_positions": 40,
    "vocab_size": 270,
    "activation_function": "gelu_new",
    "layer_norm_epsilon": 1e-5,
}


@pytest.fixture(scope="module")
def parameters() -> Any:
    """Parameters large enough that no two scores are nearly equal, exact in bfloat16."""
    generator = np.random.default_rng(8)
    return map_tree(
        lambda p: (p + generator.normal(size=p.shape)).astype(ml_dtypes.bfloat16).astype(np.float32),
        decoder.initial_parameters(CONFIG),
    )


@pytest.fixture
def folder(tmp_path: Path, parameters: Any) -> Path:
    """What `save_pretrained` leaves of a model and its tokenizer."""
    (tmp_path / "config.json").write_text(json.dumps(SETTINGS))
    save_file(to_transformers(parameters, CONFIG), tmp_path / "model.safetensors")
    tokenizer = tokenizers.Tokenizer(tokenizers.models.BPE())
    tokenizer.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = tokenizers.decoders.ByteLevel()
    alphabet = tokenizers.pre_tokenizers.ByteLevel.alphabet()
    trainer = tokenizers.trainers.BpeTrainer(vocab_size=270, initial_alphabet=alphabet, show_progress=False)
    tokenizer.train_from_iterator([TEXT] * 3, trainer)
    assert tokenizer.get_vocab_size() == 270
    tokenizer.save(str(tmp_path / "tokenizer.json"))
    return tmp_path


def text_of(folder: Path, capsys: pytest.CaptureFixture[str]) -> str:
    arguments = ["--prompt", TEXT, "--tokens", "9", "--temperature", "0", "--json"]
    assert main(["generate", str(folder), *arguments]) == 0
    text = json.loads(capsys.readouterr().out)["text"]
    assert isinstance(text, str)
    return text


def test_text_comes_from_the_weights_and_the_tokenizer_of_the_folder(
    folder: Path, parameters: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    tokenizer = tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokens = pcp.generate(
        TextModel(parameters, CONFIG), tokenizer.encode(TEXT).ids, 9, Sampling(temperature=0)
    )
    expected = tokenizer.decode(list(tokens))
    assert len(set(expected)) > 1
    assert text_of(folder, capsys) == expected


def test_the_older_files_of_a_tokenizer_and_several_files_of_weights_do_as_well(
    folder: Path, parameters: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    expected = text_of(folder, capsys)
    tokenizers.Tokenizer.from_file(str(folder / "tokenizer.json")).model.save(str(folder))
    (folder / "tokenizer.json").unlink()
    (folder / "model.safetensors").unlink()
    tensors = {
        name: array.astype(ml_dtypes.bfloat16) for name, array in to_transformers(parameters, CONFIG).items()
    }
    halves = {
        "a.safetensors": dict(list(tensors.items())[:9]),
        "b.safetensors": dict(list(tensors.items())[9:]),
    }
    for file, half in halves.items():
        save_file(half, folder / file)
    places = {name: file for file, half in halves.items() for name in half}
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
    assert text_of(folder, capsys) == expected
    leaves = flatten(read_transformers_folder(folder).parameters)[0]
    assert {leaf.dtype for leaf in leaves} == {np.dtype(np.float32)}


@pytest.mark.parametrize(
    ("setting", "value", "message"),
    [
        ("model_type", "bert", "is of a model of type 'bert'; `pcp generate` runs only gpt2, llama, mistral"),
        (
            "activation_function",
            "tanh",
            "sets activation_function to 'tanh'; PCP's GPT-2 supports only 'silu' or",
        ),
        ("scale_attn_by_inverse_layer_idx", True, "sets scale_attn_by_inverse_layer_idx to True"),
        ("n_embd", None, "lacks n_embd; expected the config.json of a GPT-2 that transformers wrote"),
        ("n_layer", 3, "missing, and gpt2(layers=3"),
    ],
)
def test_another_model_is_refused_with_what_to_do(
    folder: Path, setting: str, value: Any, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps(SETTINGS | {setting: value}))
    assert main(["generate", str(folder)]) == 2
    assert message in capsys.readouterr().err


LLAMA = {
    "model_type": "llama", "num_hidden_layers": 1, "num_attention_heads": 2, "hidden_size": 8, "intermediate_size": 6,
    "max_position_embeddings": 9, "vocab_size": 270,
}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"hidden_act": "tanh"}, "sets hidden_act to 'tanh'; PCP's Llama supports only 'silu' or 'swish'"),
        ({"head_dim": 7}, "7 features of a head turn; expected an even number, at most 7"),
        ({"rope_scaling": {"rope_type": "llama3", "factor": 8.0}}, "does not hold what a Llama needs: KeyError('low_freq"),
        ({"rope_parameters": {"rope_type": "spiral"}}, "sets rope_type to 'spiral'; PCP's Llama supports only 'default'"),
        (
            {"sliding_window": 4, "layer_types": ["chunked_attention"]},
            "has layers of type chunked_attention, which PCP's decoder lacks",
        ),
        ({"vocab_size": 269}, "has 270 tokens, its model 269; write the tokenizer of this model there"),
        ({"vocab_size": None}, "lacks vocab_size; expected the config.json of a Llama that transformers wrote"),
        ({"num_key_value_heads": 3}, "key_value_heads must divide heads"),
        ({}, "missing, and llama(layers=1"),
    ],
)  # fmt: skip
def test_a_llama_that_computes_something_else_is_refused(
    folder: Path, changes: dict[str, Any], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "config.json").write_text(json.dumps(LLAMA | changes))
    assert main(["generate", str(folder)]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("file", "message"),
    [
        (
            "model.safetensors",
            "has no model.safetensors; write it with transformers: AutoModelForCausalLM.from_pretrained(",
        ),
        (
            "tokenizer.json",
            "has a model but neither tokenizer.json nor vocab.json and merges.txt; write the tokenizer",
        ),
    ],
)
def test_a_missing_file_is_named_with_how_to_make_it(
    folder: Path, file: str, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / file).unlink()
    assert main(["generate", str(folder)]) == 2
    assert message in capsys.readouterr().err
