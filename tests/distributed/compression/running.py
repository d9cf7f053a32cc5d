"""Programs of codecs for a length, compiled once."""

import functools
from typing import Any

import numpy as np

import pcp
from pcp.distributed.compression import Codec, codec
from tests.execution import run

Array = np.ndarray[Any, Any]


@functools.cache
def encoder(of: Codec, n: int) -> pcp.Program:
    """x -> payload"""
    return pcp.trace(of.encode, pcp.spec((n,), "f32"))


@functools.cache
def decoder(of: Codec, n: int) -> pcp.Program:
    """payload -> x"""
    specs = {name: pcp.spec(spec.shape, spec.dtype) for name, spec in of.payload_specs(n).items()}
    return pcp.trace(lambda payload: of.decode(payload, n), specs)


@functools.cache
def feedback(of: Codec, n: int) -> pcp.Program:
    """x -> (decoded, residual), in one Program"""

    def push(x: pcp.Tensor) -> tuple[pcp.Tensor, pcp.Tensor]:
        decoded = of.decode(of.encode(x), n)
        return decoded, x - decoded

    return pcp.trace(push, pcp.spec((n,), "f32"))


def encoded(name: str, x: Array) -> dict[str, Array]:
    """The payload of x."""
    payload: dict[str, Array] = run(encoder(codec(name), x.size), x)
    return payload


def decoded(name: str, payload: dict[str, Array], n: int) -> Array:
    """The vector of a payload."""
    return np.asarray(run(decoder(codec(name), n), payload))


def round_trip(name: str, x: Array) -> Array:
    """x, encoded and decoded by two Programs."""
    return decoded(name, encoded(name, x), x.size)


def pushed(name: str, x: Array) -> tuple[Array, Array]:
    """What is decoded of x, and the residual, from one Program."""
    values, residual = run(feedback(codec(name), x.size), x)
    return np.asarray(values), np.asarray(residual)


def normal(n: int, seed: int = 0) -> Array:
    """Normally distributed f32."""
    return np.random.default_rng(seed).standard_normal(n).astype(np.float32)
