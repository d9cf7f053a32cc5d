"""`pcp sample`: images from a model, as a PNG."""

import argparse
import json
import sys
import time
from pathlib import Path

from pcp.backends import default_device
from pcp.diffusion.grid import write_grid
from pcp.diffusion.pipeline import open_pipeline
from pcp.diffusion.sample import InvalidSampling, sample
from pcp.models.diffusion.samplers import SAMPLERS, own_sampler

DESCRIPTION = {
    "description": "Make images with a model that removes noise, and write them beside one another as a PNG.",
    "epilog": """\
MODEL is one of:
  the folder of a run that `pcp train --model dit-nano` (or dit-s, unet-nano) made; its newest checkpoint is used
  a folder that the library diffusers wrote (save_pretrained): model_index.json, scheduler, and a UNet2DModel in unet or a
  DiTTransformer2DModel in transformer, and perhaps an AutoencoderKL in vae

Image number i of a seed is the same however many are made. More steps are slower and cleaner; 20 are enough for most models,
but for ddpm, which needs hundreds. --guidance above 1 makes images of a class more typical and less varied.

samplers:
  ddim    without noise between steps (Song et al. 2020); what most models take if nothing else is said
  dpm++   DPM-Solver++(2M), which looks back one step and needs fewer (Lu et al. 2022)
  ddpm    with noise in every step (Ho et al. 2020)
  euler   straight along a flow (Lipman et al. 2022), for models of flows such as dit-nano

examples:
  pcp train --model dit-nano --data my-images --steps 2000
  pcp sample runs/dit-nano --out grid.png
  pcp sample runs/dit-nano --labels 3 --guidance 2 --steps 40 --count 4 --seed 7
  pcp sample my-ddpm --sampler dpm++ --steps 15 --tolerance 1e-2
""",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument(
        "model", metavar="MODEL", type=Path, help="folder of a run or of diffusers, see below"
    )
    parser.add_argument(
        "--steps", type=int, default=20, metavar="N", help="how often the model is asked for each image"
    )
    parser.add_argument("--count", type=int, default=16, metavar="N", help="images to make")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="equal seeds give equal images")
    parser.add_argument("--out", type=Path, default=Path("samples.png"), metavar="FILE", help="PNG to write")
    parser.add_argument(
        "--sampler",
        metavar="NAME",
        help=f"{', '.join(SAMPLERS)}; the one of the model's scheduler if not given",
    )
    parser.add_argument(
        "--guidance",
        type=float,
        default=1.0,
        metavar="X",
        help="how far the class is followed; 1: not further",
    )
    parser.add_argument(
        "--labels", metavar="N,N", help="the class of all images, or of each; all in turn if not given"
    )
    parser.add_argument(
        "--size",
        metavar="N",
        help="pixels of a side, or HEIGHTxWIDTH; what the model was made for if not given",
    )
    parser.add_argument("--batch", type=int, metavar="N", help="images at once; 16 if not given")
    parser.add_argument("--device", default=default_device(), help="where the model runs")
    parser.add_argument(
        "--tolerance", type=float, metavar="T", help="search for the fastest way to sample within this error"
    )


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    labels, size = _numbers("labels", arguments.labels, ","), _numbers("size", arguments.size, "x")
    if arguments.out.suffix.lower() != ".png":
        raise InvalidSampling(f"--out is {arguments.out}; expected the name of a PNG, as grid.png")
    if not arguments.out.parent.is_dir():
        raise InvalidSampling(
            f"there is no folder {arguments.out.parent} to write {arguments.out.name} in; make it"
        )
    if size is not None and len(size) > 2:
        raise InvalidSampling(f"--size is {arguments.size!r}; expected pixels of a side, or HEIGHTxWIDTH")
    begun = time.monotonic()
    pipeline = open_pipeline(arguments.model)
    shown = sys.stderr.isatty() and not arguments.json

    def tell(done: int, of: int, seconds: float) -> None:
        if shown:
            print(
                f"\r{done} of {of} images, {seconds:.1f} s",
                end="\n" if done == of else "",
                file=sys.stderr,
                flush=True,
            )

    if shown:
        print("compiling", end="", file=sys.stderr, flush=True)
    images = sample(
        pipeline,
        arguments.count,
        arguments.steps,
        arguments.seed,
        sampler=arguments.sampler,
        guidance=arguments.guidance,
        labels=labels[0] if labels and len(labels) == 1 else labels,
        size=None if size is None else (size[0], size[-1]),
        batch=arguments.batch,
        device=arguments.device,
        tolerance=arguments.tolerance,
        progress=tell,
    )
    write_grid(images, arguments.out)
    sampler, seconds = arguments.sampler or own_sampler(pipeline.schedule), round(time.monotonic() - begun, 1)
    told = {
        "images": len(images), "shape": list(images.shape[1:]), "sampler": sampler, "steps": arguments.steps,
        "seed": arguments.seed, "seconds": seconds, "out": str(arguments.out),
    }  # fmt: skip
    if arguments.json:
        print(json.dumps(told))
    else:
        height, width, channels = images.shape[1:]
        print(
            f"{arguments.out} holds {len(images)} images of {height} x {width} pixels and {channels} channels, "
            f"{arguments.steps} steps of {sampler}, seed {arguments.seed}, in {seconds} s"
        )
    return 0


def _numbers(name: str, text: str | None, between: str) -> list[int] | None:
    try:
        return None if text is None else [int(each) for each in text.split(between)]
    except ValueError:
        raise InvalidSampling(
            f"--{name} is {text!r}; expected whole numbers with {between!r} between them"
        ) from None
