"""`pcp generate`: continue a text with a trained model."""

import argparse
import json
import sys
from pathlib import Path

from pcp.backends import default_device
from pcp.errors import PCPError
from pcp.importers.text import open_model
from pcp.inference.habits import SETTINGS, Habits
from pcp.models.paged import FORMS as CACHES
from pcp.nn.quantised import FORMS

DESCRIPTION = {
    "description": "Continue a text with a trained model.",
    "epilog": """\
MODEL is one of:
  the folder of a run that `pcp train` made; its newest checkpoint is used
  a folder with a decoder that the library transformers saved (save_pretrained): config.json, model.safetensors, and
  tokenizer.json or vocab.json with merges.txt. This needs the package `tokenizers`:
  pip install 'planetary-compute-protocol[tokenizers]'
  Weights that GPTQ or AWQ stored in 4 bits stay so.
  a GGUF file of a GPT-2, Llama, Mistral or Qwen: its matrices stay as they are stored

The text ends at a token by which the model ends an answer, as generation_config.json, config.json or the tokenizer name it;
--ignore-end goes on. What --temperature, --top-k, --top-p, --min-p and --repetition-penalty leave open is as
generation_config.json recommends, if there is one.

The prompt is read in one call. Of a prompt that fills the model's context, only the last half context is read.

examples:
  pcp generate runs/gpt2-nano --prompt "ROMEO:"
  pcp generate runs/gpt2-nano --prompt "To be" --tokens 500 --temperature 0.9 --top-k 20
  pcp generate my-gpt2 --weights int8 --prompt "To be"
  pcp generate qwen2.5-0.5b-q4_k_m.gguf --prompt "To be"
  pcp generate my-gpt2 --weights int8 --tolerance 5e-2 --prompt "To be"
  pcp generate my-gpt2 --prompt "The capital of France is" --temperature 0
""",
}


class NothingToGenerate(PCPError):
    """A negative number of tokens."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "model",
        metavar="MODEL",
        type=Path,
        help="folder of a run, or of a model of transformers, or a GGUF file",
    )
    parser.add_argument("--prompt", help="text to continue; a line break if not given")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens to add at most")
    parser.add_argument("--ignore-end", action="store_true", help="go on behind tokens that end an answer")
    parser.add_argument(
        "--temperature",
        type=float,
        help="0 always takes the most likely token; the model's own if not given, else 0.8",
    )
    parser.add_argument(
        "--top-k",
        type=int,
        help="draw among the k most likely tokens only, 0 among all; the model's own if not given",
    )
    parser.add_argument(
        "--top-p",
        type=float,
        help="draw among the fewest likely tokens of this probability together; the model's own if not given",
    )
    parser.add_argument(
        "--min-p",
        type=float,
        help="draw among tokens with this share of the likeliest one's probability; the model's own if not given",
    )
    parser.add_argument(
        "--repetition-penalty",
        type=float,
        help="makes tokens that were there less likely, above 1; the model's own if not given",
    )
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal texts")
    parser.add_argument("--device", default=default_device(), help="where the model runs")
    parser.add_argument(
        "--weights", choices=FORMS, default="", help="store matrices in fewer bits; as they are if not given"
    )
    parser.add_argument(
        "--cache",
        choices=CACHES,
        default="",
        help="keep keys and values in it; as it is computed if not given",
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="T",
        help="search for the fastest way to run the model within this error, beside its weights as they are stored",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    named = {name: getattr(arguments, name) for name in (*SETTINGS, "seed")}
    said = {name: value for name, value in named.items() if value is not None}
    Habits().drawing(said)  # what is wrong is told before a model is read
    if arguments.tokens < 0:
        raise NothingToGenerate(f"--tokens is {arguments.tokens}; expected at least 0")
    model = open_model(arguments.model)
    prompt = "\n" if arguments.prompt is None else arguments.prompt
    pieces = model.continuation(
        prompt,
        arguments.tokens,
        model.habits.drawing(said),
        arguments.device,
        arguments.weights,
        arguments.tolerance,
        arguments.ignore_end,
        arguments.cache,
    )
    if arguments.json:
        print(json.dumps({"prompt": prompt, "text": "".join(pieces)}))
        return 0
    sys.stdout.write(prompt)
    for piece in pieces:
        sys.stdout.write(piece)
        sys.stdout.flush()
    sys.stdout.write("\n")
    return 0
