"""Training on small vectors that can be followed: each batch moves each fragment by whole numbers, hashed from both.

The worker's own inner state (`Replica`) runs on these vectors, in NumPy: where a fragment was adopted, in f64, and by how much
it moved since, in whole numbers, so that nothing is rounded. Codecs encode and decode pushes and changes by their own programs.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from functools import cache, lru_cache, partial
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.distributed.algorithms import Algorithm
from pcp.distributed.compression import codec
from pcp.distributed.merging import Merge, merge
from pcp.distributed.round_arithmetic.outer import OuterSteps
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.planning import Plan, plan
from pcp.tracing import spec, trace
from pcp.training.data.run_data import Data
from pcp.training.recipes.config import TrainingConfig
from pcp.training.recipes.recipe import Recipe

SIZE = 4
"""Elements of each fragment."""

Vector = npt.NDArray[np.float64]


class Unusable(PCPError):
    """A stored number is not one that was stored."""


def encode(value: int) -> bytes:
    """Return a number as a blob's content, with a check."""
    content = value.to_bytes(8, "little", signed=True)
    return content + hashlib.blake2b(content, digest_size=1).digest()


def decode(content: bytes) -> int:
    """Return the number of a content.

    Raises:
        Unusable: it fails the check.
    """
    value = int.from_bytes(content[:8], "little", signed=True)
    if content != encode(value):
        raise Unusable(f"{content.hex()} is no number")
    return value


def spoilt(content: bytes) -> bytes:
    """Return the content of a file of arrays with a header that is none."""
    return content[:9] + bytes([content[9] ^ 1]) + content[10:]


def depends_on_parameters(algorithm: Algorithm) -> bool:
    """Return whether a batch moves parameters by numbers that depend on where they stood.

    It can be checked where everybody waits for every merge, so that a batch is trained from one place.
    """
    return algorithm.fragments == 1 and algorithm.delay == 0 and algorithm.late == "again"


@lru_cache(maxsize=1 << 14)
def movement(batch: int, fragment: int, anchor: bytes | None) -> npt.NDArray[np.int64]:
    """Return what a batch moves a fragment by; `anchor` is where it stood, None where that does not matter."""
    content = f"{batch} {fragment} {anchor!r}".encode()
    digest = hashlib.blake2b(content, digest_size=2 * SIZE).digest()
    return np.frombuffer(digest, np.int16).astype(np.int64) >> 6


@dataclass(frozen=True)
class SmallRecipe(Recipe):
    """What a simulated run trains: parameters. Its training step is none of a program.

    Arguments:
        fragments: arrays, each of which is a fragment.
    """

    fragments: int = 1

    @property
    def parameters(self) -> dict[str, npt.NDArray[np.float32]]:
        """Small whole numbers, by array."""
        return {
            f"array{number}": np.arange(SIZE, dtype=np.float32) + number for number in range(self.fragments)
        }

    @property
    def data(self) -> Data:
        """None is needed."""
        raise NotImplementedError

    @property
    def loss(self) -> Program:
        """None is needed."""
        raise NotImplementedError

    @property
    def evaluation(self) -> Program:
        """None is needed."""
        raise NotImplementedError

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """None is needed."""
        raise NotImplementedError


@cache
def recipe_of(fragments: int) -> SmallRecipe:
    """Return what a run of so many fragments trains."""
    return SmallRecipe(TrainingConfig(device="cpu:0"), fragments)


@cache
def compiled(algorithm: Algorithm) -> tuple[OuterSteps, list[Merge]]:
    """Return the Shepherd's programs for an algorithm, compiled once in a process."""
    outer = OuterSteps(recipe_of(algorithm.fragments), algorithm, "cpu:0")
    return outer, [
        merge(algorithm.merge, outer.segments(each), "cpu:0") for each in range(algorithm.fragments)
    ]


@cache
def coding(name: str) -> "Coding":
    """Return a codec's programs, compiled once in a process."""
    return Coding(name)


class Coding:
    """The programs of a codec for vectors of simulated runs."""

    def __init__(self, name: str) -> None:
        own = codec(name)
        self.specs = own.payload_specs(SIZE)
        self.stored_bytes = own.stored_bytes(SIZE)
        self._encode: Plan = plan(trace(own.encode, spec((SIZE,), "f32")), device="cpu:0")
        self._decode: Plan = plan(
            trace(lambda payload: own.decode(payload, SIZE), self.specs), device="cpu:0"
        )
        self._receive: Plan = plan(
            trace(lambda held, change: held + own.decode(change, SIZE), spec((SIZE,), "f32"), self.specs),
            device="cpu:0",
        )

        self._encoded: dict[bytes, dict[str, Any]] = {}
        self._decoded: dict[bytes, Vector] = {}

    def encode(self, vector: Any) -> dict[str, Any]:
        """Return what is sent of a vector."""
        exact = np.asarray(vector, np.float32)
        key = exact.tobytes()
        if key not in self._encoded:
            sent = self._encode.run(exact)
            self._encoded[key] = {name: np.asarray(array) for name, array in sent.items()}
        return self._encoded[key]

    def decode(self, payload: Mapping[str, Any]) -> Vector:
        """Return the vector of what was sent."""
        key = b"".join(payload[name].tobytes() for name in sorted(payload))
        if key not in self._decoded:
            self._decoded[key] = np.asarray(self._decode.run(dict(payload))).astype(np.float64)
        return self._decoded[key]

    def receive(self, held: Any, change: Mapping[str, Any]) -> Vector:
        """Return the next version of a fragment."""
        found = self._receive.run(np.asarray(held, np.float32), dict(change))
        return np.asarray(found).astype(np.float64)

    def forget(self) -> None:
        """Let go of what was encoded and decoded: a schedule asks for the same again and again, another one does not."""
        self._encoded.clear()
        self._decoded.clear()


State = dict[str, Any]
"""`anchors`, where each fragment was adopted; `moved`, by how much since it was last pushed; `moments`, which outlive both."""


def begin(given: Iterable[Any], moments: int = 0) -> State:
    """Return the inner state of a worker that adopts these fragments."""
    anchors = [np.asarray(each, np.float64) for each in given]
    return {"anchors": anchors, "moved": [np.zeros(SIZE, np.int64) for _ in anchors], "moments": moments}


class Function:
    """A compiled program that is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def run(self, *arguments: Any) -> Any:
        """Return what the function returns."""
        return self._function(*arguments)


def plans(algorithm: Algorithm) -> Mapping[str, Function]:
    """Return the programs of a worker, by the names that `Replica` asks for."""
    depends, upload = depends_on_parameters(algorithm), coding(algorithm.upload)

    def step(state: State, batch: int) -> tuple[State, dict[str, float]]:
        for fragment, anchor in enumerate(state["anchors"]):
            state["moved"][fragment] = state["moved"][fragment] + movement(
                batch, fragment, anchor.tobytes() if depends else None
            )
        state["moments"] += batch + 1
        return state, {"loss": 1.5}

    def push(
        fragment: int, state: State, _: Any, residual: Any
    ) -> tuple[dict[str, Any], Vector, Vector, Vector]:
        error = np.asarray(residual, np.float64) + state["moved"][fragment]
        payload = upload.encode(error)
        state["moved"][fragment] = np.zeros(SIZE, np.int64)
        return payload, error, error - upload.decode(payload), flat(fragment, state)

    def flat(fragment: int, state: State) -> Vector:
        found: Vector = state["anchors"][fragment] - state["moved"][fragment]
        return found

    def put(fragment: int, state: State, value: Any) -> State:
        moved = np.rint(state["anchors"][fragment] - np.asarray(value, np.float64))
        state["moved"][fragment] = moved.astype(np.int64)
        return state

    def mix(fragment: int, state: State, value: Any) -> State:
        state["anchors"][fragment] = np.asarray(value, np.float64)
        return state

    found: dict[str, Function] = {
        "start": Function(lambda given, _: begin(given)),
        "restart": Function(lambda held, given, _: begin(given, held["moments"])),
        "step": Function(step),
    }
    for each in range(algorithm.fragments):
        found[f"push.{each}"] = Function(partial(push, each))
        found[f"put.{each}"] = Function(partial(put, each))
        found[f"mix.{each}"] = Function(partial(mix, each))
        found[f"flat.{each}"] = Function(partial(flat, each))
        if algorithm.download != "f32":
            found[f"receive.{each}"] = Function(coding(algorithm.download).receive)
    return found
