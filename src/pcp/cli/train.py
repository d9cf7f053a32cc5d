"""`pcp train`: train a model, in this process or with a Shepherd and Workers on this machine."""

import argparse
import contextlib
import dataclasses
import json
import shlex
import sys
import time
from pathlib import Path
from typing import Any

from pcp.backends import Target, default_device, needs_driver
from pcp.cli.status import add_web_arguments, page_beside
from pcp.cli.words.sections import add_settings, option_of
from pcp.errors import PCPError
from pcp.inference import Sampling
from pcp.inference.text_model import TextModel
from pcp.planning.capacity import memory_limit
from pcp.training.data.token_file import TokenFile
from pcp.training.data.tokenizer import UnknownCharacter
from pcp.training.display.fleet import Fleet
from pcp.training.display.live_display import LiveDisplay
from pcp.training.display.metrics import (
    FanOut,
    JSONLinesFile,
    JSONLinesStream,
    MetricSink,
    read_metrics,
)
from pcp.training.display.trackers import check_trackers, open_trackers
from pcp.training.loop import train
from pcp.training.recipes.config import (
    FEW_STEPS,
    LONGEST_WARMUP,
    OWN,
    InvalidTrainingConfig,
    TrainingConfig,
    is_in_pairs,
    read_config,
)
from pcp.training.recipes.image_recipe import ImageRecipe
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.recipes.prepare import configured, prepare, write_trained_weights
from pcp.training.recipes.recipe import Recipe
from pcp.training.recipes.schedules import described
from pcp.training.run_folder import RunFolder
from pcp.training.running import running

DESCRIPTION = {
    "description": "Train a model, in one process or with a Shepherd and Workers on this machine.",
    "epilog": """\
Options override the settings in --config, which override the defaults (nanoGPT's recipe for a small character
model). The folder of a run holds its settings, data, checkpoints, metrics, loss plot and a sample of text.
Ctrl-C and SIGTERM write a checkpoint; --resume continues from it.

examples:
  pcp train                                    2000 steps in this process
  pcp train --workers 2 --inner-steps 50       a Shepherd and two Workers, an outer step every 50 steps
  pcp train --workers 4 --algorithm streaming --fragments 2 --delay 5 --upload int4 --download int4
                                               merge parts in turn, in few bytes, while workers train on
  pcp train --workers 8 --engine ray --address auto
                                               the same on the Ray cluster that this machine belongs to
  pcp train --data my.txt --steps 500 --json   another text; print one JSON object per line
  pcp train --data notes.jsonl --field text    the field of records that holds their text; also of .csv and .json
  pcp train --data chats.jsonl                 messages with roles; only the assistant's answers are learnt
  pcp train --data train.bin val.bin           token numbers as nanoGPT prepares them
  pcp train --tokenizer bpe --vocabulary 2048  learn tokens from the text instead of characters
  pcp train --group '*.bias decay=0' --group 'embed* frozen'
                                               parameters by their names: a rate, a decay, or no steps
  pcp train --tolerance 1e-2                   search for a faster step whose error is below 1 %
  pcp train --web 127.0.0.1:8080               show the run as a page while it goes on
  pcp train --resume runs/gpt2-nano            continue after an interruption
  pcp train --model loss.pcp --weights weights.safetensors --data samples.npz
                                               train a loss from a file, made by JAX, PyTorch or PCP
  pcp train --model loss.mlir --weights random --data my.txt
                                               train a language model from a file that came without weights
  pcp train --model dit-nano --data my-images  learn to make images, from a folder of them or an .npz; then: pcp sample
  pcp train --model my-llama --data my.txt     fine-tune a model in a folder that transformers wrote
  pcp train --model my-llama --data my.txt --lora rank=8,targets=q_proj,v_proj
                                               train low-rank matrices beside its weights, which stay

algorithms of --workers:
  data-parallel  workers average their gradients in every step; the baseline, and the most bytes
  diloco         each worker trains alone for H steps (--inner-steps); then the changes are averaged and applied with momentum
  streaming      DiLoCo for one part of the parameters at a time (--fragments), merged while training continues (--delay)
  decoupled      streaming that does not wait for slow workers (--quorum); late updates are merged later
  sparse         H steps, then only the largest 1.6 % of the changes are sent; the rest is kept and sent later
  muloco         DiLoCo whose workers step matrices with Muon, and send their changes in four bits
  noloco         workers exchange in random pairs after H steps, whether there is a Shepherd or not; their mean is the result

With --engine ray the Shepherd and the Workers are actors: the Shepherd on this machine, each Worker with a GPU (--device
cuda:0) or with its share of a node's processors. Everybody in a Ray cluster may run code as everybody else in it: use it among
machines of one owner only, and `pcp shepherd` with `pcp worker` among others.

A folder that transformers wrote (config.json, model.safetensors or several, tokenizer.json) is fine-tuned: on text, if it is a
decoder, or on the arrays that the model takes, by name, with labels. PyTorch and transformers make its program once
(pip install 'planetary-compute-protocol[torch]'); --dropout trains with the dropout of its config.json. The result is a folder
that transformers loads.

A loss from a file is StableHLO, or a program that Program.save wrote. The file of its weights holds one array for each
parameter, named like the argument; `random` draws them by --seed. The data is a text if the loss takes tokens and targets;
otherwise it is an .npz or .safetensors file with one array for each argument of the batch. The trained weights are written to
trained.safetensors in the folder of the run, under the same names.
""",
}

# On an accelerator float32 without a search takes several times as long, and a search takes minutes.
_ON_ACCELERATORS: dict[str, Any] = {"tolerance": 1e-2, "plan_seconds": 150.0}

# Defaults that follow from other settings.
_DERIVED = {
    "log_every": f"10, or 1 in a run of fewer than {FEW_STEPS} steps",
    "warmup_steps": f"a tenth of --steps, at most {LONGEST_WARMUP}",
    "weights": "none",
    "momentum": "its own",
} | {
    name: f"{getattr(TrainingConfig(), name):g}; on a GPU {value:g}"
    for name, value in _ON_ACCELERATORS.items()
}


class EngineNotUsable(PCPError):
    """Options of an engine that do not go together with the others."""


class SettingsOfAResumedRun(PCPError):
    """Settings were given for a run that has its own."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    sections = add_settings(parser, _DERIVED)
    workers, folder, output = (sections[title] for title in ("workers", "folder of the run", "output"))
    workers.add_argument(
        "--engine",
        choices=["processes", "ray"],
        default="processes",
        help="what the Shepherd and the Workers of --workers are: processes of this machine, or actors of a Ray cluster",
    )
    workers.add_argument(
        "--address",
        metavar="auto|HOST:PORT",
        help="the Ray cluster of --engine ray (default: one of this machine alone)",
    )
    folder.add_argument(
        "--run", type=Path, help="where the run is kept (default: runs/MODEL, or the next free)"
    )
    folder.add_argument("--resume", type=Path, metavar="RUN", help="continue the run in this folder")
    folder.add_argument(
        "--config",
        type=Path,
        default=argparse.SUPPRESS,
        metavar="FILE",
        help="TOML file of settings, by the names of options",
    )
    output.add_argument(
        "--tensorboard", action="store_true", help="also write metrics for TensorBoard, into the run's folder"
    )
    add_web_arguments(output)
    output.add_argument("--wandb", metavar="PROJECT", help="also send metrics to Weights & Biases")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    on_ray = _is_on_ray(arguments)
    check_trackers(arguments.tensorboard, arguments.wandb is not None)
    folder = _folder(arguments)
    config = folder.config()
    recipe = _prepared(folder, fresh=arguments.resume is None, on_ray=on_ray)
    began = time.monotonic()
    trackers = open_trackers(folder, arguments.tensorboard, arguments.wandb)
    display: MetricSink = JSONLinesStream() if arguments.json else _display(folder, config)
    with page_beside(folder, arguments), FanOut([display, *trackers]) as shown:
        schedule = {"event": "schedule", "steps": config.steps, "warmup_steps": config.warmup}
        display.write(schedule | {"message": described(config)})
        try:
            if on_ray:
                from pcp.cli.keys import authority_of
                from pcp.distributed.engines.ray.training import train_on_ray

                authority_of(folder)
                train_on_ray(folder, arguments.address, shown)
            elif config.workers:
                from pcp.cli.local_run import train_with_workers

                train_with_workers(folder, shown)
            else:
                with running(folder), JSONLinesFile(folder.metrics_file) as file:
                    train(recipe, folder, FanOut([file, shown]).write)
        except (KeyboardInterrupt, SystemExit):  # Ctrl-C, SIGTERM
            print(f"pcp: interrupted; pcp train --resume {folder.path} continues it", file=sys.stderr)
            raise
    # The GPUs of a cluster may all be on other machines.
    sampling = "cpu:0" if on_ray else config.device
    finish(folder, recipe, arguments.json, time.monotonic() - began, sampling)
    return 0


def finish(folder: RunFolder, recipe: Recipe, as_json: bool, seconds: float, sampling: str) -> None:
    """Draw the loss, sample a text on a device or write the weights that were trained, and say where everything is."""
    from pcp.training.display.plot import (  # takes half a second, which the first step need not wait for
        CROSS_ENTROPY,
        plot_losses,
    )

    records = read_metrics(folder.metrics_file)
    weights = write_trained_weights(folder, recipe)
    pictures = isinstance(recipe, ImageRecipe)
    plot_losses(records, folder.plot_file, folder.path.name, "loss" if weights else CROSS_ENTROPY)
    text = "" if weights else _sample(folder, sampling)
    if pictures:
        _sample_images(folder, sampling)
    final: dict[str, Any] = next(r for r in reversed(records) if "validation_loss" in r)
    summary = {
        "event": "finished",
        "step": final["step"],
        "validation_loss": final["validation_loss"],
        "seconds": round(seconds, 1),
        "run": str(folder.path),
        "plot": str(folder.plot_file),
        "sample": str(folder.picture_file) if pictures else None if weights else str(folder.sample_file),
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
    if pictures:
        print(f"images       {folder.picture_file}")
        print(f"model        {weights}, a folder that diffusers loads")
        print(f"more images  pcp sample {shlex.quote(str(folder.path))} --out grid.png")
    elif weights == folder.model_folder:
        print(
            f"model        {weights}, a folder that transformers loads; elsewhere: pcp export {folder.path} FOLDER"
        )
        if folder.lora_file.exists():
            print(
                f"adapter      {folder.adapter_folder}, what was trained alone, as the library peft reads it"
            )
    elif weights:
        print(f"weights      {weights}, under the names of the given weights")
        print("no text is sampled, because a loss from a file does not say how its model makes text")
    else:
        print(f"more text    pcp generate {shlex.quote(str(folder.path))}{_prompt(folder)}")


def _sample(folder: RunFolder, device: str) -> str:
    """Text from the trained model, which is also kept."""
    pieces = TextModel.of_run(folder).continuation(_opening(folder), 300, Sampling(), device, ignore_end=True)
    text = "".join(pieces).strip()
    folder.sample_file.write_text(text + "\n", encoding="utf-8")
    return text


def _sample_images(folder: RunFolder, device: str) -> None:
    """Images from the trained model, which are kept."""
    from pcp.diffusion.grid import write_grid  # takes a moment that the first step need not wait for
    from pcp.diffusion.sample import sample

    write_grid(sample(folder.model_folder, device=device), folder.picture_file)


def _display(folder: RunFolder, config: TrainingConfig) -> MetricSink:
    """A progress bar and a table of the workers on a terminal, plain lines elsewhere."""
    print(
        f"pcp: training {config.model} on {config.data}: {config.steps} steps, {config.warmup} of them warm-up; "
        f"the run is in {folder.path}\npcp: {described(config)}",
        file=sys.stderr,
    )
    fleet = Fleet(folder.path.name, config.steps, in_pairs=is_in_pairs(config))
    asked = config.log_every != OWN  # then every report has its line
    return LiveDisplay(fleet, line_seconds=0.0 if asked else 5.0)


def _folder(arguments: argparse.Namespace) -> RunFolder:
    """The folder of the run that the arguments ask for, made or opened."""
    names = {field.name for field in dataclasses.fields(TrainingConfig)}
    named = {name: value for name, value in vars(arguments).items() if name in names}
    if arguments.resume is not None:
        extra = [*named, *(["config"] if "config" in arguments else []), *(["run"] if arguments.run else [])]
        if extra:
            options = ", ".join(map(option_of, extra))
            raise SettingsOfAResumedRun(
                f"--resume uses the settings that the run began with; {options} cannot be given. "
                f"To train with other settings, begin a new run"
            )
        return RunFolder.open(arguments.resume)
    read = read_config(arguments.config) if "config" in arguments else {}
    settings = {"device": default_device()} | read | named
    config = configured(settings)
    if config.devices:
        if "device" in named:
            raise InvalidTrainingConfig(
                f"device is {config.device}, and devices is {config.devices}; give one of the two"
            )
        config = config.replaced(device=str(Target.over(config.devices).devices[0]))
    elif not config.workers and needs_driver(config.device):
        config = config.replaced(**{k: v for k, v in _ON_ACCELERATORS.items() if k not in settings})
    from pcp.distributed.algorithm_choice import (
        check_settings,  # takes a moment that --help need not wait for
    )

    check_settings(config)
    return RunFolder.create(arguments.run or _free(Path("runs") / Path(config.model).stem), config)


def _is_on_ray(arguments: argparse.Namespace) -> bool:
    """Whether the run is one of a Ray cluster.

    Raises:
        MissingExtra: Ray is not installed.
        EngineNotUsable: there is an address of a cluster, but no cluster.
    """
    if arguments.engine == "ray":
        from pcp.distributed.engines.ray.installed import import_ray

        import_ray(arguments.address)
        return True
    if arguments.address is not None:
        raise EngineNotUsable(
            f"--address {arguments.address} is that of a Ray cluster; give --engine ray with it"
        )
    return False


def _prepared(folder: RunFolder, fresh: bool, on_ray: bool) -> Recipe:
    """What the run trains. Where that cannot be had, a run that was just made leaves its folder to the next try."""
    try:
        if on_ray and not folder.config().workers:
            raise EngineNotUsable(
                f"--engine ray is for a Shepherd and Workers, and {folder.path} trains in one process; begin one with --workers"
            )
        if on_ray and folder.config().algorithm == "noloco":
            raise EngineNotUsable(
                "--engine ray has no exchanges between workers, which --algorithm noloco is made of; choose another of the two"
            )
        if holds_transformers_model(Path(folder.config().model)):
            from pcp.importers.training_folder import bring_model  # what it imports takes a moment

            bring_model(folder)
        recipe = prepare(folder)
        if not on_ray:  # the cluster's nodes have the devices, not this process
            memory_limit(Target.of(folder.config().device), folder.config().memory or None)
        if folder.config().workers:
            from pcp.distributed.shepherd.new_run import check_run

            check_run(recipe)
    except PCPError:
        if fresh:
            folder.discard()
        raise
    return recipe


def _free(path: Path) -> Path:
    """`path`, or the first of path-2, path-3, ... where nothing stands."""
    number, free = 1, path
    while free.exists():
        number += 1
        free = path.with_name(f"{path.name}-{number}")
    return free


def _prompt(folder: RunFolder) -> str:
    """A prompt for this model as the shell takes it: words of its text; nothing where none are known."""
    if not folder.token_file.exists():
        return ""
    tokenizer = folder.tokenizer()
    tokens = TokenFile.open(folder.token_file, verify=False).validation[:400]
    words = tokenizer.decode(tokens.tolist()).split()[1:-1]  # the first and the last may be cut
    shown = [word for word in words if word.isprintable() and "\ufffd" not in word and len(word) <= 20][:3]
    for prompt in (" ".join(shown), *shown):
        with contextlib.suppress(UnknownCharacter):  # a text without spaces
            tokenizer.encode(prompt)
            return f" --prompt={shlex.quote(prompt)}" if prompt else ""
    return ""


def _opening(folder: RunFolder) -> str:
    """What the sample goes on from: a line break, or else the first token of the corpus, or token 0 of shards."""
    tokenizer = folder.tokenizer()
    with contextlib.suppress(UnknownCharacter):
        if tokenizer.encode("\n").size:
            return "\n"
    first = int(TokenFile.open(folder.token_file).training[0]) if folder.token_file.exists() else 0
    return tokenizer.decode([first])
