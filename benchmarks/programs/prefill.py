"""The logits of a prompt by GPT-2 124M: PCP as written, planned within a tolerance, and with the fastest kernels at every site,
beside JAX, PyTorch (eager, and torch.compile), ONNX Runtime and OpenVINO, in turn, each in a process of its own.

    python -m benchmarks prefill --context 512 --tolerance 1e-2
    python -m benchmarks prefill --only fastest "torch bf16" onnxruntime "openvino bf16"
    python -m benchmarks prefill --dry

What the first call of each took is told at once. The error of each is ||y - y64|| / ||y64|| of its logits, y64 being PCP's in
float64.
"""

import argparse
import dataclasses
import functools
import json
import os
import statistics
import tempfile
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.options import add_option
from benchmarks.own_process import OwnProcess, Run, on_cores
from benchmarks.programs import gpt2_jax, gpt2_onnx
from benchmarks.programs.gpt2 import torch_name
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.published import CONFIGURATIONS, gpt2_config

Row = dict[str, Any]
# What proves in a minute that every line of this runs.
DRY = gpt2_config(2, 2, 64, 48, 256, True)


def with_pcp(
    config: DecoderConfig, params: Any, batch: int, tolerance: float | None = None, budget: float = 0.0
) -> tuple[str, Run]:
    """The logits by PCP: as they are written, or by the fastest path within a tolerance that is found in some seconds."""
    bound = pcp.plan(_program(config, params, batch), tolerance=tolerance, budget=budget).bind(params)
    name = "PCP" if tolerance is None else f"PCP within {tolerance:g}"
    return name, lambda tokens: np.asarray(bound.run(tokens))


def with_jax(config: DecoderConfig, params: Any, scanned: bool = False) -> tuple[str, Run]:
    """The logits by plain JAX; its layers are written one after another, or scanned over."""
    if scanned:
        params = gpt2_jax.stacked(params)
    on_device = jax.device_put(params)
    jitted = jax.jit(lambda p, tokens: gpt2_jax.logits(p, tokens, config))
    return "JAX, lax.scan" if scanned else "JAX", lambda tokens: np.asarray(jitted(on_device, tokens))


def with_torch(
    config: DecoderConfig, params: Any, autocast: bool, compiled: bool = False
) -> tuple[str, Run] | None:
    """The logits by PyTorch, eager or compiled, if it is installed."""
    try:
        import torch

        from benchmarks.programs import gpt2_torch
    except ImportError:
        return None
    tensors = map_tree(torch.tensor, params)
    logits = torch.compile(gpt2_torch.logits) if compiled else gpt2_torch.logits

    def run(tokens: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        with torch.no_grad(), torch.autocast("cpu", torch.bfloat16, enabled=autocast):
            found: np.ndarray[Any, Any] = logits(tensors, torch.from_numpy(tokens), config).float().numpy()
        return found

    return torch_name(autocast, compiled), run


def _program(config: DecoderConfig, params: Any, batch: int) -> pcp.Program:
    tokens = pcp.spec((batch, config.context), "i32")
    return pcp.trace(lambda p, t: decoder.logits(p, t, config), pcp.specs_of(params), tokens)


def with_fastest(config: DecoderConfig, params: Any, batch: int) -> tuple[str, Run]:
    """The logits by PCP's fastest kernels, whatever their error; nothing is searched."""
    bound = fastest(_program(config, params, batch), "cpu:0").bind(params)
    return "PCP, fastest kernels", lambda tokens: np.asarray(bound.run(tokens))


def with_onnxruntime(config: DecoderConfig, params: Any, batch: int) -> tuple[str, Run] | None:
    """The logits by ONNX Runtime in float32, if it is installed."""
    try:
        import onnxruntime
    except ImportError:
        return None
    options = onnxruntime.SessionOptions()
    options.intra_op_num_threads = len(os.sched_getaffinity(0))
    with tempfile.TemporaryDirectory() as folder:
        file = gpt2_onnx.written(config, params, batch, Path(folder))
        session = onnxruntime.InferenceSession(file, options, providers=["CPUExecutionProvider"])
    return "ONNX Runtime", lambda tokens: session.run(None, {"tokens": tokens.astype(np.int64)})[0]


def with_openvino(config: DecoderConfig, params: Any, batch: int, precision: str) -> tuple[str, Run] | None:
    """The logits by OpenVINO, in float32 or with what it makes of bfloat16, if it is installed."""
    try:
        import openvino
    except ImportError:
        return None
    settings = {
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "INFERENCE_NUM_THREADS": len(os.sched_getaffinity(0)),
    }
    with tempfile.TemporaryDirectory() as folder:
        file = gpt2_onnx.written(config, params, batch, Path(folder))
        compiled = openvino.Core().compile_model(file, "CPU", settings)
    return f"OpenVINO, {precision}", lambda tokens: compiled(tokens.astype(np.int64))[0]


CONTESTANTS: dict[str, tuple[Any, ...]] = {
    "jax": (with_jax,),
    "fastest": (with_fastest,),
    "torch bf16": (with_torch, True),
    "torch.compile bf16": (with_torch, True, True),
    "openvino bf16": (with_openvino, "bf16"),
    "onnxruntime": (with_onnxruntime,),
    "torch": (with_torch, False),
    "pcp": (with_pcp,),
    "openvino": (with_openvino, "f32"),
    "torch.compile": (with_torch, False, True),
    "jax scan": (with_jax, True),
    "planned": (with_pcp,),
}
"""What makes each, and what it is given besides the model; the plan that is searched for comes last."""


def made_by(
    kind: str, config: DecoderConfig, batch: int, tolerance: float, budget: float
) -> tuple[tuple[str, np.ndarray[Any, Any]], Run] | None:
    """A contestant and its logits; None if it is not installed."""
    params = decoder.initial_parameters(config, 0)
    make, *more = CONTESTANTS[kind]
    if make in (with_fastest, with_pcp, with_onnxruntime, with_openvino):
        more = [batch, *more]
    made = make(config, params, *more, *([tolerance, budget] if kind == "planned" else []))
    return made and ((made[0], made[1](tokens_of(config, batch))), made[1])


def tokens_of(config: DecoderConfig, batch: int) -> np.ndarray[Any, Any]:
    """The prompts."""
    return np.random.default_rng(0).integers(0, config.vocabulary, (batch, config.context), np.int32)


def exactly(config: DecoderConfig, batch: int) -> tuple[np.ndarray[Any, Any], Run]:
    """The logits in float64."""
    wide = map_tree(lambda leaf: leaf.astype(np.float64), decoder.initial_parameters(config, 0))
    found = pcp.plan(_program(config, wide, batch)).run(wide, tokens_of(config, batch))
    return np.asarray(found), lambda _: None


def compare(
    kinds: Sequence[str],
    config: DecoderConfig,
    batch: int,
    tolerance: float,
    budget: float,
    runs: int,
    tell: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """One row for each contestant that is installed.

    Arguments:
        tell: called with what is known of each after its first call.
    """
    with OwnProcess(exactly, config, batch) as process:
        exact = process.made
    tokens = tokens_of(config, batch)
    seconds: dict[str, list[float]] = {}
    errors: dict[str, float] = {}
    processes: dict[str, OwnProcess] = {}
    with ExitStack() as stack:
        for kind in kinds:
            within = budget
            if kind == "planned":
                # In a process that ends, which gives back the memory that measuring took; then what it found is taken.
                with OwnProcess(made_by, kind, config, batch, tolerance, budget):
                    within = 0.0
            process = stack.enter_context(OwnProcess(made_by, kind, config, batch, tolerance, within))
            if process.made is None:
                continue
            name, found = process.made
            processes[name], seconds[name] = process, []
            errors[name] = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
            tell(_row(name, [process.call(tokens)[0]], [], errors[name]))
        for turn in range(runs):
            names = list(processes)
            for name in names[turn % len(names) :] + names[: turn % len(names)]:
                seconds[name].append(processes[name].call(tokens)[0])
    jax_seconds = seconds.get("JAX", [])
    return [_row(name, times, jax_seconds, errors[name]) for name, times in seconds.items()]


def _row(name: str, times: Sequence[float], by_jax: Sequence[float], error: float) -> Row:
    return {
        "contestant": name,
        "seconds": statistics.median(times),
        "spread": statistics.pstdev(times),
        "fastest": min(times),
        "times_jax": statistics.median(a / b for a, b in zip(times, by_jax, strict=True)) if by_jax else None,
        "error": error,
    }


def line_of(row: Row) -> str:
    """A row as text."""
    beside = "" if row["times_jax"] is None else f"{row['times_jax']:6.2f} x JAX"
    return (
        f"{row['contestant']:28s} {row['seconds'] * 1e3:8.1f} ± {row['spread'] * 1e3:5.1f} ms, least "
        f"{row['fastest'] * 1e3:7.1f} ms {beside}   error {row['error']:.1e}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default="gpt2", help="a configuration (default: gpt2, 124M)")
    parser.add_argument("--only", nargs="+", choices=tuple(CONTESTANTS), help="contestants (default: all)")
    add_option(parser, "--batch", 1, "prompts")
    add_option(parser, "--context", 512, "tokens of a prompt")
    add_option(parser, "--tolerance", 1e-2, "of the planned path")
    add_option(parser, "--budget", 120.0, "seconds of planning")
    add_option(parser, "--runs", 20, "timed runs of each")
    parser.add_argument("--cores", type=int, default=0, help="how many (default: all that it may use)")
    parser.add_argument("--dry", action="store_true", help="a tiny model, to see that all of it runs")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    config = dataclasses.replace(CONFIGURATIONS[arguments.model], context=arguments.context)
    config = DRY if arguments.dry else config
    tell = functools.partial(print, flush=True)
    runs, budget = (2, min(20.0, arguments.budget)) if arguments.dry else (arguments.runs, arguments.budget)
    kinds = [kind for kind in CONTESTANTS if kind in (arguments.only or CONTESTANTS)]

    def at_once(row: Row) -> None:
        if not arguments.json:
            tell(f"{line_of(row)}, of one call")

    with on_cores(arguments.cores):
        rows = compare(kinds, config, arguments.batch, arguments.tolerance, budget, runs, at_once)
    for row in rows:
        tell(json.dumps(row) if arguments.json else line_of(row))
