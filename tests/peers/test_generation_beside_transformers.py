"""Text from a file that transformers wrote is the text that it generates itself."""

from pathlib import Path

import torch
import transformers

from pcp.inference import Sampling, generate
from pcp.models import gpt2
from pcp.models.gpt2_weights import load_transformers

CONFIG = gpt2.GPT2Config(layers=3, heads=4, width=32, context=24, vocabulary=61)


def test_greedy_text_is_equal(tmp_path: Path) -> None:
    torch.manual_seed(5)
    configuration = transformers.GPT2Config(
        vocab_size=CONFIG.vocabulary,
        n_positions=CONFIG.context,
        n_embd=CONFIG.width,
        n_layer=CONFIG.layers,
        n_head=CONFIG.heads,
    )
    theirs = transformers.GPT2LMHeadModel(configuration).eval()
    with torch.no_grad():
        # No weight is 0 or 1, and no two scores are nearly equal.
        for parameter in theirs.parameters():
            parameter.add_(0.1 * torch.randn_like(parameter))
    theirs.save_pretrained(tmp_path)
    prompt = [3, 1, 4, 1, 5]
    expected = theirs.generate(
        torch.tensor([prompt]),
        attention_mask=torch.ones((1, len(prompt)), dtype=torch.long),
        max_new_tokens=CONFIG.context - len(prompt),
        do_sample=False,
        pad_token_id=0,
        eos_token_id=None,
    )[0, len(prompt) :].tolist()
    parameters = load_transformers(tmp_path / "model.safetensors", CONFIG)
    assert list(generate(parameters, CONFIG, prompt, len(expected), Sampling(temperature=0))) == expected
    assert len(set(expected)) > 1
