"""The kernels of PCP, each in a program of its own whose operands and results are in bfloat16."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np

import pcp
from benchmarks.gpu.fastest import fastest
from benchmarks.gpu.kernel_cases import CAP, Case
from benchmarks.own_process import Run
from pcp import nn
from pcp.ir import Role
from pcp.ir.tree import flatten

OPTIMIZER = pcp.optimizers.adamw(1e-3, betas=(0.9, 0.99), weight_decay=0.1, decays=lambda *_: True)
KEPT = 2**16
"""Elements of each result, at most, that are compared."""


def _differentiated(case: Case, dtype: str) -> pcp.Program:
    """The program of a case; its results are the cotangents, and the loss of cross entropy."""
    operands = case.operands()
    x = pcp.spec(case.shape, dtype)
    if "attention" in case.operation:
        ends = [pcp.specs_of(case.lengths)] * (case.operation == "attention_padded")
        return pcp.vjp(pcp.trace(lambda *given: _attention(case.operation, dtype, *given), x, x, x, *ends))
    if case.operation == "cross_entropy":
        targets = pcp.specs_of(operands[1])
        return pcp.value_and_grad(pcp.trace(lambda x, t: nn.cross_entropy(_wide(x), t), x, targets))
    norm: Callable[..., Any] = nn.layer_norm if case.operation == "layer_norm" else nn.rms_norm
    weights = map(pcp.specs_of, operands[2:])
    return pcp.vjp(pcp.trace(lambda x, *w: _narrow(norm(_wide(x), *w, 1e-5), dtype), x, *weights))


def _attention(operation: str, dtype: str, *given: pcp.Tensor) -> pcp.Tensor:
    q, k, v = map(_wide, given[:3])
    if operation == "attention_padded":
        return _narrow(
            nn.scaled_dot_product_attention(q, k, v, query_lengths=given[3], key_lengths=given[3]), dtype
        )
    cap = CAP if operation == "attention_capped" else None
    return _narrow(nn.scaled_dot_product_attention(q, k, v, causal=True, cap=cap), dtype)


def _wide(x: pcp.Tensor) -> pcp.Tensor:
    return x.astype("f32")


def _narrow(x: pcp.Tensor, dtype: str) -> pcp.Tensor:
    return x.astype(dtype)


def _state(params: Any) -> dict[str, Any]:
    return {"params": params, "moments": OPTIMIZER.initial_state(params), "step": np.int32(0)}


def _adamw(case: Case) -> pcp.Program:
    state = _state(np.broadcast_to(np.float32(0), case.shape))

    def update(state: Any, gradient: pcp.Tensor) -> Any:
        params, moments, _ = OPTIMIZER.update(gradient, state["moments"], state["params"], state["step"])
        return {"params": params, "moments": moments, "step": state["step"] + 1}

    return pcp.trace(update, state, pcp.spec(case.shape, "f32"), roles=(Role.state, Role.input))


def made(case: Case, device: str, plain: bool) -> tuple[Callable[[int], None], dict[int, Any]]:
    """A function that makes calls and waits for the last, and some elements of each result of the first.

    Arguments:
        plain: computes as it is written, in float32 throughout: what errors are relative to.
    """
    dtype = "f32" if plain else "bf16"
    program = _adamw(case) if case.operation == "adamw" else _differentiated(case, dtype)
    plan = pcp.plan(program, device=device, cache=False) if plain else fastest(program, device)
    if case.operation == "adamw":
        params, gradient = case.operands()
        placed = jax.device_put(gradient)
        now = [plan.run(_state(params), placed)]
        first = sample(np.asarray(now[0]["params"]) - params)

        def update(calls: int) -> None:
            for _ in range(calls):
                now[0] = plan.run(now[0], placed)
            jax.block_until_ready(now[0])

        return update, first
    rounded = [
        operand if operand.dtype == np.int32 or operand.ndim == 1 else _rounded(operand, plain)
        for operand in case.operands()
    ]
    order = [rounded[0], *rounded[2:], rounded[1]] if "norm" in case.operation else rounded
    if case.operation == "attention_padded":
        order = [*rounded[:3], rounded[4], rounded[3]]
    operands = [jax.device_put(each) for each in order]

    def call(calls: int) -> None:
        for _ in range(calls):
            result = plan.run(*operands)
        jax.block_until_ready(result)

    return call, sample(plan.run(*operands))


def _rounded(operand: Any, plain: bool) -> Any:
    """In bfloat16, or the same numbers in float32."""
    narrow = operand.astype(jax.numpy.bfloat16)
    return narrow.astype(np.float32) if plain else narrow


def sample(results: Any) -> dict[int, Any]:
    """The first elements of each result, in float32."""
    return {
        place: np.asarray(leaf).reshape(-1)[:KEPT].astype(np.float32)
        for place, leaf in enumerate(flatten(results)[0])
    }


def contestant(device: str, plain: bool) -> tuple[str, Run]:
    """PCP in a process of its own: of a case, its name for people with some results; of a number of calls, nothing."""
    current: list[Callable[[int], None]] = []

    def run(asked: Any) -> Any:
        if isinstance(asked, int):
            current[0](asked)
            return None
        current.clear()
        call, results = made(asked, device, plain)
        current.append(call)
        return results

    return ("PCP, as written, float32" if plain else "PCP, fastest kernels"), run
