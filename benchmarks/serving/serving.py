"""Clients of `pcp serve` beside the same requests given to the engine: throughput, first tokens, time between events."""

import argparse
import asyncio
import json
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import add_option
from pcp.importers.text import open_model
from pcp.inference import Request, Sampling
from pcp.models.decoder import initial_parameters
from pcp.models.names import to_transformers
from pcp.models.published import gpt2_config

START_SECONDS = 240.0


@dataclass(frozen=True, slots=True)
class Asked:
    """A request: so many tokens of a prompt, so many of an answer."""

    prompt: list[int]
    count: int


@dataclass(frozen=True, slots=True)
class Heard:
    """When the events of an answer came, in seconds from the first request on; `begin` is when it was asked."""

    begin: float
    times: list[float]
    tokens: int


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    add_option(parser, "--clients", 64, "that ask at once, each one request after another")
    add_option(parser, "--requests", 128, "of all clients together")
    add_option(parser, "--longest-prompt", 96, "tokens of the longest prompt; the shortest has 8")
    add_option(parser, "--longest-answer", 48, "tokens of the longest answer; the shortest has 8")
    add_option(parser, "--rows", 16, "texts that are computed at once")
    add_option(parser, "--layers", 4, "of the model, which is as wide as --width")
    add_option(parser, "--width", 256, "of the model")
    parser.add_argument("--model", type=Path, help="a folder with a model; random weights if not given")


def run(arguments: argparse.Namespace) -> None:
    """Measure, and print a row for each way."""
    for row in measured(arguments):
        text = (
            json.dumps(row)
            if arguments.json
            else ", ".join(f"{name}: {value}" for name, value in row.items())
        )
        print(text, flush=True)


def measured(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """The rows of the table."""
    generator = np.random.default_rng(0)

    def drawn(longest: int) -> list[int]:
        return generator.integers(8, longest + 1, arguments.requests).tolist()

    asked = [
        Asked(generator.integers(1, 250, prompt).tolist(), count)
        for prompt, count in zip(
            drawn(arguments.longest_prompt), drawn(arguments.longest_answer), strict=True
        )
    ]
    with tempfile.TemporaryDirectory() as folder:
        path = arguments.model or _random_model(Path(folder) / "model", arguments.layers, arguments.width)
        offline = _offline(path, asked, arguments.rows)
        served = _served(path, asked, arguments.clients, arguments.rows)
    tokens = sum(each.count for each in asked)
    pauses = sorted(b - a for each in served for a, b in zip(each.times, each.times[1:], strict=False))
    first = sorted(each.times[0] - each.begin for each in served)
    seconds = max(each.times[-1] for each in served)
    lost = tokens - sum(each.tokens for each in served)
    return [
        {"what": "all requests given to the engine at once", "tokens a second": round(tokens / offline, 1)},
        {
            "what": f"{arguments.clients} clients of pcp serve",
            "tokens a second": round(tokens / seconds, 1),
            "of offline": round(offline / seconds, 3),
            "first token, median; p99, s": f"{_share(first, 0.5):.3g}; {_share(first, 0.99):.3g}",
            "between events, median; p99, ms": f"{1e3 * _share(pauses, 0.5):.3g}; {1e3 * _share(pauses, 0.99):.3g}",
            "tokens lost": lost,
        },
    ]


def _share(values: Sequence[float], share: float) -> float:
    return values[min(int(share * len(values)), len(values) - 1)]


def _random_model(folder: Path, layers: int, width: int) -> Path:
    """A folder as transformers writes it, of a GPT-2 with random weights whose tokens are bytes."""
    from safetensors.numpy import save_file
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    folder.mkdir()
    words = {each: number for number, each in enumerate(sorted(pre_tokenizers.ByteLevel.alphabet()))}
    tokenizer = Tokenizer(models.BPE(vocab=words, merges=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.save(str(folder / "tokenizer.json"))
    config = gpt2_config(layers, 4, width, 256, len(words))
    save_file(to_transformers(initial_parameters(config, 0), config), folder / "model.safetensors")
    sizes = {"n_layer": layers, "n_head": 4, "n_embd": width, "n_positions": 256, "vocab_size": len(words)}
    (folder / "config.json").write_text(json.dumps({"model_type": "gpt2", **sizes}))
    return folder


def _offline(path: Path, asked: Sequence[Asked], rows: int) -> float:
    """Seconds for all requests at once, after a round in which everything is compiled."""
    model = open_model(path)
    with model.engine(rows=rows, prepared=lambda *_: None) as engine:
        for turn in range(2):
            began = time.perf_counter()
            streams = [
                engine.submit(
                    Request([turn, *each.prompt], each.count, Sampling(1.0, seed=place), ignore_end=True)
                )
                for place, each in enumerate(asked)
            ]
            for stream in streams:
                for _ in stream:
                    pass
            seconds = time.perf_counter() - began
    return seconds


def _served(path: Path, asked: Sequence[Asked], clients: int, rows: int) -> list[Heard]:
    command = [
        sys.executable,
        "-m",
        "pcp.cli",
        "--json",
        "serve",
        str(path),
        "--port",
        "0",
        "--rows",
        str(rows),
    ]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            address = json.loads(process.stdout.readline())["address"]
            for turn in range(2):  # the first compiles what is asked for often
                heard = asyncio.run(_all_clients(address, asked, clients, turn))
        finally:
            process.send_signal(signal.SIGTERM)
            process.wait(START_SECONDS)
    return heard


async def _all_clients(address: str, asked: Sequence[Asked], clients: int, turn: int) -> list[Heard]:
    began, left, heard = time.perf_counter(), list(enumerate(asked)), list[Heard]()

    async def client() -> None:
        while left:
            place, each = left.pop()
            heard.append(await _ask(address, each, place, turn, began))

    await asyncio.gather(*(client() for _ in range(clients)))
    return heard


async def _ask(address: str, asked: Asked, seed: int, turn: int, began: float) -> Heard:
    host, _, port = address.rpartition(":")
    begin = time.perf_counter() - began
    reader, writer = await asyncio.open_connection(host, int(port))
    body = json.dumps(
        {
            "prompt": [turn, *asked.prompt],
            "max_tokens": asked.count,
            "temperature": 1,
            "seed": seed,
            "stream": True,
            "ignore_eos": True,
            "stream_options": {"include_usage": True},
        }
    ).encode()
    head = f"POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {len(body)}\r\n\r\n"
    writer.write(head.encode() + body)
    times, tokens = list[float](), 0
    async for line in reader:
        if line.startswith(b"data: {"):
            told = json.loads(line[6:])
            tokens = (told.get("usage") or {}).get("completion_tokens", tokens)
            if told["choices"]:
                times.append(time.perf_counter() - began)
    writer.close()
    return Heard(begin, times, tokens)
