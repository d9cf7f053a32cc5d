"""Training in whole numbers, so that a reference can check it exactly: each batch moves each fragment by a number.

The worker's own inner state (`Replica`) runs on these numbers: a fragment is one number, a push is what a
worker moved it by, and a codec drops low digits, which error feedback keeps. Integers add up in any order
and grouping, so however the data was cut, the merged sum is one.
"""

import hashlib
from collections.abc import Callable, Iterable, Mapping
from functools import lru_cache, partial
from typing import Any

from pcp.distributed.algorithms import Algorithm
from pcp.errors import PCPError

PROGRAM, DATA = b"a program", b"all of the data"
"""What workers fetch before their first lease."""

TOKENS_PER_BATCH = 7
PAYLOAD_BYTES = 9
DROPPED_BITS = 16  # by a codec, of the 20 that a batch may move a fragment by
_MODULUS = 1 << 60
_INITIAL = 20231108


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
    """Return a content of the same size that fails the check; of a file of arrays, one whose header cannot be read."""
    return content[:8] + bytes([content[8] ^ 1]) + content[9:]


def rounded(value: int, codec: str) -> int:
    """Return what a codec leaves of a number."""
    return value if codec == "f32" else (value >> DROPPED_BITS) << DROPPED_BITS


def depends_on_parameters(algorithm: Algorithm) -> bool:
    """Return whether a batch moves parameters by a number that depends on where they stood.

    It can be checked where everybody waits for every merge, so that a batch is trained from one place.
    """
    return algorithm.fragments == 1 and algorithm.delay == 0 and algorithm.late == "again"


@lru_cache(maxsize=1 << 14)
def movement(batch: int, fragment: int, anchor: int | None) -> int:
    """Return what a batch moves a fragment by; `anchor` is where it stood, None where that does not matter."""
    content = f"{batch} {fragment} {anchor}".encode()
    return int.from_bytes(hashlib.blake2b(content, digest_size=4).digest(), "little") >> 12


def initial(fragment: int) -> int:
    """Return what a fragment of every simulated run starts from."""
    return _INITIAL + fragment


def outer_step(algorithm: Algorithm, master: int, pushes: Iterable[int]) -> int:
    """Return the exact parameters of a fragment after a merge."""
    total = sum(pushes)
    return (31 * master + total) % _MODULUS if depends_on_parameters(algorithm) else master + total


def reference(algorithm: Algorithm, rounds: Iterable[Iterable[int]]) -> int:
    """Return the parameters of a run of one fragment that merges these batches, each once, round by round."""
    value = initial(0)
    for batches in rounds:
        value = outer_step(algorithm, value, [movement(batch, 0, value) for batch in batches])
    return value


class Number(int):
    """A flat fragment: a number that has a shape."""

    shape = ()


State = dict[str, Any]
"""`anchors`, where each fragment was adopted; `moved`, by how much since it was last pushed; `moments`, which outlive both."""


def begin(fragments: Iterable[int], moments: int = 0) -> State:
    """Return the inner state of a worker that adopts these fragments."""
    anchors = [int(each) for each in fragments]
    return {"anchors": anchors, "moved": [0] * len(anchors), "moments": moments}


class Batches:
    """Batches that are their own numbers."""

    tokens_per_batch = TOKENS_PER_BATCH

    def batch(self, index: int) -> int:
        """The number."""
        return index


class Plan:
    """A compiled program that is a function."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._function = function

    def run(self, *arguments: Any) -> Any:
        """Return what the function returns."""
        return self._function(*arguments)


def plans(algorithm: Algorithm) -> Mapping[str, Plan]:
    """Return the programs of a worker, by the names that `Replica` asks for."""
    depends = depends_on_parameters(algorithm)

    def step(state: State, batch: int) -> tuple[State, dict[str, float]]:
        for fragment, anchor in enumerate(state["anchors"]):
            state["moved"][fragment] += movement(batch, fragment, anchor if depends else None)
        state["moments"] += batch + 1
        return state, {"loss": 1.5}

    def gradient(fragment: int, state: State) -> Number:
        moved = Number(state["moved"][fragment])
        state["moved"][fragment] = 0
        return moved

    def push(moved: Number, _: Number, residual: Any) -> tuple[dict[str, int], int, int]:
        error = int(residual) + int(moved)
        sent = rounded(error, algorithm.upload)
        return {"value": sent}, error, error - sent

    def flat(fragment: int, state: State) -> Number:
        return Number(state["anchors"][fragment] - state["moved"][fragment])

    def put(fragment: int, state: State, value: Number) -> State:
        state["moved"][fragment] = state["anchors"][fragment] - int(value)
        return state

    def mix(fragment: int, state: State, value: Number) -> State:
        state["anchors"][fragment] = int(value)
        return state

    by_name: dict[str, Plan] = {
        "start": Plan(lambda fragments, _: begin(fragments)),
        "restart": Plan(lambda held, fragments, _: begin(fragments, held["moments"])),
        "step": Plan(step),
    }
    for each in range(algorithm.fragments):
        by_name[f"gradient.{each}"] = Plan(partial(gradient, each))
        by_name[f"push.{each}"] = Plan(push)
        by_name[f"put.{each}"] = Plan(partial(put, each))
        by_name[f"mix.{each}"] = Plan(partial(mix, each))
        by_name[f"flat.{each}"] = Plan(partial(flat, each))
        by_name[f"receive.{each}"] = Plan(lambda anchor, change: Number(anchor + change))
    return by_name
