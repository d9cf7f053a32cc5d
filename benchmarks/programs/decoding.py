"""Text of GPT-2 on a processor: the first token after a prompt and those that follow, beside PyTorch with transformers, and
beside llama.cpp on the same GGUF file.

    python -m benchmarks decoding
    python -m benchmarks decoding --only f32 bf16 torch --prompt 512 --tokens 48
    python -m benchmarks decoding --only int8 torch --tolerance 5e-2
    python -m benchmarks decoding --rows 8
    python -m benchmarks decoding --dry

Each contestant runs in a process of its own and takes turns with the others: it reads a prompt, or as many as there are rows,
then one token of each after another, each a call that waits for the tokens it draws, as greedy decoding does. PCP's calls are
steps of its engine. All are given the same random parameters and the same tokens. The error is that of the last
log-probabilities of the 20 likeliest tokens, in norm, beside the same network in float64 over all tokens at once, and relative
to how far these are from those of equal chances: what storing weights in fewer bits costs is in it. With a tolerance PCP
searches for the fastest way to read the prompt, and single tokens, that is within it beside exact arithmetic on the weights as
they are stored; "fastest" takes what such a search tries first, whatever its error. What first readings took is told at once.
"""

import argparse
import functools
import json
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.options import add_option
from benchmarks.own_process import OwnProcess, Run
from benchmarks.programs.decoding_llama import by_llama, written
from pcp.importers.gguf import read_gguf
from pcp.inference.readiness import Shape
from pcp.inference.request import MOST_LOGPROBS, Request
from pcp.inference.runner import Runner
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import Part, Text
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.names import to_transformers
from pcp.models.parameters import quantised
from pcp.models.published import CONFIGURATIONS, gpt2_config

FORMS = ("int4", "int8", "bf16", "f32")
QUANTISED = ("q4_0", "q8_0")
"""Of GGUF files, which PCP reads as well."""
LLAMA = tuple(f"llama {each}" for each in (*QUANTISED, "f16"))
KINDS = (*(f"{each} fastest" for each in FORMS), *FORMS, *QUANTISED, *LLAMA, "torch bf16", "torch")
# What proves in a minute that every line of this runs.
DRY = gpt2_config(2, 2, 64, 48, 256, True)
Row = dict[str, Any]


@dataclass(frozen=True, slots=True)
class Task:
    """What all compute.

    Arguments:
        config: of the model.
        prompt: tokens that are read at once.
        count: tokens that are read one by one after them.
        rows: texts at once.
    """

    config: DecoderConfig
    prompt: int
    count: int
    rows: int = 1

    @property
    def parameters(self) -> Any:
        """Of the model, random."""
        return decoder.initial_parameters(self.config, 0)

    @property
    def tokens(self) -> np.ndarray:
        """The prompts, and what follows them, (rows, prompt + count)."""
        size = (self.rows, self.prompt + self.count)
        return np.random.default_rng(0).integers(0, self.config.vocabulary, size, np.int32)

    def exactly(self) -> np.ndarray:
        """Log-probabilities of the token after all of the first text, in float64."""
        wide = map_tree(lambda array: np.asarray(array, np.float64), self.parameters)
        ids = self.tokens[:1]
        program = pcp.trace(lambda p, x: decoder.logits(p, x, self.config)[0, -1], wide, ids)
        return log_probabilities(np.asarray(pcp.plan(program, device="cpu:0", cache=False).run(wide, ids)))


Told = tuple[np.ndarray, np.ndarray]
"""The likeliest tokens after a text, and their log-probabilities."""


def log_probabilities(scores: np.ndarray) -> np.ndarray:
    """Of each token, from a vector of scores, in float64."""
    wide = scores.astype(np.float64)
    shifted: np.ndarray = wide - wide.max()
    return shifted - np.log(np.exp(shifted).sum())


@dataclass(frozen=True, slots=True)
class Turn:
    """What one reading took.

    Arguments:
        first: seconds until the scores after the prompt.
        busy: seconds of the processor, all threads together, until then.
        each: seconds of every token after it.
        told: of the first text, after the last token.
    """

    first: float
    busy: float
    each: list[float]
    told: Told


Read = Callable[[np.ndarray, bool], Told | None]
"""Reads tokens (rows, count), and tells the likeliest next ones if that is wanted."""


class FastestRunner(Runner):
    """By the fastest kernels of all families, which a search tries first."""

    def made(self, shape: Shape) -> pcp.Plan:
        """As of `Runner`."""
        return fastest(self.traced(shape), "cpu:0")


def by_pcp(task: Task, kind: str, tolerance: float | None) -> tuple[Read, Read]:
    """How prompts are read, and one token of each."""
    form, _, how = kind.partition(" ")
    if form in QUANTISED:
        with tempfile.TemporaryDirectory() as folder:
            given = read_gguf(written(task.parameters, task.config, form, Path(folder))).parameters
    else:
        given = task.parameters if form == "f32" else quantised(task.parameters, form)
    size, greedy = 16, Sampling(temperature=0)
    each = -(-(task.prompt + task.count) // size)
    kind_of_runner = FastestRunner if how else Runner
    runner = kind_of_runner(given, task.config, 1 + task.rows * each, size, "cpu:0", tolerance)
    texts = {
        tell: [
            Text(
                Request([0], sampling=greedy, logprobs=MOST_LOGPROBS if tell else None),
                pages=list(range(1 + row * each, 1 + (row + 1) * each)),
            )
            for row in range(task.rows)
        ]
        for tell in (False, True)
    }
    state = {"place": 0}

    def token(tokens: np.ndarray, tell: bool) -> Told | None:
        parts = [
            Part(text, state["place"], own.tolist(), [])
            for text, own in zip(texts[tell], tokens, strict=True)
        ]
        state["place"] += tokens.shape[1]
        answer = runner.run(parts)
        return (
            None
            if answer.top is None or answer.top_logprobs is None
            else (answer.top[0, 0], answer.top_logprobs[0, 0])
        )

    def prompt(tokens: np.ndarray, tell: bool) -> Told | None:
        state["place"] = 0
        return token(tokens, tell)

    return prompt, token


def by_torch(task: Task, dtype: str) -> tuple[Read, Read]:
    """The same by transformers.

    Raises:
        ImportError: it is not installed.
    """
    import torch
    import transformers

    config = task.config
    model: Any = transformers.GPT2LMHeadModel(
        transformers.GPT2Config(
            vocab_size=config.vocabulary,
            n_positions=config.context,
            n_embd=config.width,
            n_layer=config.layers,
            n_head=config.heads,
            bos_token_id=0,
            eos_token_id=0,
        )
    )
    arrays = {
        name: torch.from_numpy(np.array(each))
        for name, each in to_transformers(task.parameters, task.config).items()
    }
    model.load_state_dict(arrays, strict=False)
    model.tie_weights()
    model = model.eval().to(getattr(torch, dtype))
    state: dict[str, Any] = {"past": None}

    def read(tokens: np.ndarray, tell: bool) -> Told | None:
        with torch.inference_mode():
            found = model(
                torch.from_numpy(tokens.astype(np.int64)),
                past_key_values=state["past"],
                use_cache=True,
                logits_to_keep=1,
            )
            found.logits[:, -1].argmax(-1).tolist()
        state["past"] = found.past_key_values
        if not tell:
            return None
        told = log_probabilities(found.logits[0, -1].float().numpy())
        likeliest = np.argsort(-told)[:MOST_LOGPROBS]
        return likeliest, told[likeliest]

    def prompt(tokens: np.ndarray, tell: bool) -> Told | None:
        state["past"] = None
        return read(tokens, tell)

    return prompt, read


def of_llama(task: Task, kind: str) -> tuple[Read, Read]:
    """The same by llama.cpp.

    Raises:
        ImportError: it is not installed.
    """
    by = by_llama(task.parameters, task.config, kind, task.rows, task.prompt, task.count)
    state = {"place": 0}

    def token(tokens: np.ndarray, tell: bool) -> Told | None:
        scores = by(tokens, state["place"])
        state["place"] += tokens.shape[1]
        if not tell:
            return None
        told = log_probabilities(scores)
        likeliest = np.argsort(-told)[:MOST_LOGPROBS]
        return likeliest, told[likeliest]

    def prompt(tokens: np.ndarray, tell: bool) -> Told | None:
        state["place"] = 0
        return token(tokens, tell)

    return prompt, token


def contestant(kind: str, task: Task, tolerance: float | None) -> tuple[str, Run] | None:
    """A contestant by name, after one reading that compiles; None where what it needs is not installed."""
    try:
        if kind.startswith("torch"):
            prompt, token = by_torch(task, "bfloat16" if kind.endswith("bf16") else "float32")
        elif kind in LLAMA:
            prompt, token = of_llama(task, kind.partition(" ")[2])
        else:
            prompt, token = by_pcp(task, kind, tolerance)
    except ImportError:
        return None
    tokens = task.tokens

    def turn(_: Any) -> Turn:
        began, was_busy = time.perf_counter(), time.process_time()
        prompt(tokens[:, : task.prompt], False)
        first, busy, each = time.perf_counter() - began, time.process_time() - was_busy, []
        for place in range(task.prompt, tokens.shape[1] - 1):
            began = time.perf_counter()
            token(tokens[:, place : place + 1], False)
            each.append(time.perf_counter() - began)
        told = token(tokens[:, -1:], True)
        assert told is not None
        return Turn(first, busy, each, told)

    turn(None)
    form, _, how = kind.partition(" ")
    planned = f", {how} kernels" if how else "" if tolerance is None else f", {tolerance:g}"
    peers = {"torch": "PyTorch, float32", "torch bf16": "PyTorch, bfloat16"}
    name = peers.get(kind, f"llama.cpp, {how}" if kind in LLAMA else f"PCP, {form} weights{planned}")
    return name, turn


def compared(
    kinds: Sequence[str],
    task: Task,
    turns: int,
    tolerance: float | None = None,
    tell: Callable[[Row], None] = lambda _: None,
) -> list[Row]:
    """One row for each contestant; those that are not installed have only `about`.

    Arguments:
        tell: called with what is known of each after its first reading.
    """
    exact = task.exactly()
    rows: list[Row] = []
    with ExitStack() as stack:
        there: list[OwnProcess] = []
        taken: list[list[Turn]] = []
        for kind in kinds:
            process = stack.enter_context(OwnProcess(contestant, kind, task, tolerance))
            if process.made is None:
                rows.append({"contestant": kind, "about": "not installed"})
                continue
            there.append(process)
            taken.append([process.call(None)[1]])
            tell(_row(process.made, taken[-1], exact, task.rows))
        for _ in range(turns - 1):
            for place, process in enumerate(there):
                taken[place].append(process.call(None)[1])
        made = zip(there, taken, strict=True)
        return [_row(process.made, each, exact, task.rows) for process, each in made] + rows


def _row(name: str, turns: Sequence[Turn], exact: np.ndarray, texts: int) -> Row:
    each = [seconds for turn in turns for seconds in turn.each]
    likeliest, told = turns[-1].told
    right = exact[likeliest]
    apart = np.linalg.norm(right + np.log(exact.size))
    return {
        "contestant": name,
        "first_seconds": statistics.median(turn.first for turn in turns),
        "first_processor_seconds": statistics.median(turn.busy for turn in turns),
        "token_seconds": statistics.median(each),
        "fastest_token_seconds": min(each),
        "tokens_per_second": texts / statistics.median(each),
        "error": float(np.linalg.norm(told - right) / apart),
    }


def line_of(row: Row) -> str:
    """A row as text."""
    if "about" in row:
        return f"{row['contestant']:24s} left out: {row['about']}"
    return (
        f"{row['contestant']:24s} {row['first_seconds'] * 1e3:8.0f} ms {row['first_processor_seconds'] * 1e3:8.0f} ms "
        f"{row['token_seconds'] * 1e3:8.2f} ms "
        f"{row['fastest_token_seconds'] * 1e3:8.2f} ms {row['tokens_per_second']:9.1f} {row['error']:9.2g}"
    )


HEAD = f"{'':24s} {'first token':>11s} {'processor':>11s} {'a token':>11s} {'least':>11s} {'tokens/s':>9s} {'error':>9s}"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--only", nargs="+", choices=KINDS, help="contestants (default: all)")
    add_option(parser, "--prompt", 512, "tokens that are read at once")
    add_option(parser, "--tokens", 48, "tokens that are read one by one")
    add_option(parser, "--rows", 1, "texts at once")
    add_option(parser, "--turns", 3, "readings of each contestant, in turn")
    parser.add_argument("--tolerance", type=float, help="of PCP's plans (default: nothing is searched)")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, one turn")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    task = Task(CONFIGURATIONS["gpt2"], arguments.prompt, arguments.tokens, arguments.rows)
    turns = arguments.turns
    if arguments.dry:
        task, turns = Task(DRY, 32, 4, arguments.rows), 1
    tell = functools.partial(print, flush=True)
    if not arguments.json:
        tell(
            f"decoding: {task.config}, {task.rows} prompts of {task.prompt}, then {task.count} tokens\n{HEAD}"
        )

    def at_once(row: Row) -> None:
        if not arguments.json:
            tell(f"{line_of(row)}, of one reading")

    for row in compared(arguments.only or KINDS, task, turns, arguments.tolerance, at_once):
        tell(json.dumps(row) if arguments.json else line_of(row))
