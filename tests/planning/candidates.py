"""Candidates for a product of two matrices that go wrong in every way; run by the child of a Bench only."""

import itertools
import os
import stat
import sys

import jax
import jax.numpy as jnp
import numpy as np

CALLS = itertools.count()
FIRST = []


def good(a, b):
    return a @ b


def low_precision(a, b):
    return jnp.dot(a.astype(jnp.bfloat16), b.astype(jnp.bfloat16), preferred_element_type=jnp.float32)


def shape(a, b):
    return (a @ b)[:-1]


def dtype(a, b):
    return (a @ b).astype(jnp.bfloat16)


def count(a, b):
    return a @ b, a


def nan(a, b):
    return jnp.sqrt(a @ b)


def compile_error(*_):
    raise ValueError("this kernel needs a tile of 7")


def run_error(a, b):
    def fail(_):
        raise RuntimeError("the device is on fire")

    return jax.pure_callback(fail, jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype), a)


def random(a, b):
    def noise(x):
        return x * np.float32(1 + 1e-6 * next(CALLS))

    return jax.pure_callback(noise, jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype), a @ b)


def stale(a, b):
    def remembered(x):
        FIRST.append(np.array(x))
        return FIRST[0]

    return jax.pure_callback(remembered, jax.ShapeDtypeStruct((a.shape[0], b.shape[1]), a.dtype), a @ b)


def crash(*_):
    os.abort()


def hang(*_):
    while True:
        pass


def eat_memory(*_):
    eaten = []
    while True:
        eaten.append(np.empty(1 << 26, np.uint8))  # never touched: it is the address space that is limited


def large(a, b):
    rows = jnp.broadcast_to(a[0, 0], (1 << 20, 1 << 14)) + jnp.arange(1 << 14)
    return a @ b + jnp.sort(rows, axis=0)[-1, 0]


def garbage(a, b):
    for descriptor in range(3, 64):
        try:
            if stat.S_ISFIFO(os.fstat(descriptor).st_mode):
                os.write(descriptor, b'{"trial": {"failure": null}}\n')
        except OSError:
            continue
    return a @ b


def forged(a, b):
    """Answers in the place of its process, with the token that it finds there."""
    frame = sys._getframe()
    while "parent" not in frame.f_locals:
        frame = frame.f_back
    frame.f_locals["parent"].say(token=frame.f_locals["token"], trial={"seconds": ["soon"], "error": []})
    return a @ b


def chatty(a, b):
    print("hello")
    os.write(1, b"hello\n")
    return a @ b
