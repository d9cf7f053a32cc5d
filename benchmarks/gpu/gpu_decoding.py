"""Tokens of GPT-2 or Llama on a GPU: the engine's step beside torch.compile with CUDA graphs and a cache of one size."""

import argparse
import dataclasses
import json
import time
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from benchmarks.options import add_option
from pcp.inference.readiness import Shape
from pcp.inference.runner import Runner
from pcp.ir.tree import map_tree
from pcp.models.config import DecoderConfig
from pcp.models.initial import parameter_shapes
from pcp.models.parameters import Parameters
from pcp.models.published import CONFIGURATIONS

PAGE = 16
CONTEXT = 1024
Says = Callable[[int, int], np.ndarray[Any, Any]]
"""From a place and a number of tokens to so many (rows, tokens) that follow token 0 there, one behind the other."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the arguments of this benchmark."""
    parser.add_argument("--model", choices=("gpt2", "llama-1b"), default="gpt2", help="which (default: gpt2)")
    parser.add_argument("--rows", type=int, nargs="+", default=[1, 8], help="texts at once (default: 1 8)")
    parser.add_argument(
        "--places", type=int, nargs="+", default=[1, 512, 900], help="tokens before (default: 1 512 900)"
    )
    parser.add_argument("--layers", type=int, help="how deep (default: as the model is)")
    add_option(parser, "--device", "cuda:0", "where both run")
    add_option(parser, "--tokens", 32, "of a call of PCP, and of a turn of PyTorch")
    add_option(parser, "--turns", 5, "of each contestant")


def run(arguments: argparse.Namespace) -> None:
    """Measure and print, rows that PCP loses first."""
    config = dataclasses.replace(CONFIGURATIONS[arguments.model], context=CONTEXT)
    config = dataclasses.replace(config, layers=arguments.layers or config.layers)
    parameters = _drawn(config)
    found = [row for rows in arguments.rows for row in _of_rows(arguments, config, parameters, rows)]
    found.sort(key=lambda row: row["pcp_us"] < row["torch_us"])
    for row in found:
        if arguments.json:
            print(json.dumps(row))
            continue
        told = [
            f"{shown} {row[f'{name}_us']:.0f} us a token, {row[f'{name}_tokens']:,.0f} tokens/s, "
            f"{row[f'{name}_agrees']:.0%} as in float32"
            for name, shown in (("pcp", "PCP"), ("torch", "torch.compile"))
        ]
        print(f"{row['model']}, {row['rows']} rows at {row['place']}: {'; '.join(told)}")


def _drawn(config: DecoderConfig) -> Parameters:
    """Weights by normal numbers of deviation 0.02, in bfloat16; those of norms are 1 and 0."""
    block = (np.random.default_rng(0).standard_normal(1 << 22, np.float32) * 0.02).astype("bfloat16")

    def drawn(each: Any) -> Any:
        return np.resize(block, each.shape) if len(each.shape) > 1 else np.ones(each.shape, "bfloat16")

    parameters: Parameters = map_tree(drawn, parameter_shapes(config))
    return parameters


def _of_rows(
    arguments: argparse.Namespace, config: DecoderConfig, parameters: Parameters, rows: int
) -> Sequence[dict[str, Any]]:
    import torch

    from benchmarks.gpu.decoder_torch import Decoder

    says = {
        "pcp": _by_pcp(config, parameters, rows, arguments.tokens, arguments.device),
        "torch": _by_torch(config, parameters, rows, arguments.device),
    }
    exact = Decoder(
        map_tree(lambda each: np.asarray(each, np.float32), parameters), config, 1, "cpu", torch.float32
    )
    agrees = {name: _agreement(exact, say(0, arguments.tokens)[0]) for name, say in says.items()}
    found = []
    for place in arguments.places:
        times: dict[str, list[float]] = {name: [] for name in says}
        for _ in range(arguments.turns):
            for name, say in says.items():
                began = time.perf_counter()
                say(place, arguments.tokens)
                times[name].append((time.perf_counter() - began) / arguments.tokens * 1e6)
        row = {"model": arguments.model, "rows": rows, "place": place, "layers": config.layers}
        for name, each in times.items():
            median = float(np.median(each))
            row |= {f"{name}_us": median, f"{name}_least_us": min(each)}
            row |= {f"{name}_tokens": rows / median * 1e6, f"{name}_agrees": agrees[name]}
        found.append(row)
    return found


def _agreement(exact: Any, told: np.ndarray[Any, Any]) -> float:
    """Which share of tokens float32 draws, too, behind the same ones."""
    import torch

    before = np.concatenate([[0], told[:-1]])
    drawn = [
        int(exact(torch.tensor([[token]]), torch.tensor([place])).argmax())
        for place, token in enumerate(before)
    ]
    return float(np.mean(np.array(drawn) == told))


def _by_pcp(config: DecoderConfig, parameters: Parameters, rows: int, tokens: int, device: str) -> Says:
    """The engine's step of several tokens, with its kernels and its cache in pages."""
    width = CONTEXT // PAGE
    runner = Runner(parameters, config, 1 + rows * width, PAGE, device)
    plan = runner.plan(Shape(rows, 1, width, turns=tokens, limited=False))
    table = (1 + np.arange(rows * width)).reshape(rows, width).astype(np.int32)
    cache = runner.fresh()

    def say(place: int, count: int) -> np.ndarray[Any, Any]:
        nonlocal cache
        whole = np.zeros((rows, 6), np.int32)
        whole[:, 0], whole[:, 1], whole[:, 5] = place, count, place + 1
        first, real = np.zeros((rows, 1), np.int32), np.zeros((rows, 4), np.float32)
        cache, drawn = plan.call(cache, first, table, whole, real, np.bool_(False), None)
        return np.asarray(drawn[0])

    say(0, tokens)
    return say


def _by_torch(config: DecoderConfig, parameters: Parameters, rows: int, device: str) -> Says:
    """A step compiled by `torch.compile(mode="reduce-overhead")`, which replays a CUDA graph."""
    import torch

    from benchmarks.gpu.decoder_torch import Decoder

    where = device.partition(":")[0]
    decoder = Decoder(parameters, config, rows, where, torch.bfloat16)
    step = torch.compile(
        lambda token, place: decoder(token, place).argmax(-1, keepdim=True), mode="reduce-overhead"
    )

    @torch.no_grad()
    def say(place: int, count: int) -> np.ndarray[Any, Any]:
        token, at = torch.zeros(rows, 1, dtype=torch.long, device=where), torch.tensor([place], device=where)
        told = []
        for _ in range(count):
            token = step(token, at).clone()
            at += 1
            told.append(token)
        return torch.cat(told, 1).cpu().numpy()

    say(0, 5)
    return say
