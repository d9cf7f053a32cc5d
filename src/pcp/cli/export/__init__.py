"""`pcp export`: the model of a run as a folder that transformers loads."""

import argparse
import json
from pathlib import Path

from pcp.training.recipes.written_model import TYPES, write_model
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Write the newest checkpoint of a run as a folder that the library transformers loads.",
    "epilog": """\
RUN is the folder of a run that began with such a folder (pcp train --model FOLDER). What lies beside the weights, as the
tokenizer, is copied. Neither PyTorch nor transformers is needed.

examples:
  pcp export runs/my-llama my-llama-tuned
  pcp export runs/my-llama my-llama-tuned --dtype f32
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("run", metavar="RUN", type=Path, help="folder of the run")
    parser.add_argument("out", metavar="FOLDER", type=Path, help="folder to write")
    parser.add_argument(
        "--dtype",
        choices=TYPES,
        default="",
        help="of the weights (default: that of the model the run began with)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    out = write_model(RunFolder.open(arguments.run), arguments.out, arguments.dtype)
    if arguments.json:
        print(json.dumps({"model": str(out)}))
    else:
        print(
            f"{out} holds the model; transformers loads it: AutoModelForCausalLM.from_pretrained({str(out)!r})"
        )
    return 0
