"""Loss curves of a small real run on a GPU: the step as planned within a tolerance, and as written, from the same seeds.

    python -m benchmarks gpu-curve --plot curves.png --out curves.json
    python -m benchmarks gpu-curve --tolerance 1e-2 --steps 5000
    python -m benchmarks gpu-curve --dry

The model is nanoGPT's for characters (6 layers of width 384, context 256), or a Llama of these sizes. The text is this
repository's own documents and sources, as bytes, so nothing is downloaded. Both paths train from equal parameters on the same
batches; runs from different seeds say what noise is.
"""

import argparse
import dataclasses
import json
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.gpu.card import is_here
from pcp.models.config import DecoderConfig
from pcp.models.published import gpt2_config, llama_config
from pcp.planning import Plan, plan
from pcp.training.data.token_file import TokenFile, write_token_file
from pcp.training.display.plot import smooth
from pcp.training.planned_step import describe_path, planned_step, warm_example
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.decoder_recipe import DecoderRecipe

ROOT = Path(__file__).parents[2]
MODELS: dict[str, DecoderConfig] = {
    "gpt2": gpt2_config(layers=6, heads=6, width=384, context=256, vocabulary=256),
    "llama": llama_config(6, heads=6, key_value_heads=2, width=384, hidden=1024, context=256, vocabulary=256),
}
Curves = dict[str, list[np.ndarray[Any, np.dtype[np.float64]]]]


def text_of_the_repository() -> bytes:
    """Documents and sources, in the order of their names."""
    files = [file for ending in ("*.md", "*.py", "*.cc") for file in ROOT.rglob(ending)]
    own = [file for file in files if not any(part.startswith(".") for part in file.relative_to(ROOT).parts)]
    return b"\n".join(file.read_bytes() for file in sorted(own))


def recipe_of(model: DecoderConfig, config: TrainingConfig, tokens: TokenFile, seed: int) -> DecoderRecipe:
    """What a run from a seed trains; the step is the same program for every seed."""
    return DecoderRecipe(config.replaced(seed=seed), model, tokens)


def trained(
    recipe: DecoderRecipe, training: Plan
) -> tuple[np.ndarray[Any, np.dtype[np.float64]], float, float]:
    """The loss of every step, the validation loss after the last, and the seconds of a step."""
    state: Any = recipe.step.initial_state(recipe.parameters)
    losses = []
    start = time.perf_counter()
    for index in range(recipe.config.steps):
        state, metrics = training.run(state, recipe.batches.batch(index))
        losses.append(metrics["loss"])
    found = np.array([float(loss) for loss in losses])
    seconds = (time.perf_counter() - start) / recipe.config.steps
    evaluation = plan(recipe.evaluation, device=recipe.config.device).bind(state["params"])
    return found, recipe.validation_loss(evaluation.run), seconds


def compared(
    model: DecoderConfig, config: TrainingConfig, text: bytes, seeds: int, tell: Any = lambda _: None
) -> tuple[Curves, dict[str, Any]]:
    """The curves of both paths, and what they come to.

    Arguments:
        config: device, steps, batch, tolerance and seconds of planning, and the rates.
        seeds: runs of each path.
    """
    with tempfile.TemporaryDirectory() as folder:
        letters = np.frombuffer(text, np.uint8).astype(np.int32)
        tokens = write_token_file(Path(folder) / "tokens.bin", letters, model.vocabulary)
        first = recipe_of(model, config, tokens, 0)
        batches = (first.batches.batch(index) for index in range(config.steps))
        state = first.step.initial_state(first.parameters)
        planned = planned_step(
            first.step,
            config.device,
            config.tolerance,
            config.plan_seconds,
            example=lambda: warm_example(first.step, config.device, state, batches),
        )
        tell(describe_path(planned))
        plans = {"as written": plan(first.step, device=config.device), "planned": planned}
        curves: Curves = {name: [] for name in plans}
        ends: dict[str, list[float]] = {name: [] for name in plans}
        speeds: dict[str, list[float]] = {name: [] for name in plans}
        for seed in range(seeds):
            recipe = recipe_of(model, config, tokens, seed)
            for name, chosen in plans.items():
                losses, end, seconds = trained(recipe, chosen)
                curves[name].append(losses)
                ends[name].append(end)
                speeds[name].append(seconds)
                tell(f"seed {seed}, {name}: validation loss {end:.4f}, {seconds * 1e3:.1f} ms a step")
    tail = max(1, config.steps // 10)
    last = {name: [float(losses[-tail:].mean()) for losses in each] for name, each in curves.items()}
    differences = [b - a for a, b in zip(last["as written"], last["planned"], strict=True)]
    return curves, {
        "text_bytes": len(text),
        "steps": config.steps,
        "tolerance": config.tolerance,
        "path": describe_path(planned),
        "error": planned.error,
        "validation_losses": ends,
        "last_training_losses": last,
        "difference_of_paths": float(np.mean(differences)),
        "largest_difference_of_paths": float(np.max(np.abs(differences))),
        "spread_of_seeds": float(np.ptp(last["as written"])),
        "step_seconds": {name: float(np.median(each)) for name, each in speeds.items()},
    }


def draw(curves: Curves, file: Path, title: str) -> None:
    """Averaged losses of all runs, and below them what the planned path's differ by from the same seed's."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(9, 6.5), dpi=150, layout="constrained")
    canvas = FigureCanvasAgg(figure)
    above, below = figure.subplots(2, 1, sharex=True, height_ratios=[3, 1])
    steps = np.arange(1, len(curves["planned"][0]) + 1)
    span = max(1.0, len(steps) / 40)
    averaged = {name: [smooth(steps, losses, span) for losses in each] for name, each in curves.items()}
    for name, colour, style in (("as written", "#2a6fbb", "-"), ("planned", "#d1495b", "--")):
        for seed, losses in enumerate(averaged[name]):
            above.plot(steps, losses, style, color=colour, linewidth=1.3, label=name if seed == 0 else None)
    for written, planned in zip(averaged["as written"], averaged["planned"], strict=True):
        below.plot(steps, planned - written, color="#2b2d42", linewidth=1.0)
    above.set_ylabel("training loss, averaged (nats a byte)")
    above.set_yscale("log")
    above.legend(frameon=False)
    below.axhline(0.0, color="#b9bdc9", linewidth=0.8)
    below.set_ylabel("planned - as written")
    below.set_xlabel("training step")
    above.set_title(title, loc="left", fontsize=11)
    canvas.print_png(str(file))


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default="gpt2", choices=list(MODELS), help="which (default: gpt2)")
    parser.add_argument("--steps", type=int, default=2000, help="of each run (default: 2000)")
    parser.add_argument("--seeds", type=int, default=2, help="runs of each path (default: 2)")
    parser.add_argument("--batch", type=int, default=64, help="sequences (default: 64)")
    parser.add_argument("--tolerance", type=float, default=0.1, help="of the planned path (default: 0.1)")
    parser.add_argument("--budget", type=float, default=120.0, help="seconds of planning (default: 120)")
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--dry", action="store_true", help="a tiny model and 30 steps on cpu:0")
    parser.add_argument(
        "--plot", type=Path, default=Path("gpu_curve.png"), help="picture (default: gpu_curve.png)"
    )
    parser.add_argument("--out", type=Path, help="file that gets the numbers as JSON")


def run(arguments: argparse.Namespace) -> None:
    """Train, draw, and print what the curves come to."""
    device = "cpu:0" if arguments.dry else arguments.device
    if not is_here(device):
        print(f"gpu-curve: left out, there is no {device} here")
        return
    model, steps, batch, budget = MODELS[arguments.model], arguments.steps, arguments.batch, arguments.budget
    text = text_of_the_repository()
    if arguments.dry:
        text = text[: 2**16]
        model, steps, batch, budget = dataclasses.replace(model, layers=1, context=32), 30, 4, 20.0
    config = TrainingConfig(
        steps=steps,
        batch=batch,
        device=device,
        tolerance=arguments.tolerance,
        plan_seconds=budget,
    )
    tell = (lambda _: None) if arguments.json else (lambda text: print(text, flush=True))
    curves, found = compared(model, config, text, arguments.seeds, tell)
    draw(
        curves,
        arguments.plot,
        f"{arguments.model}, {steps} steps on {device}, planned within {config.tolerance:g}",
    )
    if arguments.out:
        arguments.out.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    if arguments.json:
        print(json.dumps(found))
        return
    print(
        f"the last tenth of the training losses differs by {found['difference_of_paths']:+.4f} between the paths (at most "
        f"{found['largest_difference_of_paths']:.4f}), by {found['spread_of_seeds']:.4f} between seeds\n"
        f"drawn in {arguments.plot}"
    )
