"""`pcp generate`: continue a text with a trained model."""

import argparse
import json
import sys
from pathlib import Path

from pcp.backends import default_device
from pcp.errors import PCPError
from pcp.importers.transformers_folder import read_transformers_folder
from pcp.inference import Sampling
from pcp.inference.text_model import TextModel
from pcp.nn.quantised import FORMS
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.recipes.written_model import write_model
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Continue a text with a trained model.",
    "epilog": """\
MODEL is one of:
  the folder of a run that `pcp train` made; its newest checkpoint is used
  a folder with a GPT-2 or a Llama that the library transformers saved (save_pretrained): config.json, model.safetensors, and
  tokenizer.json or vocab.json with merges.txt. This needs the package `tokenizers`:
  pip install 'planetary-compute-protocol[tokenizers]'

The prompt is read in one call. Of a prompt that fills the model's context, only the last half context is read.

examples:
  pcp generate runs/gpt2-nano --prompt "ROMEO:"
  pcp generate runs/gpt2-nano --prompt "To be" --tokens 500 --temperature 0.9 --top-k 20
  pcp generate my-gpt2 --weights int8 --prompt "To be"
  pcp generate my-gpt2 --weights int8 --tolerance 5e-2 --prompt "To be"
  pcp generate my-gpt2 --prompt "The capital of France is" --temperature 0
""",
}

_EXPECTED = (
    "give the folder of a run that `pcp train` made, such as runs/gpt2-nano, or a folder with a GPT-2 or a Llama that "
    "transformers saved (config.json, model.safetensors, tokenizer.json)"
)

_PROGRAM = "is a program, without weights and tokenizer; `pcp run` runs it on arrays"
_WEIGHTS = "holds weights only; config.json and a tokenizer must be beside them"

# The ending of a file's name -> what the file is.
_FILES = {
    ".mlir": _PROGRAM,
    ".mlirbc": _PROGRAM,
    ".pcp": _PROGRAM,
    ".safetensors": _WEIGHTS,
    ".npz": _WEIGHTS,
    ".bin": _WEIGHTS,
    ".toml": "holds the settings of a run; `pcp train --config` trains it",
}


class NothingToGenerate(PCPError):
    """A negative number of tokens."""


class NoTextModel(PCPError):
    """A path at which there is no model that makes text."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="folder of a run, or of a model of transformers, see below"
    )
    parser.add_argument("--prompt", help="text to continue; a line break if not given")
    parser.add_argument("--tokens", type=int, default=300, help="how many tokens to add")
    parser.add_argument("--temperature", type=float, default=0.8, help="0 always takes the most likely token")
    parser.add_argument("--top-k", type=int, help="draw among the k most likely tokens only")
    parser.add_argument("--seed", type=int, default=0, help="equal seeds give equal texts")
    parser.add_argument("--device", default=default_device(), help="where the model runs")
    parser.add_argument(
        "--weights", choices=FORMS, default="", help="store matrices in fewer bits; as they are if not given"
    )
    parser.add_argument(
        "--tolerance",
        type=float,
        metavar="T",
        help="search for the fastest way to run the model within this error, beside its weights as they are stored",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    sampling = Sampling(arguments.temperature, arguments.top_k, seed=arguments.seed)
    if arguments.tokens < 0:
        raise NothingToGenerate(f"--tokens is {arguments.tokens}; expected at least 0")
    model = open_model(arguments.model)
    prompt = "\n" if arguments.prompt is None else arguments.prompt
    pieces = model.continuation(
        prompt, arguments.tokens, sampling, arguments.device, arguments.weights, arguments.tolerance
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


def open_model(path: Path) -> TextModel:
    """The model of a run, or of a folder that transformers wrote.

    Raises:
        NoTextModel: there is nothing at the path, a file, or a folder of something else.
        PCPError: the model there cannot be used; see `TextModel.of_run` and `read_transformers_folder`.
    """
    if not path.exists():
        raise NoTextModel(f"there is no folder {path}; {_EXPECTED}. PCP downloads no models")
    if not path.is_dir():
        raise NoTextModel(f"{path} {_FILES.get(path.suffix, 'is a file')}. Instead, {_EXPECTED}")
    if not (path / "config.json").exists():
        runs = sorted(inner.parent for inner in path.glob("*/config.json"))
        hint = f". Folders in it that may hold a model: {', '.join(map(str, runs[:6]))}" if runs else ""
        raise NoTextModel(f"{path} holds no model: there is no config.json in it; {_EXPECTED}{hint}")
    if holds_transformers_model(path):
        return read_transformers_folder(path)
    run = RunFolder.open(path)
    if run.source_folder.exists():
        return read_transformers_folder(write_model(run, run.model_folder))
    return TextModel.of_run(run)
