"""Products and causal attention on a processor beside PyTorch's, each size and each order of operands.

    python -m benchmarks cpu-kernels --cores 1 2
    python -m benchmarks cpu-kernels products --precision f32
    python -m benchmarks cpu-kernels attention --seconds 3 --only 4096
    python -m benchmarks cpu-kernels --dry

Each contestant runs in a process of its own, on so many of the cores that this process may use, and takes turns with the
others. Operands and results of PCP are float32, which its kernels of bfloat16 round where they read, or, of products,
bfloat16 ("given"). PyTorch is given bfloat16 and the memory of its result, or float32 that it rounds first ("rounds").
Products are those of GPT-2 124M's training step of 1,024 tokens, with those of their gradients, and 2048 x 2048 x 2048; sizes
are rows x columns x summed over, and an operand is stored turned where it says so. PyTorch is told a window by a mask of
booleans. The error is in norm, of some rows, beside float64.
With `--limit` rates are told as shares of it, in GFLOP/s of one core: 3600 for tiles of bfloat16 at 3.5 GHz.
"""

import argparse
import functools
import json
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import ml_dtypes
import numpy as np

import pcp
from benchmarks.options import add_option
from benchmarks.own_process import OwnProcess, Run, on_cores
from pcp import nn
from pcp.kernels import Kernel
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.rewrite.raising import raised
from pcp.rewrite.row import Effect

Arrays = list[np.ndarray[Any, Any]]
LAYERS = ((2304, 768), (768, 768), (3072, 768), (768, 3072))
"""Columns and inner sizes of the products of a layer."""


@dataclass(frozen=True, slots=True)
class ProductCase:
    """A product: `rows` times `inner`, and `inner` times `columns`; `turned` names the operand that is stored transposed."""

    rows: int
    columns: int
    inner: int
    turned: str = ""

    def __str__(self) -> str:
        order = f", {self.turned} turned" if self.turned else ""
        return f"{self.rows} x {self.columns} x {self.inner}{order}"

    @property
    def flops(self) -> float:
        """Of one call."""
        return 2.0 * self.rows * self.columns * self.inner

    def operands(self) -> Arrays:
        """As they are stored."""
        random = np.random.default_rng(0)
        x, y = (self.rows, self.inner), (self.inner, self.columns)
        shapes = [x[::-1] if self.turned == "left" else x, y[::-1] if self.turned == "right" else y]
        return [random.standard_normal(shape, np.float32) for shape in shapes]

    def compute(self, x: Any, y: Any) -> Any:
        """The product, of NumPy's arrays, PCP's tensors or PyTorch's."""
        return (x.T if self.turned == "left" else x) @ (y.T if self.turned == "right" else y)

    def program(self, dtype: str = "f32") -> pcp.Program:
        """The same as a program."""
        return pcp.trace(self.compute, *(pcp.spec(each.shape, dtype) for each in self.operands()))

    def error(self, found: Arrays) -> float:
        """Of some rows."""
        x, y = self.operands()
        some = slice(0, 32)
        x = x[:, some] if self.turned == "left" else x[some]
        return in_norm(found[0][some], self.compute(x.astype(np.float64), y.astype(np.float64)))


@dataclass(frozen=True, slots=True)
class AttentionCase:
    """Causal attention of 12 heads of width 64, perhaps with its gradient, perhaps of the last keys of a window alone."""

    batch: int
    length: int
    gradient: bool
    window: int | None = None

    def __str__(self) -> str:
        kind = "with its gradient" if self.gradient else "forward"
        seen = "" if self.window is None else f", window {self.window}"
        return f"attention {self.batch} x {self.length}{seen}, {kind}"

    @property
    def flops(self) -> float:
        """Of one call: two products forward, and five more for the gradient, of the pairs of which a query sees the key."""
        pairs = self.length**2 / 2 if self.window is None else float(self.seen.sum())
        return (14 if self.gradient else 4) * self.batch * 12 * pairs * 64.0

    @property
    def seen(self) -> np.ndarray[Any, Any]:
        """Which keys a query sees."""
        causal = np.tri(self.length, dtype=bool)
        return causal if self.window is None else causal & ~np.tri(self.length, k=-self.window, dtype=bool)

    def operands(self) -> Arrays:
        """Query, key, value and a cotangent."""
        random = np.random.default_rng(0)
        shape = (self.batch, self.length, 12, 64)
        return [random.standard_normal(shape, np.float32) for _ in range(4 if self.gradient else 3)]

    def program(self) -> pcp.Program:
        """Attention, or its gradients."""
        specs = [pcp.spec(each.shape, "f32") for each in self.operands()]

        def weighted(q: Any, k: Any, v: Any, g: Any) -> Any:
            return (attention(q, k, v) * g).sum()

        def attention(*x: Any) -> Any:
            return nn.scaled_dot_product_attention(*x, causal=True, window=self.window)

        if not self.gradient:
            return raised(pcp.trace(attention, *specs))
        return pcp.value_and_grad(raised(pcp.trace(weighted, *specs)), wrt=(0, 1, 2))

    def error(self, found: Arrays) -> float:
        """The worst of the results of one head of one sequence; the value beside gradients is not looked at."""
        q, k, v, *g = (each[0, :, 0].astype(np.float64) for each in self.operands())
        scores = q @ k.T / 8 + np.where(self.seen, 0.0, -np.inf)
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        exact = [weights @ v]
        if self.gradient:
            of_weights = g[0] @ v.T
            of_scores = weights * (of_weights - (of_weights * weights).sum(-1, keepdims=True)) / 8
            exact = [of_scores @ k, of_scores.T @ q, weights.T @ g[0]]
        return max(in_norm(a[0, :, 0], b) for a, b in zip(found[-len(exact) :], exact, strict=True))


Case = ProductCase | AttentionCase


def in_norm(found: Any, exact: Any) -> float:
    """The relative error in norm."""
    return float(np.linalg.norm(found - exact) / np.linalg.norm(exact))


def product_cases() -> Iterator[ProductCase]:
    """Those that matter most come first."""
    yield ProductCase(1024, 50257, 768, "right")
    for turned in ("", "right", "left"):
        yield ProductCase(2048, 2048, 2048, turned)
    for columns, inner in LAYERS:
        yield ProductCase(1024, columns, inner)
        yield ProductCase(1024, inner, columns, "right")
        yield ProductCase(inner, columns, 1024, "left")
    yield ProductCase(1024, 768, 50257)
    yield ProductCase(50257, 768, 1024, "left")


def attention_cases() -> Iterator[AttentionCase]:
    """Forward, then with gradients."""
    for gradient in (False, True):
        for batch, length in ((4, 256), (1, 1024), (1, 4096)):
            yield AttentionCase(batch, length, gradient)
        yield AttentionCase(1, 4096, gradient, window=256)


DRY: list[Case] = [
    ProductCase(64, 96, 80, "right"),
    ProductCase(40, 33, 65, "left"),
    AttentionCase(1, 64, True),
    AttentionCase(1, 64, True, window=9),
]
"""What proves in a minute that every line of this runs."""


def chosen(program: pcp.Program, narrow: bool) -> pcp.Plan:
    """A plan with native kernels at every site, of bfloat16 or of float32."""
    ready = prepared(program)
    classes = site_classes(ready, "cpu")

    def kernel(kernels: Sequence[Kernel]) -> Kernel | None:
        rounding = {Effect.lowers_precision: True}
        native = [each for each in kernels if ".native" in each.name]
        fitting = [each for each in native if rounding.get(each.effect, False) == narrow]
        return next(iter(fitting or native), None)

    found = {each.digest: kernel(each.kernels) for each in classes}
    path = Path.of(ready, kernels_by_site(classes, {digest: each for digest, each in found.items() if each}))
    return pcp.plan(ready, device="cpu:0", path=path, cache=False)


def called(plan: pcp.Plan, operands: Arrays) -> tuple[Arrays, Run]:
    """Results in float32; the result of a call is dropped before the next."""
    import jax

    placed = [jax.device_put(each) for each in operands]

    def call() -> Any:
        return jax.block_until_ready(plan.run(*placed))

    return [np.asarray(each).astype(np.float32) for each in jax.tree.leaves(call())], timed(call)


def with_pcp(case: Case, narrow: bool) -> tuple[Arrays, Run]:
    """PCP's kernels."""
    return called(chosen(case.program(), narrow), case.operands())


def given_bf16(case: Case) -> tuple[Arrays, Run] | None:
    """PCP's product of operands that are bfloat16, with such a result."""
    if not isinstance(case, ProductCase):
        return None
    operands = [each.astype(ml_dtypes.bfloat16) for each in case.operands()]
    return called(chosen(case.program("bf16"), narrow=False), operands)


def with_torch(case: Case, narrow: bool, rounds: bool) -> tuple[Arrays, Run] | None:
    """PyTorch's product or attention; None if it is not installed."""
    try:
        import torch
    except ImportError:
        return None
    dtype = torch.bfloat16 if narrow else torch.float32
    given = [torch.from_numpy(each) for each in case.operands()]
    operands = given if rounds else [each.to(dtype) for each in given]
    call: Callable[[], Any]
    if isinstance(case, ProductCase):
        of = case
        result = torch.empty((of.rows, of.columns), dtype=dtype)

        def call() -> Any:
            x, y = (each.to(dtype) for each in operands)
            x, y = x.T if of.turned == "left" else x, y.T if of.turned == "right" else y
            return [torch.mm(x, y, out=result)]
    else:
        leaves = [each.requires_grad_(of_gradient) for each in operands for of_gradient in [case.gradient]]
        seen = {"is_causal": True} if case.window is None else {"attn_mask": torch.from_numpy(case.seen)}

        def call() -> Any:
            q, k, v, *g = leaves
            turned = (each.to(dtype).transpose(1, 2) for each in (q, k, v))
            found = torch.nn.functional.scaled_dot_product_attention(*turned, **seen).transpose(1, 2)
            return list(torch.autograd.grad(found, (q, k, v), g[0].to(dtype))) if g else [found]

    return [each.detach().float().numpy() for each in call()], timed(call)


def timed(call: Callable[[], Any]) -> Run:
    """As many calls as fit in some seconds, at least two; the seconds of each."""

    def run(seconds: float) -> list[float]:
        took: list[float] = []
        while len(took) < 2 or sum(took) < seconds:
            start = time.perf_counter()
            call()
            took.append(time.perf_counter() - start)
        return took

    return run


def contestants(narrow: bool) -> dict[str, tuple[Any, ...]]:
    """What makes each of a case."""
    if not narrow:
        return {"PCP": (with_pcp, False), "PyTorch": (with_torch, False, False)}
    return {
        "PCP": (with_pcp, True),
        "PCP, given": (given_bf16,),
        "PyTorch": (with_torch, True, False),
        "PyTorch, rounds": (with_torch, True, True),
    }


def on_every_case(make: Callable[..., Any], *arguments: Any) -> tuple[str, Run] | None:
    """A contestant that is given a case, and tells its error, or seconds, and tells those of calls of the case before."""
    if make(DRY[0], *arguments) is None:
        return None
    now: list[Run] = []

    def run(given: Any) -> Any:
        if isinstance(given, float):
            return now[0](given)
        now.clear()
        made = make(given, *arguments)
        if made is None:
            return None
        now.append(made[1])
        return given.error(made[0])

    return "there", run


def compared(
    cases: Sequence[Case], narrow: bool, cores: int, seconds: float, turns: int = 3
) -> Iterator[dict[str, Any]]:
    """One row for each case and each contestant that is installed."""
    with ExitStack() as stack:
        processes = {
            name: stack.enter_context(OwnProcess(on_every_case, *how))
            for name, how in contestants(narrow).items()
        }
        there = {name: each for name, each in processes.items() if each.made is not None}
        for case in cases:
            errors = {name: each.call(case)[1] for name, each in there.items()}
            taken: dict[str, list[float]] = {name: [] for name in there if errors[name] is not None}
            for _ in range(turns):
                for name, calls in taken.items():
                    calls += there[name].call(seconds / turns)[1]
            for name in taken:
                yield {
                    "case": str(case),
                    "cores": cores,
                    "contestant": name,
                    "seconds": statistics.median(taken[name]),
                    "fastest_seconds": min(taken[name]),
                    "gflops": case.flops / statistics.median(taken[name]) / 1e9,
                    "error": errors[name],
                }


def line_of(row: dict[str, Any], limit: float) -> str:
    """A row as text."""
    share = f"{row['gflops'] / limit / row['cores']:5.0%} of the limit, " if limit else ""
    return (
        f"{row['case']:46} {row['cores']:3} cores  {row['contestant']:16} {row['seconds'] * 1e3:9.2f} ms "
        f"(least {row['fastest_seconds'] * 1e3:9.2f})  {row['gflops']:7.0f} GFLOP/s, {share}error {row['error']:.1e}"
    )


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument(
        "which", nargs="*", choices=("products", "attention", []), default=[], help="default: both"
    )
    parser.add_argument("--cores", type=int, nargs="+", help="how many (default: all that it may use)")
    parser.add_argument("--precision", choices=("bf16", "f32"), default="bf16", help="default: bf16")
    add_option(parser, "--seconds", 1.0, "of calls of each contestant")
    add_option(parser, "--cases", 0, "so many of each only; 0 for all")
    parser.add_argument("--only", default="", help="cases whose names have this in them")
    parser.add_argument("--limit", type=float, default=0.0, help="of one core, in GFLOP/s")
    parser.add_argument("--dry", action="store_true", help="tiny sizes")


def run(arguments: argparse.Namespace) -> None:
    """Print the comparison, case by case."""
    tell = functools.partial(print, flush=True)
    which = arguments.which or ["products", "attention"]
    cases: list[Case] = []
    for name, some in (("products", product_cases()), ("attention", attention_cases())):
        if name in which:
            cases += [case for case in some if arguments.only in str(case)][: arguments.cases or None]
    for cores in arguments.cores or [len(os.sched_getaffinity(0))]:
        given, seconds = (DRY, 0.01) if arguments.dry else (cases, arguments.seconds)
        with on_cores(cores):
            for row in compared(given, arguments.precision == "bf16", cores, seconds):
                tell(json.dumps(row) if arguments.json else line_of(row, arguments.limit))
