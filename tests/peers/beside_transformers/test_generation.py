"""Text from a folder that transformers wrote is the text that it generates itself."""

import json
from pathlib import Path
from typing import Any

import pytest
import tokenizers
import torch
import transformers

import pcp
from pcp.cli import main
from pcp.importers.weights import map_weights
from pcp.inference import Sampling, TextModel
from pcp.models.names import from_transformers
from pcp.models.published import gpt2_config

CONFIG = gpt2_config(layers=3, heads=4, width=32, context=48, vocabulary=61)
WORDS = [f"w{number}" for number in range(CONFIG.vocabulary)]


@pytest.fixture(scope="module")
def theirs() -> Any:
    torch.manual_seed(5)
    configuration = transformers.GPT2Config(
        vocab_size=CONFIG.vocabulary,
        n_positions=CONFIG.context,
        n_embd=CONFIG.width,
        n_layer=CONFIG.layers,
        n_head=CONFIG.heads,
    )
    model = transformers.GPT2LMHeadModel(configuration).eval()
    with torch.no_grad():
        # No weight is 0 or 1, and no two scores are nearly equal.
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model


def their_text(theirs: Any, prompt: list[int]) -> list[int]:
    """What transformers adds until the context is full, always the best token."""
    whole = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=CONFIG.context - len(prompt),
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )
    text: list[int] = whole[0, len(prompt) :].tolist()
    assert len(set(text)) > 1
    return text


# The first is read token by token, the others at once, padded to 32 and to 48.
@pytest.mark.parametrize("length", [5, 21, 40])
def test_greedy_text_is_equal(theirs: Any, length: int, tmp_path: Path) -> None:
    theirs.save_pretrained(tmp_path)
    prompt = torch.randint(CONFIG.vocabulary, (length,), generator=torch.manual_seed(length)).tolist()
    expected = their_text(theirs, prompt)
    parameters = from_transformers(map_weights(tmp_path / "model.safetensors"), CONFIG)
    assert (
        pcp.generate(TextModel(parameters, CONFIG), prompt, len(expected), Sampling(temperature=0))
        == expected
    )


def save(theirs: Any, folder: Path) -> None:
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, "w0"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.WhitespaceSplit()
    theirs.save_pretrained(folder)
    transformers.PreTrainedTokenizerFast(tokenizer_object=words).save_pretrained(folder)


def test_the_command_takes_the_folder(
    theirs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    save(theirs, tmp_path)
    prompt = torch.randint(CONFIG.vocabulary, (20,), generator=torch.manual_seed(3)).tolist()
    text = " ".join(WORDS[token] for token in prompt)
    arguments = ["--prompt", text, "--tokens", "28", "--temperature", "0", "--json"]
    assert main(["generate", str(tmp_path), *arguments]) == 0
    expected = "".join(f" {WORDS[token]}" for token in their_text(theirs, prompt))
    assert json.loads(capsys.readouterr().out)["text"] == expected


@pytest.mark.parametrize("file", ["generation_config.json", "config.json"])
def test_an_answer_ends_where_theirs_does(
    theirs: Any, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str
) -> None:
    save(theirs, tmp_path)
    prompt = torch.randint(CONFIG.vocabulary, (20,), generator=torch.manual_seed(3)).tolist()
    whole = their_text(theirs, prompt)
    absent = next(token for token in range(CONFIG.vocabulary) if token not in whole)
    # Drawn among one token, which is greedy, as the file recommends.
    settings = {"eos_token_id": [absent, whole[7]]} | (
        {"do_sample": True, "top_k": 1} if file[0] == "g" else {}
    )
    (tmp_path / "generation_config.json").unlink()
    held = json.loads((tmp_path / file).read_text()) if file == "config.json" else {}
    (tmp_path / file).write_text(json.dumps(held | settings))
    reloaded = transformers.AutoModelForCausalLM.from_pretrained(tmp_path)
    mask = torch.ones((1, 20), dtype=torch.long)
    their_answer = reloaded.generate(
        torch.tensor([prompt]), attention_mask=mask, max_new_tokens=28, pad_token_id=0
    )
    expected = their_answer[0, 20:].tolist()
    assert len(expected) == whole.index(whole[7]) + 1 < len(whole)

    sampling = None if file[0] == "g" else Sampling(temperature=0)
    assert pcp.generate(tmp_path, prompt, 28, sampling) == expected
    assert pcp.generate(tmp_path, prompt, 28, sampling, ignore_end=True) == whole
    text = " ".join(WORDS[token] for token in prompt)
    arguments = ["generate", str(tmp_path), "--prompt", text, "--tokens", "28", "--json"]
    arguments += [] if sampling is None else ["--temperature", "0"]
    for more, tokens in (([], expected[:-1]), (["--ignore-end"], whole)):
        assert main([*arguments, *more]) == 0
        assert json.loads(capsys.readouterr().out)["text"] == "".join(f" {WORDS[token]}" for token in tokens)
