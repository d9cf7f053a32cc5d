"""The first hour: lines of a session, a model of transformers imported, fine-tuned on two Workers, and used again.

    python examples/08_first_hour.py [--folder first-hour] [--steps 100]

It needs PyTorch and transformers: `pip install ".[torch]"`. The model and its tokenizer are small ones made here;
a folder that `save_pretrained` wrote takes their place.
"""

import argparse
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

import pcp

QUESTIONS = [f"Question: what is {a} plus {b}? Answer: {a + b}." for a in range(12) for b in range(12)]


def lines_of_a_session() -> None:
    """What one types first: operations at once, a function that is compiled, its gradient."""
    x = pcp.array([[1.0, 2.0], [3.0, 4.0]])
    print(pcp.tanh(x).sum(), x @ x, f"{x.mean():.2f}")

    @pcp.jit
    def loss(weights: Any, x: Any) -> Any:
        return ((x @ weights) ** 2).mean()

    weights = np.array([0.5, -1.0], np.float32)
    gradient = pcp.grad(loss)(weights, x)
    by_hand = x.numpy().T @ (x.numpy() @ weights)
    print("gradient as by hand:", np.allclose(gradient, by_hand, rtol=1e-5))


def make_model(folder: Path) -> None:
    """A small Llama with a tokenizer of its own, as `save_pretrained` writes them."""
    pieces = Tokenizer(models.BPE())
    pieces.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    pieces.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(
        vocab_size=300, initial_alphabet=alphabet, special_tokens=["<|end|>"], show_progress=False
    )
    pieces.train_from_iterator(QUESTIONS, trainer)
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=pieces, eos_token="<|end|>")
    torch.manual_seed(0)
    config = transformers.LlamaConfig(
        vocab_size=len(tokenizer), hidden_size=64, intermediate_size=128, num_hidden_layers=2, num_attention_heads=4,
        num_key_value_heads=2, max_position_embeddings=64, bos_token_id=None, eos_token_id=0,
    )  # fmt: skip
    transformers.LlamaForCausalLM(config).save_pretrained(folder)
    tokenizer.save_pretrained(folder)


def train_in_python(folder: Path) -> None:
    """Import the model as it is called, make a step of it, plan the step within a tolerance, and run it."""
    model = transformers.AutoModelForCausalLM.from_pretrained(folder)
    tokens = np.random.default_rng(0).integers(0, 250, (4, 32)).astype(np.int32)
    imported = pcp.from_torch(model, input_ids=tokens, labels=tokens, output="loss")
    step = pcp.training_step(imported, pcp.optimizers.adamw(3e-3))
    plan = pcp.plan(step, tolerance=1e-2, budget=5)
    state = step.initial_state(imported)
    losses = []
    for _ in range(20):
        state, metrics = plan.run(state, (tokens, tokens))
        losses.append(float(metrics["loss"]))
    ids = torch.from_numpy(tokens).long()
    first = model(input_ids=ids, labels=ids).loss.item()
    print("loss of the first step is PyTorch's:", abs(losses[0] / first - 1) < 1e-2)
    print("loss fell:", losses[-1] < losses[0])


def same_logits(folder: Path, run: Path) -> bool:
    """Whether what was exported is, in transformers, what PCP computes with the run's own model."""
    tuned, own = (
        transformers.AutoModelForCausalLM.from_pretrained(place).eval() for place in (folder, run / "model")
    )
    tokens = torch.arange(24).reshape(2, 12)
    imported = pcp.from_torch(own, input_ids=tokens, output="logits")
    with torch.no_grad():
        logits = tuned(input_ids=tokens).logits.numpy()
    return bool(np.allclose(imported(tokens.numpy()), logits, atol=1e-4))


def run_pcp(*arguments: str) -> str:
    """Run the command `pcp`, and return what it prints."""
    print("pcp", *arguments)
    done = subprocess.run([sys.executable, "-m", "pcp", *arguments], stdout=subprocess.PIPE, text=True)
    if done.returncode:
        raise SystemExit(f"pcp {arguments[0]} ended with {done.returncode}: {done.stdout[-2000:]}")
    return done.stdout


def main() -> None:
    """All of it, in order."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--folder", type=Path, default=Path("first-hour"))
    parser.add_argument("--steps", type=int, default=100)
    arguments = parser.parse_args()
    folder: Path = arguments.folder
    folder.mkdir(parents=True)
    model, data, run, tuned = (folder / name for name in ("my-model", "answers.jsonl", "run", "tuned"))
    lines_of_a_session()
    make_model(model)
    train_in_python(model)
    data.write_text("".join(json.dumps({"text": text}) + "\n" for text in QUESTIONS))
    said = run_pcp(
        "train", "--model", str(model), "--data", str(data), "--run", str(run), "--steps", str(arguments.steps),
        "--batch", "2", "--inner-steps", "10", "--learning-rate", "3e-3", "--workers", "2", "--lora", "rank=4",
    )  # fmt: skip
    print(said.splitlines()[-1])
    print(run_pcp("generate", str(run), "--prompt", "Question: what is 2 plus 3? Answer:", "--tokens", "8"))
    run_pcp("export", str(run), str(tuned))
    print("the same logits in transformers:", same_logits(tuned, run))


if __name__ == "__main__":
    main()
