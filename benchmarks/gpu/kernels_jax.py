"""Attention with a cap or of lengths in JAX: by cuDNN where it takes it, else as it is written."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from benchmarks.gpu.kernel_cases import CAP, Case
from benchmarks.gpu.kernels_pcp import sample
from benchmarks.own_process import Run


def variants(case: Case, device: str) -> list[str]:
    """How JAX computes a case, the ways that are compared."""
    if case.operation == "attention_padded":
        return ["cuDNN"] if device.startswith("cuda") else ["XLA"]
    return ["XLA"] if case.operation == "attention_capped" else []


def _capped(q: Any, k: Any, v: Any) -> Any:
    places = jnp.arange(q.shape[1])
    scores = jnp.einsum("bqhd,bkhd->bhqk", q, k, preferred_element_type=jnp.float32)
    scores = CAP * jnp.tanh(scores * (q.shape[-1] ** -0.5 / CAP))
    weights = jax.nn.softmax(jnp.where(places <= places[:, None], scores, -jnp.inf))
    return jnp.einsum("bhqk,bkhd->bqhd", weights.astype(v.dtype), v)


def made(case: Case, device: str, how: str) -> tuple[Callable[..., Any], list[Any]]:
    """The gradient of a case, and its operands."""
    kind, _, number = device.partition(":")
    place = jax.devices(kind)[int(number)]
    *floats, lengths = [*case.operands(), None][:5]
    operands = [jax.device_put(each.astype(jnp.bfloat16), place) for each in floats]
    ends = [] if lengths is None else [jax.device_put(lengths, place)]

    def attention(q: Any, k: Any, v: Any, *ends: Any) -> Any:
        if not ends:
            return _capped(q, k, v)
        implementation: Any = how.lower()
        return jax.nn.dot_product_attention(
            q, k, v, query_seq_lengths=ends[0], key_value_seq_lengths=ends[0], implementation=implementation
        )

    def gradient(q: Any, k: Any, v: Any, g: Any, *ends: Any) -> Any:
        return jax.vjp(lambda *x: attention(*x, *ends), q, k, v)[1](g)

    return jax.jit(gradient), [*operands, *ends]


def contestant(device: str) -> tuple[str, Run]:
    """JAX in a process of its own: of a case and a way, some results; of a number of calls, nothing."""
    current: list[tuple[Callable[..., Any], list[Any]]] = []

    def run(asked: Any) -> Any:
        if isinstance(asked, int):
            form, operands = current[0]
            for _ in range(asked):
                last = form(*operands)
            jax.block_until_ready(last)
            return None
        current.clear()
        case, how = asked
        form, operands = made(case, device, how)
        current.append((form, operands))
        return sample(form(*operands))

    return "JAX", run
