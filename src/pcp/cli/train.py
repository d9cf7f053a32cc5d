"""`pcp train`: train a model, in this process or with a Shepherd and Workers on this machine."""

import argparse
import dataclasses
import json
import signal
import sys
import time
from pathlib import Path
from types import FrameType
from typing import Any

from pcp.backends import device
from pcp.errors import PCPError
from pcp.inference import Sampling
from pcp.inference.text_model import TextModel
from pcp.training.config import ALGORITHM_CHOICES, LONGEST_WARMUP, TrainingConfig, read_config
from pcp.training.live_display import LiveDisplay
from pcp.training.loop import train
from pcp.training.metrics import FanOut, JSONLinesFile, JSONLinesStream, MetricSink, read_metrics
from pcp.training.prepare import configured, prepare, write_trained_weights
from pcp.training.progress import RunProgress
from pcp.training.recipe import Recipe
from pcp.training.run_folder import RunFolder
from pcp.training.token_file import TokenFile
from pcp.training.tokenizer import UnknownCharacter
from pcp.training.trackers import check_trackers, open_trackers

DESCRIPTION = {
    "description": "Train a model, in this process or with a Shepherd and Workers on this machine.",
    "epilog": """Settings come from the defaults (nanoGPT's recipe for a small character model), then from --config,
then from options. Everything of a run lies in its folder: settings, data, checkpoints, metrics, loss plot, sample.
Ctrl-C keeps the last checkpoint; --resume goes on from there.

examples:
  pcp train                                    2000 steps in this process
  pcp train --workers 2 --inner-steps 50       a Shepherd and two Workers, an outer step every 50 steps
  pcp train --workers 4 --algorithm streaming --fragments 2 --delay 5 --upload int4 --download int4
                                               parts merged in turn, in few bytes, while the workers go on
  pcp train --data my.txt --steps 500 --json   another text; one JSON object a line on standard output
  pcp train --tokenizer bpe --vocabulary 2048  tokens learnt from the text instead of characters
  pcp train --tolerance 1e-2                   a faster step, found by measurement, whose error is below 1 %
  pcp train --resume runs/gpt2-nano            go on after an interruption
  pcp train --model loss.pcp --weights weights.safetensors --data samples.npz
                                               any loss: a program of (weights, batch), from JAX, PyTorch or PCP

algorithms of --workers:
  data-parallel  every step goes along everybody's mean gradient: what the others are measured against; most bytes
  diloco         H steps alone, then one step along everybody's mean change, with momentum
  streaming      DiLoCo of a part of the parameters at a time (--fragments), merged while training goes on (--delay)
  decoupled      streaming that does not wait for slow workers (--quorum): what comes late is merged later, not lost
  sparse         H steps, then the largest 1.6 % of the changes; the rest is kept and sent later

A loss is a file that Program.save wrote, or StableHLO. Its weights are arrays named as its arguments. Its data is a text where
it takes tokens and targets, and otherwise an .npz or .safetensors file with an array for each argument of the batch. The
weights that training leads to are written to trained.safetensors in the run's folder, under the same names.
""",
}

_OPTIONS = {
    "model": "name of a GPT-2 configuration, or the file of a loss",
    "weights": "of a loss from a file, the weights that it begins with: safetensors or .npz",
    "data": "`shakespeare` (downloaded once, public domain), a text file, or samples in .npz or .safetensors",
    "tokenizer": "`characters`, `bytes`, or `bpe` (byte pairs; needs the extra `tokenizers`)",
    "vocabulary": "tokens that `bpe` learns from the data",
    "steps": "inner steps of each worker",
    "batch": "sequences in a batch; a loss from a file says itself how many",
    "accumulate": "parts of a batch computed one after another, for less memory; a divisor of --batch",
    "remat": "what the backward pass keeps: a policy like dots_saveable, or a budget of bytes like 2GiB",
    "learning_rate": "largest learning rate",
    "final_learning_rate": "learning rate at the end of the cosine",
    "warmup_steps": "steps of the linear rise",
    "weight_decay": "of matrices",
    "clip_norm": "largest global norm of the gradient; 0 does not clip",
    "seed": "of parameters and data order",
    "evaluate_every": "steps between evaluations on the whole validation part; 0 only at the end",
    "checkpoint_every": "steps between checkpoints; 0 only at the end",
    "device": "where a step runs",
    "tolerance": "how far a step may be from exact numbers, like 1e-2: the fastest path within is looked for; 0 does not look",
    "plan_seconds": "time to look for it; what is known already takes none",
    "workers": "worker processes; 0 trains in this process",
    "algorithm": "what the workers' training is merged by: data-parallel, diloco, streaming, decoupled or sparse",
    "inner_steps": "steps of a worker between two outer steps of a fragment (H)",
    "fragments": "parts of the parameters that are merged in turn (P), a divisor of --inner-steps; streaming, decoupled",
    "delay": "steps that a worker trains on while its push is merged, before it adopts the result; below H / P",
    "mixing": "share of its own parameters that a worker keeps when it adopts; streaming",
    "outer_learning_rate": "of the outer Nesterov step",
    "outer_momentum": "of the outer Nesterov step",
    "upload": "codec of what workers push: f32, bf16, int8, int4 or top-k; int4 is an eighth of the bytes",
    "download": "codec of what workers adopt; the Shepherd keeps what it loses, and sends it later",
    "merge": "how pushes become one: default and trimmed hold where some workers are hostile, mean does not",
    "quorum": "part of a round's data with which it may close without the slowest, like 0.75",
    "audit_rate": "share of the leases of which another worker repeats a piece, like 0.05; 0 audits nobody",
    "audit_tolerance": "how far two results of one piece may be apart; equal hardware needs none",
}


# Defaults that follow from other settings.
_DERIVED = {"warmup_steps": f"a tenth of --steps, at most {LONGEST_WARMUP}", "weights": "none"}


class SettingsOfAResumedRun(PCPError):
    """Settings were given for a run that has its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    defaults = TrainingConfig()
    for name, meaning in _OPTIONS.items():
        default = getattr(defaults, name)
        shown = "as the algorithm" if name in ALGORITHM_CHOICES else _DERIVED.get(name, default)
        parser.add_argument(
            f"--{name.replace('_', '-')}",
            type=type(default),
            default=argparse.SUPPRESS,
            help=f"{meaning} (default: {shown})",
        )
    parser.add_argument("--config", type=Path, default=argparse.SUPPRESS, help="TOML file of settings")
    parser.add_argument(
        "--run", type=Path, default=None, help="folder of the run (default: runs/MODEL, or the next free)"
    )
    parser.add_argument("--resume", type=Path, default=None, help="go on with the run in this folder")
    parser.add_argument(
        "--tensorboard", action="store_true", help="also write metrics for TensorBoard, into the run's folder"
    )
    parser.add_argument(
        "--wandb", metavar="PROJECT", default=None, help="also send metrics to Weights & Biases"
    )
    parser.add_argument("--json", action="store_true", help="one JSON object a line on standard output")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    signal.signal(signal.SIGTERM, _interrupt)
    check_trackers(arguments.tensorboard, arguments.wandb is not None)
    folder = _folder(arguments)
    config = folder.config()
    recipe = _prepared(folder, fresh=arguments.resume is None)
    began = time.monotonic()
    trackers = open_trackers(folder, arguments.tensorboard, arguments.wandb)
    display: MetricSink = JSONLinesStream() if arguments.json else _display(folder, config)
    with JSONLinesFile(folder.metrics_file) as file, FanOut([display, *trackers]) as shown:
        display.write({"event": "schedule", "steps": config.steps, "warmup_steps": config.warmup})
        try:
            if config.workers:
                from pcp.cli.local_run import train_with_workers

                train_with_workers(folder, shown)
            else:
                train(recipe, folder, FanOut([file, shown]).write)
        except KeyboardInterrupt:
            print(f"pcp: interrupted; pcp train --resume {folder.path} continues it", file=sys.stderr)
            raise
    finish(folder, recipe, arguments.json, time.monotonic() - began)
    return 0


def finish(folder: RunFolder, recipe: Recipe, as_json: bool, seconds: float) -> None:
    """Draw the loss, sample a text or write the weights that were trained, and say where everything is."""
    from pcp.training.plot import (  # takes half a second, which the first step need not wait for
        CROSS_ENTROPY,
        plot_losses,
    )

    records = read_metrics(folder.metrics_file)
    weights = write_trained_weights(folder, recipe)
    plot_losses(records, folder.plot_file, folder.path.name, "loss" if weights else CROSS_ENTROPY)
    text = "" if weights else _sample(folder)
    final: dict[str, Any] = next(r for r in reversed(records) if "validation_loss" in r)
    summary = {
        "event": "finished",
        "step": final["step"],
        "validation_loss": final["validation_loss"],
        "seconds": round(seconds, 1),
        "run": str(folder.path),
        "plot": str(folder.plot_file),
        "sample": None if weights else str(folder.sample_file),
        "weights": str(weights) if weights else None,
        "checkpoints": str(folder.checkpoints),
    }
    if as_json:
        print(json.dumps(summary), flush=True)
        return
    if text:
        print(f"\n{text}\n")
    print(f"validation loss {final['validation_loss']:.4f} after {final['step']} steps, {seconds:.0f} s")
    print(f"loss plot    {folder.plot_file}")
    print(f"checkpoints  {folder.checkpoints}")
    if weights:
        print(f"weights      {weights}, under the names of the given weights")
        print("no text is sampled, because a loss from a file does not say how its model makes text")
    else:
        print(f"more text    pcp generate {folder.path} --prompt 'ROMEO:'")


def _sample(folder: RunFolder) -> str:
    """Text from the trained model, which is also kept."""
    pieces = TextModel.of_run(folder).continuation(_opening(folder), 300, Sampling(), folder.config().device)
    text = "".join(pieces).strip()
    folder.sample_file.write_text(text + "\n", encoding="utf-8")
    return text


def _display(folder: RunFolder, config: TrainingConfig) -> MetricSink:
    """A progress bar and a table of the workers on a terminal, plain lines elsewhere."""
    print(
        f"pcp: training {config.model} on {config.data}: {config.steps} steps, {config.warmup} of them warm-up; "
        f"the run is in {folder.path}",
        file=sys.stderr,
    )
    return LiveDisplay(RunProgress(folder.path.name, config.steps))


def _folder(arguments: argparse.Namespace) -> RunFolder:
    """The folder of the run that the arguments ask for, made or opened."""
    names = {field.name for field in dataclasses.fields(TrainingConfig)}
    given = {name: value for name, value in vars(arguments).items() if name in names}
    if arguments.resume is not None:
        extra = [*given, *(["config"] if "config" in arguments else []), *(["run"] if arguments.run else [])]
        if extra:
            options = ", ".join(f"--{name.replace('_', '-')}" for name in extra)
            raise SettingsOfAResumedRun(
                f"--resume uses the settings that the run began with; {options} cannot be given. "
                f"To train with other settings, begin a new run"
            )
        return RunFolder.open(arguments.resume)
    settings = (read_config(arguments.config) if "config" in arguments else {}) | given
    config = configured(settings)
    from pcp.distributed.algorithm_choice import (
        check_settings,  # takes a moment that --help need not wait for
    )

    check_settings(config)
    return RunFolder.create(arguments.run or _free(Path("runs") / Path(config.model).stem), config)


def _prepared(folder: RunFolder, fresh: bool) -> Recipe:
    """What the run trains. Where that cannot be had, a run that was just made leaves its folder to the next try."""
    try:
        recipe = prepare(folder)
        device(folder.config().device)
        if folder.config().workers:
            from pcp.distributed.new_run import check_run

            check_run(recipe)
    except PCPError:
        if fresh:
            folder.discard()
        raise
    return recipe


def _free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... where nothing stands."""
    number, found = 1, path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _opening(folder: RunFolder) -> str:
    """What the sample goes on from: a line break, or the corpus's first token where its alphabet has none."""
    tokenizer = folder.tokenizer()
    try:
        tokenizer.encode("\n")
    except UnknownCharacter:
        return tokenizer.decode([int(TokenFile.open(folder.token_file).training[0])])
    return "\n"


def _interrupt(_number: int, _frame: FrameType | None) -> None:
    raise KeyboardInterrupt
