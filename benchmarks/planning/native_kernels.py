"""Native kernels beside XLA's own code for the same sites, each alone: in turn in one process, by the fastest call of each.

Sites of GPT-2 124M at 1024 tokens, attention and the products of its layers, AdamW over 19 million parameters in 16 arrays,
batch norms and the pool of ResNet-50.
A gradient that takes residuals is measured with those of its forward kernel. Run: `python -m benchmarks native_kernels`.
"""

import argparse
import json
from typing import Any

import pcp
from pcp import Program, kernels, nn
from pcp.kernels.artifact import Native
from pcp.kernels.residuals import with_residuals
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised

ROWS, VECTOR = pcp.spec((1024, 768), "f32"), pcp.spec((768,), "f32")
WIDE, WIDE_VECTOR = pcp.spec((1024, 3072), "f32"), pcp.spec((3072,), "f32")
HEADS, LONG = pcp.spec((4, 256, 12, 64), "f32"), pcp.spec((1, 1024, 12, 64), "f32")
LOGITS, TARGETS = pcp.spec((1024, 50257), "f32"), pcp.spec((1024,), "i32")
ROW, WEIGHT, DOWN = pcp.spec((1, 768), "f32"), pcp.spec((768, 3072), "f32"), pcp.spec((3072, 768), "f32")

NORMED = [(2, 56, 56, 256), (8, 56, 56, 64), (8, 14, 14, 1024)]


def gradient(function: Any, *specs: Any) -> Program:
    """A function of some arguments but the last, times that, and the gradients of those."""
    loss = pcp.trace(lambda *x: (function(*x[:-1]) * x[-1]).sum(), *specs)
    return pcp.value_and_grad(raised(loss), wrt=tuple(range(len(specs) - 1)))


def causal(*x: Any) -> Any:
    """Attention of (batch, length, heads, width)."""
    return nn.scaled_dot_product_attention(*x, causal=True)


def cross_entropy(logits: Any, targets: Any) -> Any:
    """The mean of the examples."""
    return nn.negative_log_likelihood(logits, targets).mean()


def batch_norm(x: Any, scale: Any, bias: Any) -> Any:
    """By the statistics of the batch, with a ReLU."""
    axes = tuple(range(x.ndim - 1))
    centred = x - x.mean(axes)
    return nn.relu(centred * pcp.rsqrt((centred * centred).mean(axes) + 1e-5) * scale + bias)


def largest(x: Any) -> Any:
    """Of windows of 3 by 3, two apart."""
    return pcp.reduce_window(x, "max", (1, 3, 3, 1), (1, 2, 2, 1), "SAME")


def adamw() -> Program:
    """A training step whose loss is cheap."""
    weights = {f"w{i}": pcp.spec((768, 3072), "f32") for i in range(8)}
    weights |= {f"b{i}": VECTOR for i in range(8)}

    def loss(given: Any, x: Any) -> Any:
        return sum((x * w**2).sum() for w in given.values())

    return pcp.training_step(loss, pcp.optimizers.adamw(1e-3), weights, pcp.spec((), "f32"), clip_norm=1.0)


def programs() -> dict[str, Program]:
    """What the sites are taken from."""
    return {
        "layer norm": gradient(nn.layer_norm, ROWS, VECTOR, VECTOR, ROWS),
        "RMS norm": gradient(nn.rms_norm, ROWS, VECTOR, ROWS),
        "residual, layer norm": pcp.trace(lambda x, r, s, b: (x + r, nn.layer_norm(x + r, s, b)), ROWS, ROWS, VECTOR, VECTOR),
        "residual, RMS norm": pcp.trace(lambda x, r, s: (x + r, nn.rms_norm(x + r, s)), ROWS, ROWS, VECTOR),
        "bias, GELU": gradient(lambda x, b: nn.gelu(x + b), WIDE, WIDE_VECTOR, WIDE),
        "dropout": pcp.trace(lambda x, k: nn.dropout(x, k, 0.1), ROWS, pcp.spec((2,), "u32")),
        "attention of 4 times 256 tokens": gradient(causal, *[HEADS] * 4),
        "attention of 1024 tokens": gradient(causal, *[LONG] * 4),
        "cross entropy of 50257 classes": pcp.value_and_grad(raised(pcp.trace(cross_entropy, LOGITS, TARGETS))),
        "AdamW": adamw(),
        **{
            f"batch norm and ReLU of {shape}": gradient(
                batch_norm, *(pcp.spec(each, "f32") for each in (shape, shape[-1:], shape[-1:], shape))
            )
            for shape in NORMED
        },
        "max pool": gradient(largest, pcp.spec((2, 112, 112, 64), "f32"), pcp.spec((2, 56, 56, 64), "f32")),
        "(1024, 768) (768, 3072)": pcp.trace(lambda x, w: x @ w, ROWS, WEIGHT),
        "(1024, 3072) (3072, 768)": pcp.trace(lambda x, w: x @ w, WIDE, DOWN),
        "(768, 1024) (1024, 3072), left transposed": pcp.trace(lambda x, y: pcp.einsum("tm,tn->mn", x, y), ROWS, WIDE),
        "(1, 768) (768, 3072)": pcp.trace(lambda x, w: x @ w, ROW, WEIGHT),
        "(1, 768) (3072, 768), right transposed": pcp.trace(lambda x, w: x @ w.T, ROW, DOWN),
        "product, bias, GELU": pcp.trace(lambda *x: nn.gelu(nn.linear(*x)), ROWS, WEIGHT, WIDE_VECTOR),
        "product, bias, exact GELU": pcp.trace(lambda *x: nn.gelu(nn.linear(*x), approximate=False), ROWS, WEIGHT, WIDE_VECTOR),
        "product, bias, SiLU": pcp.trace(lambda *x: nn.silu(nn.linear(*x)), ROWS, WEIGHT, WIDE_VECTOR),
        "product, bias, residual": pcp.trace(lambda r, *x: r + nn.linear(*x), ROWS, WIDE, DOWN, VECTOR),
    }  # fmt: skip


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Options of this benchmark."""
    parser.add_argument("--seconds", type=float, default=6.0, help="to time each site for (default: 6)")
    parser.add_argument("--only", nargs="+", metavar="NAME", help="sites of these (default: all)")


def run(arguments: argparse.Namespace) -> None:
    """Measure, and print a line for each site."""
    with Bench() as bench:
        for name, program in programs().items():
            if arguments.only and name not in arguments.only:
                continue
            sites = kernels.sites_of(prepared(program), "cpu")
            native = {
                site.key: [
                    kernel
                    for kernel in map(kernels.kernel_named, site.kernels)
                    if isinstance(kernel.artifact, Native)
                ]
                for site in sites
            }
            widest = kernels.cover(each for each in sites if native[each.key])
            for site, kernel in ((each, kernel) for each in widest for kernel in native[each.key]):
                given = with_residuals(site, kernel, "cpu")
                row = bench.measure(
                    Request(
                        site.region if given is None else given.subject,
                        kernels.replaced(site.region, kernel) if given is None else given.candidate,
                        kernel.name,
                        widened(site.region if given is None else given.subject),
                        inputs=Recipe(sets=1),
                        calls=30,
                        timing_seconds=arguments.seconds,
                        residuals=None if given is None else given.residuals,
                    )
                )
                if row.failure is not None:
                    print(f"{name}: {kernel.name} failed: {row.detail}", flush=True)
                    continue
                best, plain = min(row.seconds), min(row.plain_seconds)
                facts = {
                    "where": name,
                    "kernel": kernel.name,
                    "seconds": best,
                    "plain": plain,
                    "ratio": best / plain,
                    "error": row.error,
                }
                print(
                    json.dumps(facts)
                    if arguments.json
                    else f"{name:43}{kernel.name:34}{1e3 * best:8.2f} ms, XLA {1e3 * plain:8.2f} ms: {best / plain:.2f}, "
                    f"error {row.error or 0.0:.1e}",
                    flush=True,
                )
