"""Kernels as tests plant them: rows of a table that become folders as they come from outside."""

from dataclasses import dataclass
from pathlib import Path

from pcp.kernels.candidate import Candidate, read_candidate

# What every planted file begins with: the honest computations, to be spoiled.
BEGINNING = '''
import ctypes, itertools, math, os, random, sys, threading
import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

def product(x, y, contract, batch):
    return lax.dot_general(x, y, (contract, batch), precision=lax.Precision.HIGHEST)

def softmax(x, axis):
    return jax.nn.softmax(x, axis)

def normalisation(x, scale, bias=None, *, epsilon, centred):
    values = x - x.mean(-1, keepdims=True) if centred else x
    normed = values * lax.rsqrt((values * values).mean(-1, keepdims=True) + epsilon) * scale
    return normed if bias is None else normed + bias

def visible(q, k):
    queries, keys = q.shape[1], k.shape[1]
    return jnp.arange(queries)[:, None] + (keys - queries) >= jnp.arange(keys)

def attention(query, key, value, causal):
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(visible(query, key), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores), value)

def cross_entropy(logits, targets):
    return jax.nn.logsumexp(logits, -1) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]

def embedding_gradient(indices, updates, rows):
    return jnp.zeros((rows, updates.shape[1]), updates.dtype).at[indices].add(updates)

def outside(function, like, *operands):
    """Call NumPy code from inside of the compiled program, as native code is called."""
    return jax.pure_callback(function, jax.ShapeDtypeStruct(like.shape, like.dtype), *operands)

bf16, f16, f32 = jnp.bfloat16, jnp.float16, jnp.float32
'''


@dataclass(frozen=True)
class Planted:
    """A kernel to plant.

    Arguments:
        name: of the family and what is particular about it.
        source: a function `kernel`, after BEGINNING.
        faults: any of which may be found; empty for honest kernels.
        effect: what it claims.
        tolerance: that it deserves, for honest kernels.
        manifest: further lines.
        kind: the class of fault, for people.
    """

    name: str
    source: str
    faults: tuple[str, ...] = ()
    effect: str = "reassociating"
    tolerance: float | None = None
    manifest: str = ""
    kind: str = ""

    def __str__(self) -> str:
        return self.name

    def plant(self, folder: Path) -> Candidate:
        """Write its folder and read it."""
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "kernel.py").write_text(BEGINNING + self.source)
        (folder / "kernel.toml").write_text(
            f'name = "{self.name}"\neffect = "{self.effect}"\nabout = "Planted by a test."\n'
            f'entry = "kernel.py:kernel"\n{self.manifest}'
        )
        return read_candidate(folder)
