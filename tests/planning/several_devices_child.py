"""A process that sees eight devices: programs over several of them beside the same on one; what came out, as JSON.

XLA's virtual devices are made when its client is, so this is no part of the process of the tests.
"""

import contextlib
import io
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path as FilePath
from typing import Any

import numpy as np
from tests.execution import QUICK

import pcp
from pcp import nn, ops
from pcp.backends import Target
from pcp.cli.main import main
from pcp.errors import PCPError
from pcp.ir.tree import flatten
from pcp.training.run_folder import RunFolder, load_state

RNG = np.random.default_rng(7)
RULES = ("dp", "zero1", "fsdp")
COLLECTIVES = ("all_reduce", "all_gather", "reduce_scatter")


def drawn(*shape: int) -> Any:
    return RNG.standard_normal(shape).astype(np.float32)


def tokens(*shape: int) -> Any:
    return RNG.integers(0, 24, shape).astype(np.int32)


def perceptron(w: Any, x: Any, t: Any) -> Any:
    hidden = pcp.tanh(nn.layer_norm(x @ w["in"] + w["bias"], w["gain"], w["shift"]))
    return ((hidden @ w["out"] - t) ** 2).mean()


PERCEPTRON = {
    "in": drawn(8, 12),
    "bias": drawn(12),
    "gain": drawn(12),
    "shift": drawn(12),
    "out": drawn(12, 5),
}


def attending(w: Any, ids: Any, weights: Any) -> Any:
    """Tied embeddings, attention and a weighted loss: a sum over examples stands in the denominator, too."""
    x = ops.take(w["embedding"], ids, axis=0)
    q, k, v = (ops.transpose((x @ w[name]).reshape((*ids.shape, 2, 4)), (0, 2, 1, 3)) for name in "qkv")
    mixed = ops.transpose(nn.scaled_dot_product_attention(q, k, v, causal=True), (0, 2, 1, 3)).reshape(
        x.shape
    )
    logits = (x + mixed) @ w["embedding"].T
    return nn.cross_entropy(logits[:, :-1], ids[:, 1:], weights[:, 1:])


ATTENDING = {"embedding": drawn(24, 8), **{name: drawn(8, 8) for name in "qkv"}}


def normalised(w: Any, x: Any, t: Any) -> Any:
    """Means over the batch are read by every example: sums that are cut again."""
    centred = x - x.mean(axis=0)
    hidden = centred / pcp.sqrt((centred**2).mean(axis=0) + 1e-3) @ w["in"]
    return (pcp.logsumexp(hidden, axis=-1) - (hidden * t).sum(axis=-1)).mean()


def convolved(w: Any, x: Any, t: Any) -> Any:
    """Whatever has no rule is computed whole by every device, and loops are."""
    hidden = ops.cumsum(x @ w["in"], axis=0)
    hidden = ops.fori_loop(0, 3, lambda i, c: pcp.tanh(c) + i, hidden)
    return ((hidden - t) ** 2).mean()


STEPS: dict[str, tuple[Callable[..., Any], Any, tuple[Any, ...]]] = {
    "perceptron": (perceptron, PERCEPTRON, (drawn(8, 8), drawn(8, 5))),
    "attending": (attending, ATTENDING, (tokens(8, 6), np.abs(drawn(8, 6)))),
    "normalised": (normalised, {"in": drawn(6, 8)}, (drawn(8, 6), drawn(8, 8))),
    "convolved": (convolved, {"in": drawn(6, 8)}, (drawn(8, 6), drawn(8, 8))),
}


def worst(one: Any, several: Any) -> float:
    errors = []
    for a, b in zip(flatten(one)[0], flatten(several)[0], strict=True):
        x, y = np.asarray(a, np.float64), np.asarray(b, np.float64)
        errors.append(float(np.linalg.norm(x - y) / max(np.linalg.norm(x), 1e-6)))
    return max(errors)


def stepped(name: str) -> dict[str, Any]:
    function, weights, batch = STEPS[name]
    optimizer = pcp.optimizers.sgd(1e-1) if name == "convolved" else pcp.optimizers.adamw(1e-3)
    step = pcp.training_step(
        function,
        optimizer,
        weights,
        *(pcp.spec(x.shape, x.dtype.name) for x in batch),
        clip_norm=None if name == "convolved" else 1.0,
    )

    def twice(plan: Any) -> Any:
        state = step.initial_state(weights)
        for _ in range(2):
            state, metrics = plan.run(state, batch)
        return state, metrics

    expected = twice(pcp.plan(step, options=QUICK))
    found = {}
    for rule in RULES:
        plan = pcp.plan(step, devices="cpu:0-3", layout=rule, options=QUICK)
        result = twice(plan)
        counts = Counter(op.name for op in plan.operations if op.name in COLLECTIVES)
        found[rule] = {
            "error": worst(expected, result),
            "collectives": counts,
            "arguments": plan.memory["cpu:3"].arguments,
            "cut": sum(axis is not None for axis in plan.axes),
            "devices": len(flatten(result)[0][0].sharding.device_set),
            "text": str(plan),
        }
    return found


def composed() -> dict[str, Any]:
    """Programs that train nothing: results stay cut, inputs of other sizes stay whole, numbers are drawn."""
    x, w, key = drawn(6, 4), drawn(4, 4), np.array([3, 5], np.uint32)

    def rows(x: Any, w: Any) -> Any:
        return pcp.softmax(x @ w, axis=-1), (x @ w).sum(axis=0), pcp.grad(lambda w: ((x @ w) ** 2).sum())(w)

    def noisy(x: Any, w: Any, key: Any) -> Any:
        return x @ w + pcp.random.normal(key, (6, 4))

    def counted(x: Any) -> Any:
        """Sums of integers are divided, and made wider, as wholes."""
        return x.astype("u32").sum() // 4, (x * 2**23).sum().astype("i64")

    found = {}
    numbers = np.array([3, 3, 3, 3, 3, 250], np.int32)
    given_to = (("rows", rows, (x, w)), ("noisy", noisy, (x, w, key)), ("counted", counted, (numbers,)))
    for name, function, given in given_to:
        program = pcp.trace(function, *given)
        plan = pcp.plan(program, devices=["cpu:5", "cpu:2", "cpu:7"], options=QUICK)
        result = plan.run(*given)
        again = plan.run(*(np.asarray(each) for each in given))
        found[name] = {
            "error": worst(pcp.plan(program, options=QUICK).run(*given), result),
            "same": worst(result, again),
            "shards": [list(each.sharding.shard_shape(each.shape)) for each in flatten(result)[0]],
            "axes": list(plan.axes),
        }
    return found


def kept() -> dict[str, Any]:
    """A path is written, read and followed to the same bits; state is donated, and copied where it is kept."""
    function, weights, batch = STEPS["perceptron"]
    step = pcp.training_step(
        function, pcp.optimizers.adamw(1e-3), weights, *(pcp.spec(x.shape, "f32") for x in batch)
    )
    plan = pcp.plan(step, devices=Target.over("cpu:0-1", QUICK), layout="zero1")
    with tempfile.TemporaryDirectory() as folder:
        plan.path.save(FilePath(folder) / "path.json")
        path = pcp.Path.load(FilePath(folder) / "path.json")
    followed = pcp.plan(step, devices="cpu:2,cpu:3", path=path)
    fastest = pcp.plan(step, devices="cpu:0-1", layout="fastest", options=QUICK)
    state = plan.place(step.initial_state(weights), batch)[0]
    kept_state = plan.with_copied_state((state, batch))[0]
    first = plan.run(state, batch)
    with_copy = plan.run(kept_state, batch)
    return {
        "same": path == plan.path and path.digest == plan.path.digest,
        "followed": worst(first, followed.run(step.initial_state(weights), batch)),
        "copied": worst(first, with_copy),
        "fastest": worst(first, fastest.run(step.initial_state(weights), batch)),
        "text": str(fastest),
        "donated": refused(lambda: plan.run(state, batch)),
        "one": refused(lambda: pcp.plan(step, "cpu:0", path=path)),
        "three": refused(lambda: pcp.plan(step, devices="cpu:0-2", path=path)),
    }


def trained() -> dict[str, Any]:
    """`pcp train` over two devices, interrupted and resumed, beside the same on one."""
    with tempfile.TemporaryDirectory() as name:
        folder = FilePath(name)
        (folder / "text.txt").write_text("to and on a mat and a hat sat the cat " * 60)
        common = [
            "train",
            "--model",
            "gpt2-nano",
            "--data",
            str(folder / "text.txt"),
            "--batch",
            "4",
            "--context",
            "16",
        ]
        common += ["--evaluate-every", "0", "--checkpoint-every", "2", "--steps", "4"]
        weights, text = {}, io.StringIO()
        for devices in (["--devices", "cpu:0-1", "--layout", "zero1"], ["--device", "cpu:0"]):
            run = folder / devices[0]
            with contextlib.redirect_stdout(text), contextlib.redirect_stderr(text):
                code = main([*common, *devices, "--run", str(run)])
                again = main(["train", "--resume", str(run)])
            step, state, _ = load_state(RunFolder.open(run))
            weights[devices[0]] = state["params"]
        return {
            "codes": [code, again],
            "step": step,
            "error": worst(weights["--device"], weights["--devices"]),
            "text": text.getvalue(),
        }


def refused(function: Callable[[], Any]) -> str:
    try:
        function()
    except PCPError as error:
        return f"{type(error).__name__}: {error}"
    return "nothing was refused"


def refusals() -> dict[str, str]:
    def traced(rows: int) -> Any:
        return pcp.trace(lambda x, w: x @ w, pcp.spec((rows, 4), "f32"), pcp.spec((4, 4), "f32"))

    return {
        "uneven": refused(lambda: pcp.plan(traced(10), devices="cpu:0-3")),
        "few": refused(lambda: pcp.plan(traced(3), devices="cpu:0-7")),
        "rule": refused(lambda: pcp.plan(traced(8), devices="cpu:0-3", layout="zero9")),
        "both": refused(lambda: pcp.plan(traced(8), "cpu:0", devices="cpu:0-3")),
        "twice": refused(lambda: pcp.plan(traced(8), devices="cpu:0,cpu:0")),
        "nine": refused(lambda: pcp.plan(traced(8), devices="cpu:0-8")),
        "arena": refused(lambda: pcp.plan(traced(8), devices=["arena:cpu:0", "cpu:0"])),
        "scalar": refused(lambda: pcp.plan(pcp.trace(pcp.sin, pcp.spec((), "f32")), devices="cpu:0-1")),
        "own": refused(
            lambda: pcp.plan(pcp.trace(lambda x: ops.all_reduce(x, [[0, 1]]), drawn(8)), devices="cpu:0-1")
        ),
    }


CASES: dict[str, Callable[[], Any]] = {
    **{name: (lambda name=name: stepped(name)) for name in STEPS},
    "composed": composed,
    "kept": kept,
    "trained": trained,
    "refusals": refusals,
}

if __name__ == "__main__":
    json.dump({name: case() for name, case in CASES.items()}, sys.stdout)
