"""GPT-2's training step: PCP beside JAX (a loop over layers, and lax.scan) and PyTorch (eager, and torch.compile), in turn,
each in a process of its own.

    python -m benchmarks gpt2 --model gpt2-nano
    python -m benchmarks gpt2 --model gpt2 --batch 4 --context 256 --steps 5
    python -m benchmarks gpt2 --model gpt2 --batch 8 --context 512 --steps 20 --device cuda:0 --budget 200

Every contestant starts from the same parameters and sees the same batches, so the losses must agree; the last column is the
distance of its loss after the last step from that of a float64 run (gpt2-nano), or from the mean of the float32 runs. Each
holds a model, its gradient and its moments: where memory is short, run `--precision f32` and `--precision lower`.
"""

import argparse
import dataclasses
import json
import statistics
import sys
import time
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs import gpt2_jax
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import parameter_count
from pcp.models.published import CONFIGURATIONS

RATE = 1e-3
BUDGET = 300.0


@dataclass
class Contestant:
    """One way to run the step, and what was measured of it."""

    name: str
    trace_seconds: float | None = None
    compile_seconds: float | None = None
    peak_bytes: int | None = None
    seconds: list[float] = field(default_factory=list)
    loss: float = 0.0


def with_pcp(
    config: DecoderConfig,
    params: Any,
    batch: int,
    device: str,
    tolerance: float | None = None,
    budget: float = BUDGET,
) -> tuple[Contestant, Run]:
    """The step by PCP: as it is written, or by the fastest path within a tolerance."""
    tokens = pcp.spec((batch, config.context), "i32")
    start = time.perf_counter()
    program = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), pcp.specs_of(params), tokens, tokens)
    step = pcp.training_step(
        program, pcp.optimizers.adamw(RATE, betas=(0.9, 0.99), weight_decay=0.1), clip_norm=1.0
    )
    traced = time.perf_counter()
    plan = pcp.plan(step, device=device, tolerance=tolerance, budget=budget, cache=False)
    compiled = time.perf_counter()
    name = "PCP" if tolerance is None else f"PCP within {tolerance:g}"
    if plan.error is not None:
        print(plan, file=sys.stderr)
        print(f"{name}: largest error of loss, gradients and updates {plan.error:.1e}", file=sys.stderr)
    state = [step.initial_state(params)]

    def run(batch: Any) -> float:
        # The loss is there before the state is.
        state[0], metrics = jax.block_until_ready(plan.run(state[0], batch))
        return float(metrics["loss"])

    peak = next(iter(plan.memory.values())).peak
    return Contestant(name, traced - start, compiled - traced, peak), run


def with_jax(config: DecoderConfig, params: Any, batch: int, scanned: bool = False) -> tuple[Contestant, Run]:
    """The step by plain JAX; its layers are written one after another, or scanned over."""
    if scanned:
        params = gpt2_jax.stacked(params)
    step = gpt2_jax.training_step(config, RATE)
    state = [gpt2_jax.initial_state(params)]
    example = jax.ShapeDtypeStruct((batch, config.context), np.int32)
    start = time.perf_counter()
    lowered = step.lower(state[0], (example, example))
    traced = time.perf_counter()
    compiled = lowered.compile()
    done = time.perf_counter()
    memory = compiled.memory_analysis()
    peak = (
        memory.argument_size_in_bytes
        + memory.output_size_in_bytes
        - memory.alias_size_in_bytes
        + memory.temp_size_in_bytes
    )

    def run(batch: Any) -> float:
        state[0], value = jax.block_until_ready(compiled(state[0], batch))
        return float(value)

    return Contestant("JAX, lax.scan" if scanned else "JAX", traced - start, done - traced, peak), run


def with_torch(
    config: DecoderConfig, params: Any, autocast: bool, device: str, compiled: bool = False
) -> tuple[Contestant, Run] | None:
    """The step by PyTorch, eager or compiled, if it is installed; compiling happens in the first call, which is not timed."""
    try:
        import torch

        from benchmarks.programs.gpt2_torch import Trainer
    except ImportError:
        return None
    kind = device.partition(":")[0]
    trainer = Trainer(params, config, RATE, autocast, kind, compiled)

    def run(batch: Any) -> float:
        return float(trainer.step(*(torch.from_numpy(np.array(part)).to(kind) for part in batch)).item())

    return Contestant(torch_name(autocast, compiled)), run


def torch_name(autocast: bool, compiled: bool) -> str:
    """What a contestant of PyTorch's is called."""
    return ("torch.compile" if compiled else "PyTorch") + (" bf16 autocast" if autocast else "")


def reference_loss(config: DecoderConfig, params: Any, batches: list[Any]) -> float:
    """The loss of the last step in float64, by PCP."""
    wide = map_tree(lambda a: a.astype(np.float64), params)
    _, run = with_pcp(config, wide, batches[0][0].shape[0], "cpu:0")
    return [run(batch) for batch in batches][-1]


def compare(
    config: DecoderConfig,
    batch: int,
    steps: int,
    device: str = "cpu:0",
    seed: int = 0,
    tolerance: float | None = None,
    budget: float = BUDGET,
    scanned: bool = False,
    compiled: bool = False,
    precision: str = "both",
) -> list[dict[str, Any]]:
    """One row for each contestant; `scanned` adds JAX with a scan over layers, `compiled` PyTorch by `torch.compile`.

    `precision` takes only contestants in float32, or those that lower it, and plain JAX: all at once may need too much memory.
    """
    params = decoder.initial_parameters(config, seed)
    rng = np.random.default_rng(seed)
    size = (batch, config.context)
    batches = [
        tuple(rng.integers(0, config.vocabulary, size, np.int32) for _ in range(2)) for _ in range(steps + 1)
    ]
    exactly: list[tuple[Any, ...]] = [
        (with_pcp, config, params, batch, device),
        (with_torch, config, params, False, device),
    ]
    lower: list[tuple[Any, ...]] = [(with_torch, config, params, True, device)]
    if compiled:
        exactly.append((with_torch, config, params, False, device, True))
        lower.append((with_torch, config, params, True, device, True))
    if scanned:
        exactly.append((with_jax, config, params, batch, True))
    if tolerance:
        lower.append((with_pcp, config, params, batch, device, tolerance, budget))
    chosen = {"f32": exactly, "lower": lower, "both": exactly + lower}[precision]
    makers: list[tuple[Any, ...]] = [(with_jax, config, params, batch), *chosen]
    with ExitStack() as stack:
        started = [stack.enter_context(OwnProcess(*maker)) for maker in makers]
        processes = [process for process in started if process.made is not None]
        contestants: list[Contestant] = [process.made for process in processes]
        for index, data in enumerate(batches):
            # The order turns by one each step, so that nobody always runs after the same neighbour.
            for turn in range(len(processes)):
                which = (index + turn) % len(processes)
                seconds, contestants[which].loss = processes[which].call(data)
                if index:  # the first step warms up
                    contestants[which].seconds.append(seconds)
    small = parameter_count(params) < 10_000_000
    exact = (
        reference_loss(config, params, batches)
        if small
        else float(np.mean([c.loss for c in contestants[: 1 if precision == "lower" else 3]]))
    )
    return [
        {
            "contestant": c.name,
            "trace_seconds": c.trace_seconds,
            "compile_seconds": c.compile_seconds,
            "step_seconds": statistics.median(c.seconds),
            "step_seconds_spread": statistics.pstdev(c.seconds),
            "times_jax": statistics.median(
                a / b for a, b in zip(c.seconds, contestants[0].seconds, strict=True)
            ),
            "peak_bytes": c.peak_bytes,
            "loss": c.loss,
            "loss_error": abs(c.loss - exact),
        }
        for c in contestants
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default=None, help="default: gpt2-nano, then gpt2 (124M)")
    parser.add_argument(
        "--batch", type=int, default=None, help="sequences (default: 12 for gpt2-nano, else 4)"
    )
    parser.add_argument(
        "--context", type=int, default=None, help="tokens of a sequence (default: 64, else 256)"
    )
    parser.add_argument(
        "--device", default="cpu:0", help="where PCP and PyTorch run; JAX runs on its default device"
    )
    parser.add_argument(
        "--tolerance", type=float, default=1e-2, help="of PCP's planned step (default: 1e-2); 0 leaves it out"
    )
    parser.add_argument(
        "--budget", type=float, default=BUDGET, help=f"seconds of measuring for it (default: {BUDGET:g})"
    )
    parser.add_argument("--steps", type=int, default=None, help="measured steps (default: 30, else 5)")
    parser.add_argument(
        "--precision",
        choices=("both", "f32", "lower"),
        default="both",
        help="contestants in float32, those that lower it, or both (default); plain JAX is always one",
    )
    parser.add_argument(
        "--few", action="store_true", help="leave out torch.compile and JAX with lax.scan, which take minutes"
    )


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison, of one model or of both."""
    for name in [arguments.model] if arguments.model else ["gpt2-nano", "gpt2"]:
        _run(name, arguments)


def _run(name: str, arguments: argparse.Namespace) -> None:
    nano = name == "gpt2-nano"
    config = CONFIGURATIONS[name]
    context = arguments.context or (64 if nano else 256)
    config = dataclasses.replace(config, context=context)
    batch = arguments.batch or (12 if nano else 4)
    steps = arguments.steps or (30 if nano else 5)
    rows = compare(
        config,
        batch,
        steps,
        arguments.device,
        tolerance=arguments.tolerance or None,
        budget=arguments.budget,
        scanned=not arguments.few,
        compiled=not arguments.few,
        precision=arguments.precision,
    )
    if arguments.json:
        for row in rows:
            print(json.dumps({"model": name, "batch": batch, "context": context, **row}))
        return
    print(
        f"{name}, batch {batch}, context {context}, float32; the time of a step is the median, beside its spread"
    )
    print(
        f"{'':28s} {'trace':>8s} {'compile':>8s} {'step':>20s} {'x JAX':>6s} {'peak':>9s} {'loss':>8s} {'error':>8s}"
    )
    for row in rows:
        seconds = [
            f"{row[key]:7.2f}s" if row[key] is not None else "       -"
            for key in ("trace_seconds", "compile_seconds")
        ]
        step = f"{row['step_seconds'] * 1e3:9.1f} ± {row['step_seconds_spread'] * 1e3:5.1f} ms"
        peak = "-" if row["peak_bytes"] is None else f"{row['peak_bytes'] / 2**20:.0f} MiB"
        print(
            f"{row['contestant']:28s} {' '.join(seconds)} {step:>20s} {row['times_jax']:6.2f} {peak:>9s} "
            f"{row['loss']:8.4f} {row['loss_error']:8.1e}"
        )
