"""Attention and its gradient by native kernels beside PyTorch's: no less exact, in float32 and where operands are bfloat16."""

import numpy as np
import torch

import pcp
from pcp import kernels, nn
from pcp.planning.paths.preparation import prepared

SHAPE = (2, 190, 3, 32)


def errors(found: list[np.ndarray], exact: list[np.ndarray]) -> float:
    return max(float(np.linalg.norm(a - b) / np.linalg.norm(b)) for a, b in zip(found, exact, strict=True))


def by_torch(arrays: list[np.ndarray], dtype: torch.dtype) -> list[np.ndarray]:
    """The result, and the cotangents of query, key and value."""
    q, k, v, cotangent = (torch.tensor(x).to(dtype).transpose(1, 2) for x in arrays)
    for x in (q, k, v):
        x.requires_grad_()
    y = torch.nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True)
    y.backward(cotangent)
    made = (y, q.grad, k.grad, v.grad)
    return [x.detach().transpose(1, 2).double().numpy() for x in made if x is not None]


def by_kernels(arrays: list[np.ndarray], kind: str) -> list[np.ndarray]:
    specs = [pcp.spec(SHAPE, "f32")] * 4

    def loss(
        q: pcp.Tensor, k: pcp.Tensor, v: pcp.Tensor, cotangent: pcp.Tensor
    ) -> tuple[pcp.Tensor, pcp.Tensor]:
        y = nn.scaled_dot_product_attention(q, k, v, causal=True)
        return (y * cotangent).sum(), y

    program = prepared(pcp.value_and_grad(pcp.trace(loss, *specs), wrt=(0, 1, 2), has_aux=True))
    sites = [each for each in kernels.sites_of(program, "cpu") if each.family.startswith("attention")]
    chosen = {each.key: kernels.kernel_named(f"{each.family}.{kind}") for each in sites}
    (_, y), cotangents = pcp.plan(kernels.apply_kernels(program, chosen), device="cpu:0").run(*arrays)
    return [np.asarray(x) for x in (y, *cotangents)]


def test_errors_are_those_of_pytorch() -> None:
    rng = np.random.default_rng()
    arrays = [rng.normal(size=SHAPE).astype(np.float32) for _ in range(4)]
    exact = by_torch(arrays, torch.float64)
    for kind, dtype, limit in (("native", torch.float32, 1e-6), ("native:bf16", torch.bfloat16, 1e-2)):
        mine, theirs = errors(by_kernels(arrays, kind), exact), errors(by_torch(arrays, dtype), exact)
        assert mine <= max(1.5 * theirs, limit / 10), kind
        assert mine <= limit, kind
