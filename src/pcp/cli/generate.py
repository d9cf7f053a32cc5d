"""`pcp generate`: let a trained model go on with a text."""

import argparse
import dataclasses
import json
import sys
from collections.abc import Iterator
from pathlib import Path

from pcp.errors import PCPError
from pcp.inference import Sampling, generate
from pcp.models import gpt2
from pcp.training.run_folder import RunFolder, load_state
from pcp.training.tokenizer import decode_stream

DESCRIPTION = {
    "description": "Let a trained model go on with a text.",
    "epilog": """examples:
  pcp generate runs/gpt2-nano --prompt "ROMEO:"
  pcp generate runs/gpt2-nano --prompt "To be" --tokens 500 --temperature 0.9 --top-k 20
""",
}


class NothingToGenerate(PCPError):
    """A number of tokens that makes no sense."""


class NoTextFromALoss(PCPError):
    """Text is asked of a run that trains a loss from a file."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("run", type=Path, help="folder of a run that `pcp train` made")
    parser.add_argument("--prompt", default="\n", help="text to go on with")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens to add")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 always takes the most likely token")
    parser.add_argument("--top-k", type=int, default=None, help="draw among the k most likely tokens only")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal texts")
    parser.add_argument("--device", default="cpu:0", help="where the model runs")
    parser.add_argument("--json", action="store_true", help="one JSON object with `prompt` and `text`")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    folder = RunFolder.open(arguments.run)
    sampling = Sampling(arguments.temperature, arguments.top_k, arguments.seed)
    pieces = continuation(folder, arguments.prompt, arguments.tokens, sampling, arguments.device)
    if arguments.json:
        print(json.dumps({"prompt": arguments.prompt, "text": "".join(pieces)}))
        return 0
    sys.stdout.write(arguments.prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0


def continuation(
    folder: RunFolder, prompt: str, count: int, sampling: Sampling, device: str
) -> Iterator[str]:
    """Yield the text of new tokens; one that ends inside a character waits for the next.

    Raises:
        NothingToGenerate: the count is negative.
        NoTextFromALoss: the run trains a loss from a file.
        NotARun, CheckpointNotFound: the run has not got so far.
        UnknownCharacter, EmptyPrompt: the prompt cannot be gone on with.
    """
    if count < 0:
        raise NothingToGenerate(f"{count} tokens were asked for; expected at least 0")
    if folder.loss_file.exists():
        raise NoTextFromALoss(
            f"{folder.path} trains the loss {folder.config().model}, which does not say how its model makes text; text "
            f"comes from {', '.join(gpt2.CONFIGURATIONS)}. Load {folder.trained_file} in the framework that the loss came from"
        )
    tokenizer = folder.tokenizer()
    _, state, _ = load_state(folder)
    config = gpt2.configuration(folder.config().model)
    config = dataclasses.replace(config, vocabulary=tokenizer.vocabulary_size)
    start = tokenizer.encode(prompt).tolist()
    yield from decode_stream(tokenizer, generate(state["params"], config, start, count, sampling, device))
