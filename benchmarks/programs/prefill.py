"""The logits of a prompt by GPT-2 124M: PCP as written and planned within a tolerance, beside JAX and PyTorch (eager, and
torch.compile), in turn, each in a process of its own.

    python -m benchmarks prefill --context 512 --tolerance 1e-2

The error of each is ||y - y64|| / ||y64|| of its logits, y64 being PCP's in float64.
"""

import argparse
import dataclasses
import json
import statistics
from contextlib import ExitStack
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs import gpt2_jax
from benchmarks.programs.gpt2 import torch_name
from pcp.ir.tree import map_tree
from pcp.models import gpt2


def with_pcp(
    config: gpt2.GPT2Config, params: Any, batch: int, tolerance: float | None = None
) -> tuple[str, Run]:
    """The logits by PCP: as they are written, or by the fastest path within a tolerance."""
    bound = pcp.plan(_program(config, params, batch), tolerance=tolerance).bind(params)
    name = "PCP" if tolerance is None else f"PCP within {tolerance:g}"
    return name, lambda tokens: np.asarray(bound.run(tokens))


def with_jax(config: gpt2.GPT2Config, params: Any, scanned: bool = False) -> tuple[str, Run]:
    """The logits by plain JAX; its layers are written one after another, or scanned over."""
    if scanned:
        params = gpt2_jax.stacked(params)
    on_device = jax.device_put(params)
    jitted = jax.jit(lambda p, tokens: gpt2_jax.logits(p, tokens, config))
    return "JAX, lax.scan" if scanned else "JAX", lambda tokens: np.asarray(jitted(on_device, tokens))


def with_torch(
    config: gpt2.GPT2Config, params: Any, autocast: bool, compiled: bool = False
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


def _program(config: gpt2.GPT2Config, params: Any, batch: int) -> pcp.Program:
    tokens = pcp.spec((batch, config.context), "i32")
    return pcp.trace(lambda p, t: gpt2.logits(p, t, config), pcp.specs_of(params), tokens)


def compare(config: gpt2.GPT2Config, batch: int, tolerance: float, runs: int) -> list[dict[str, Any]]:
    """One row for each contestant."""
    params = gpt2.initial_parameters(config, 0)
    wide = map_tree(lambda leaf: leaf.astype(np.float64), params)
    tokens = np.random.default_rng(0).integers(0, config.vocabulary, (batch, config.context), np.int32)
    exact = np.asarray(pcp.plan(_program(config, wide, batch)).run(wide, tokens))
    makers: list[tuple[Any, ...]] = [
        (with_jax, config, params),
        (with_pcp, config, params, batch),
        (with_pcp, config, params, batch, tolerance),
        *(
            (with_torch, config, params, autocast, compiled)
            for compiled in (False, True)
            for autocast in (False, True)
        ),
        (with_jax, config, params, True),
    ]
    errors: dict[str, float] = {}
    seconds: dict[str, list[float]] = {}
    with ExitStack() as stack:
        started = [stack.enter_context(OwnProcess(*maker)) for maker in makers]
        processes = [process for process in started if process.made is not None]
        for process in processes:
            _, found = process.call(tokens)
            errors[process.made] = float(np.linalg.norm(found - exact) / np.linalg.norm(exact))
        for turn in range(runs):
            for process in processes[turn % len(processes) :] + processes[: turn % len(processes)]:
                seconds.setdefault(process.made, []).append(process.call(tokens)[0])
    return [
        {
            "contestant": name,
            "seconds": statistics.median(times),
            "spread": statistics.pstdev(times),
            "times_jax": statistics.median(a / b for a, b in zip(times, seconds["JAX"], strict=True)),
            "error": errors[name],
        }
        for name, times in seconds.items()
    ]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--model", default="gpt2", help="a configuration (default: gpt2, 124M)")
    parser.add_argument("--batch", type=int, default=1, help="prompts (default: 1)")
    parser.add_argument("--context", type=int, default=512, help="tokens of a prompt (default: 512)")
    parser.add_argument("--tolerance", type=float, default=1e-2, help="of the planned path (default: 1e-2)")
    parser.add_argument("--runs", type=int, default=20, help="timed runs of each (default: 20)")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    config = dataclasses.replace(gpt2.CONFIGURATIONS[arguments.model], context=arguments.context)
    rows = compare(config, arguments.batch, arguments.tolerance, arguments.runs)
    for row in rows:
        if arguments.json:
            print(json.dumps(row))
        else:
            print(
                f"{row['contestant']:28s} {row['seconds'] * 1e3:8.1f} ± {row['spread'] * 1e3:5.1f} ms "
                f"{row['times_jax']:6.2f} x JAX   error {row['error']:.1e}"
            )
