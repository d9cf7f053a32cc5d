"""Text of GPT-2 on a processor: the first token after a prompt and those that follow, beside PyTorch with transformers.

    python -m benchmarks decoding
    python -m benchmarks decoding --only f32 bf16 torch --prompt 512 --tokens 48
    python -m benchmarks decoding --only int8 torch --tolerance 5e-2
    python -m benchmarks decoding --dry

Each contestant runs in a process of its own and takes turns with the others: it reads a prompt, then one token after another,
each a call that waits for its scores, as greedy decoding does. All are given the same random parameters and the same tokens.
The error is that of the last scores, in norm, beside the same network in float64 over all tokens at once: what storing weights
in fewer bits costs is in it. With a tolerance PCP searches for the fastest way to read the prompt, and single tokens, that is
within it beside exact arithmetic on the weights as they are stored; "fastest" takes what such a search tries first, whatever
its error. What the first reading of each took is told at once.
"""

import argparse
import functools
import json
import statistics
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.options import add_option
from benchmarks.own_process import OwnProcess, Run
from pcp.inference.generate import Reader
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.names import to_transformers
from pcp.models.parameters import quantised
from pcp.models.published import CONFIGURATIONS, gpt2_config

FORMS = ("int4", "int8", "bf16", "f32")
KINDS = (*(f"{each} fastest" for each in FORMS), *FORMS, "torch bf16", "torch")
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
    """

    config: DecoderConfig
    prompt: int
    count: int

    @property
    def parameters(self) -> Any:
        """Of the model, random."""
        return decoder.initial_parameters(self.config, 0)

    @property
    def tokens(self) -> list[int]:
        """The prompt, and what follows it."""
        size = self.prompt + self.count
        return [int(each) for each in np.random.default_rng(0).integers(0, self.config.vocabulary, size)]

    def exactly(self) -> np.ndarray:
        """Scores of the token after all, in float64."""
        wide = map_tree(lambda array: np.asarray(array, np.float64), self.parameters)
        ids = np.asarray([self.tokens], np.int32)
        program = pcp.trace(lambda p, x: decoder.logits(p, x, self.config)[0, -1], wide, ids)
        return np.asarray(pcp.plan(program, device="cpu:0", cache=False).run(wide, ids))


@dataclass(frozen=True, slots=True)
class Turn:
    """What one reading took.

    Arguments:
        first: seconds until the scores after the prompt.
        busy: seconds of the processor, all threads together, until then.
        each: seconds of every token after it.
        scores: after the last.
    """

    first: float
    busy: float
    each: list[float]
    scores: np.ndarray


Read = Callable[[Sequence[int]], np.ndarray]


class FastestReader(Reader):
    """By the fastest kernels of all families, which a search tries first."""

    def planned(self, program: pcp.Program) -> pcp.Plan:
        """As of `Reader`."""
        return fastest(program, "cpu:0")


def by_pcp(task: Task, kind: str, tolerance: float | None) -> tuple[Read, Read]:
    """How a prompt is read, and one token."""
    form, _, how = kind.partition(" ")
    given = task.parameters if form == "f32" else quantised(task.parameters, form)
    reader = (FastestReader if how else Reader)(given, task.config, "cpu:0", tolerance)
    state: dict[str, Any] = {}

    def prompt(tokens: Sequence[int]) -> np.ndarray:
        state["cache"], scores = reader.prompt(tokens)
        state["place"] = len(tokens)
        return np.asarray(scores)[0]

    def token(tokens: Sequence[int]) -> np.ndarray:
        state["cache"], scores = reader.token(state["cache"], tokens[0], state["place"])
        state["place"] += 1
        return np.asarray(scores)[0]

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

    def read(tokens: Sequence[int]) -> np.ndarray:
        with torch.inference_mode():
            found = model(
                torch.tensor([list(tokens)]), past_key_values=state["past"], use_cache=True, logits_to_keep=1
            )
        state["past"] = found.past_key_values
        scores: np.ndarray = found.logits[0, -1].float().numpy()
        return scores

    def prompt(tokens: Sequence[int]) -> np.ndarray:
        state["past"] = None
        return read(tokens)

    return prompt, read


def contestant(kind: str, task: Task, tolerance: float | None) -> tuple[str, Run] | None:
    """A contestant by name, after one reading that compiles; None where what it needs is not installed."""
    try:
        if kind.startswith("torch"):
            prompt, token = by_torch(task, "bfloat16" if kind.endswith("bf16") else "float32")
        else:
            prompt, token = by_pcp(task, kind, tolerance)
    except ImportError:
        return None
    tokens = task.tokens

    def turn(_: Any) -> Turn:
        began, was_busy = time.perf_counter(), time.process_time()
        scores = prompt(tokens[: task.prompt])
        first, busy, each = time.perf_counter() - began, time.process_time() - was_busy, []
        for next_one in tokens[task.prompt :]:
            began = time.perf_counter()
            scores = token([next_one])
            int(scores.argmax())
            each.append(time.perf_counter() - began)
        return Turn(first, busy, each, scores)

    turn(None)
    form, _, how = kind.partition(" ")
    planned = f", {how} kernels" if how else "" if tolerance is None else f", {tolerance:g}"
    name = {"torch": "PyTorch, float32", "torch bf16": "PyTorch, bfloat16"}.get(
        kind, f"PCP, {form} weights{planned}"
    )
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
            tell(_row(process.made, taken[-1], exact))
        for _ in range(turns - 1):
            for place, process in enumerate(there):
                taken[place].append(process.call(None)[1])
        return [_row(process.made, each, exact) for process, each in zip(there, taken, strict=True)] + rows


def _row(name: str, turns: Sequence[Turn], exact: np.ndarray) -> Row:
    each = [seconds for turn in turns for seconds in turn.each]
    wrong = np.linalg.norm(turns[-1].scores.astype(np.float64) - exact)
    return {
        "contestant": name,
        "first_seconds": statistics.median(turn.first for turn in turns),
        "first_processor_seconds": statistics.median(turn.busy for turn in turns),
        "token_seconds": statistics.median(each),
        "fastest_token_seconds": min(each),
        "tokens_per_second": 1 / statistics.median(each),
        "error": float(wrong / np.linalg.norm(exact)),
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
    add_option(parser, "--turns", 3, "readings of each contestant, in turn")
    parser.add_argument("--tolerance", type=float, help="of PCP's plans (default: nothing is searched)")
    parser.add_argument("--dry", action="store_true", help="tiny sizes, one turn")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison."""
    task = Task(CONFIGURATIONS["gpt2"], arguments.prompt, arguments.tokens)
    turns = arguments.turns
    if arguments.dry:
        task, turns = Task(DRY, 32, 4), 1
    tell = functools.partial(print, flush=True)
    if not arguments.json:
        tell(f"decoding: {task.config}, a prompt of {task.prompt}, then {task.count} tokens\n{HEAD}")

    def at_once(row: Row) -> None:
        if not arguments.json:
            tell(f"{line_of(row)}, of one reading")

    for row in compared(arguments.only or KINDS, task, turns, arguments.tolerance, at_once):
        tell(json.dumps(row) if arguments.json else line_of(row))
