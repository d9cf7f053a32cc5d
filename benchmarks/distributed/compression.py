"""What codecs cost: bytes, error and time. Run: `python -m benchmarks compression`.

Errors are relative, in the norm of the whole vector: of one vector; and of the sum of 20 rounds, without and with the
residual of each round added to the next. "normal" and "laplace" are one fixed vector plus as much noise in each round;
"pseudo-gradients" are what AdamW moves gpt2-nano by in ten steps on text of a random Markov chain, round after round.

Times are milliseconds for 2^20 bytes of f32, the median of alternating calls, beside NumPy: from an array in memory to the
payload in memory; back; and what a Worker does: encode, decode and subtract in one Program.
"""

import argparse
import json
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import pcp
from benchmarks.distributed.compression_numpy import DECODE, ENCODE
from pcp.distributed.compression import CODECS, Codec, codec
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.published import CONFIGURATIONS

Array = np.ndarray[Any, Any]
NAMES = (
    "f32",
    "bf16",
    "int8:64",
    "int8",
    "int8:256",
    "int4:64",
    "int4",
    "int4:256",
    "top-k:32",
    "top-k",
    "top-k:128",
)
ROUNDS = 20
STEPS = 10
SYNTHETIC = 1 << 20
"""Elements of the vectors that are drawn."""


def drawn(kind: str) -> Iterator[Array]:
    """Vectors of a run: the same direction in each, and noise of the same size."""
    draw: Callable[..., Array] = getattr(np.random.default_rng(0), kind)
    fixed = draw(size=SYNTHETIC)
    for _ in range(ROUNDS):
        yield (fixed + draw(size=SYNTHETIC)).astype(np.float32)


def pseudo_gradients() -> Iterator[Array]:
    """Where gpt2-nano was, minus where it is after some steps, round after round."""
    config = CONFIGURATIONS["gpt2-nano"]
    tokens = _markov_chain(config.vocabulary, 100_000)
    optimizer = pcp.optimizers.AdamW(1e-3)
    parameters = decoder.initial_parameters(config)
    moments = optimizer.initial_state(parameters)

    def step(parameters: Any, moments: Any, number: Any, x: Any, y: Any) -> Any:
        gradient = pcp.grad(lambda p: decoder.loss(p, x, y, config))(parameters)
        return optimizer.update(gradient, moments, parameters, number)[:2]

    batch = pcp.spec((8, config.context), "i32")
    plan = pcp.plan(pcp.trace(step, parameters, moments, pcp.spec((), "i32"), batch, batch))
    rng = np.random.default_rng(1)
    for round in range(ROUNDS):
        anchor = _flat(parameters)
        for number in range(round * STEPS, (round + 1) * STEPS):
            places = rng.integers(0, tokens.size - config.context - 1, (8, 1)) + np.arange(config.context)
            parameters, moments = plan.run(
                parameters, moments, np.int32(number), tokens[places], tokens[places + 1]
            )
        yield anchor - _flat(parameters)


def _markov_chain(states: int, length: int) -> Array:
    """Tokens of which each makes some of the next ones likely, about 2.3 nats of surprise each."""
    rng = np.random.default_rng(3)
    likely = rng.gumbel(size=(states, states)) * 1.5
    cumulated = np.cumsum(np.exp(likely) / np.exp(likely).sum(1, keepdims=True), 1)
    tokens, draws = np.zeros(length, np.int32), rng.random(length)
    for i in range(1, length):
        tokens[i] = min(np.searchsorted(cumulated[tokens[i - 1]], draws[i]), states - 1)
    return tokens


def _flat(tree: Any) -> Array:
    return np.concatenate([np.asarray(leaf).ravel() for leaf in flatten(tree)[0]])


def pusher(of: Codec, n: int) -> pcp.planning.Plan:
    """vector -> (decoded, residual)"""

    def push(x: pcp.Tensor) -> tuple[pcp.Tensor, pcp.Tensor]:
        decoded = of.decode(of.encode(x), n)
        return decoded, x - decoded

    return pcp.plan(pcp.trace(push, pcp.spec((n,), "f32")))


def errors(name: str, vectors: list[Array]) -> dict[str, float]:
    """Of the first vector, and of the sum of all."""
    n = vectors[0].size
    plan = pusher(codec(name), n)
    total, alone, fed, residual = np.zeros(n), np.zeros(n), np.zeros(n), np.zeros(n, np.float32)
    single = []
    for x in vectors:
        total += x
        decoded = np.asarray(plan.run(x)[0])
        single.append(_relative(decoded, x))
        alone += decoded
        sent, left = plan.run(x + residual)
        fed, residual = fed + np.asarray(sent), np.array(left)
    return {
        "one": statistics.median(single),
        "without_feedback": _relative(alone, total),
        "with_feedback": _relative(fed, total),
    }


def _relative(found: Array, expected: Array) -> float:
    return float(np.linalg.norm(found - expected) / np.linalg.norm(expected))


def times(name: str, x: Array, repeats: int) -> dict[str, float]:
    """Milliseconds a MiB of PCP and NumPy, in turns."""
    of, n = codec(name), x.size
    encoder = pcp.plan(pcp.trace(of.encode, pcp.spec((n,), "f32")))
    specs = {key: pcp.spec(spec.shape, spec.dtype) for key, spec in of.payload_specs(n).items()}
    decoder = pcp.plan(pcp.trace(lambda payload: of.decode(payload, n), specs))
    push = pusher(of, n)
    payload = map_tree(np.asarray, encoder.run(x))
    there = ENCODE[name](x)
    calls: dict[str, Callable[[], Any]] = {
        "encode": lambda: map_tree(np.asarray, encoder.run(x)),
        "encode_numpy": lambda: ENCODE[name](x),
        "decode": lambda: np.asarray(decoder.run(payload)),
        "decode_numpy": lambda: DECODE[name](there, n),
        "push": lambda: map_tree(np.asarray, push.run(x)),
    }
    found: dict[str, list[float]] = {key: [] for key in calls}
    for _ in range(repeats):
        for key, call in calls.items():
            start = time.perf_counter()
            call()
            found[key].append((time.perf_counter() - start) * 1e3 / (x.nbytes / 2**20))
    return {key: statistics.median(entries) for key, entries in found.items()}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--mebibytes", type=int, default=16, help="of f32 to encode and decode")


def run(options: argparse.Namespace) -> None:
    """Print bytes and errors of every codec, then times."""
    kinds = {
        "normal": list(drawn("standard_normal")),
        "laplace": list(drawn("laplace")),
        "pseudo-gradients": list(pseudo_gradients()),
    }
    for name in NAMES:
        bits = codec(name).payload_bytes(1 << 24) * 8 / (1 << 24)
        for kind, vectors in kinds.items():
            row = {"codec": name, "vectors": kind, "bits": bits} | errors(name, vectors)
            print(
                json.dumps(row)
                if options.json
                else f"| {name} | {bits:.3f} | {kind} | {row['one']:.2e} | {row['without_feedback']:.2e} "
                f"| {row['with_feedback']:.2e} |"
            )
    x = np.random.default_rng(2).standard_normal(options.mebibytes << 18).astype(np.float32)
    for name in CODECS:
        row = {"codec": name} | times(name, x, options.repeats)
        print(
            json.dumps(row)
            if options.json
            else f"| {name} | "
            + " | ".join(
                f"{row[key]:.2f}" for key in ("encode", "encode_numpy", "decode", "decode_numpy", "push")
            )
            + " |"
        )
