"""`pcp export`: the model of a run as a folder that transformers loads."""

import argparse
import json
from pathlib import Path

from pcp.training.recipes.written_model import TYPES, write_adapter_of, write_model
from pcp.training.run_folder import RunFolder

DESCRIPTION = {
    "description": "Write the newest checkpoint of a run as a folder that the library transformers loads.",
    "epilog": """\
RUN is the folder of a run that began with such a folder (pcp train --model FOLDER). What lies beside the weights, as the
tokenizer, is copied. Neither PyTorch nor transformers is needed.

examples:
  pcp export runs/my-llama my-llama-tuned
  pcp export runs/my-llama my-llama-tuned --dtype f32
  pcp export runs/my-llama my-adapter --adapter        what --lora trained alone, as the library peft reads it
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
    parser.add_argument(
        "--adapter", action="store_true", help="only the low-rank matrices that --lora trained"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    folder = RunFolder.open(arguments.run)
    if arguments.adapter:
        out = write_adapter_of(folder, arguments.out)
        print(json.dumps({"adapter": str(out)}) if arguments.json else f"{out} holds the adapter")
        return 0
    out = write_model(folder, arguments.out, arguments.dtype)
    if arguments.json:
        print(json.dumps({"model": str(out)}))
    else:
        print(
            f"{out} holds the model; transformers loads it: AutoModelForCausalLM.from_pretrained({str(out)!r})"
        )
    return 0
