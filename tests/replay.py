"""A rebuilding changes nothing: programs, what is derived from them, plans' choices and results, before and after.

    python -m tests.replay write before.json
    python -m tests.replay compare before.json

Programs are the rows of every derivative and whole models with their training steps. Of each its digest is kept, and those of
its gradient, its tangents, its batched form, its prepared form, the sites with what may stand there, and a path that takes the
first kernel at every site. The models are also run, on random arguments, and the bits of their results are kept.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path as FilePath
from typing import Any

import numpy as np

import pcp
from pcp import nn, optimizers
from pcp.ir import TensorSpec
from pcp.kernels import cover, kernel_named, sites_of
from pcp.models import gpt2
from pcp.planning.measuring.random_inputs import Recipe, random_arguments
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.rewrite import simplify
from tests.autodiff.rows import ROWS
from tests.autodiff.test_rules import drawn, in_a_graph
from tests.execution import run

Facts = dict[str, Any]


def _convolutional(p: Any, x: Any, y: Any) -> Any:
    x = nn.relu(nn.group_norm(nn.conv(x, p["first"], padding="SAME"), 2, p["gain"], p["bias"]))
    x = nn.max_pool(x, (2, 2))
    x = nn.gelu(nn.conv(x, p["second"], padding="SAME")).mean((1, 2))
    return nn.cross_entropy(nn.linear(x, p["last"]), y).mean()


def _sequence(p: Any, x: Any, y: Any) -> Any:
    def step(state: Any, one: Any) -> Any:
        state = pcp.tanh(one @ p["in"] + state @ p["inner"])
        return state, state

    _, states = pcp.scan(step, pcp.ops.zeros((4, 8), "f32"), x)
    return nn.mse(nn.rms_norm(states, p["gain"]) @ p["out"], y)


def models() -> Iterator[tuple[str, Callable[[], pcp.Program]]]:
    """Losses of models: parameters come first."""
    config = gpt2.GPT2Config(2, 2, 32, 16, 64, True)
    params = pcp.specs_of(gpt2.initial_parameters(config, 0))
    tokens = pcp.spec((2, 16), "i32")
    yield "gpt2", lambda: pcp.trace(lambda p, x, y: gpt2.loss(p, x, y, config), params, tokens, tokens)

    def specs(**shapes: tuple[int, ...]) -> dict[str, TensorSpec]:
        return {name: pcp.spec(shape, "f32") for name, shape in shapes.items()}

    shapes = specs(first=(3, 3, 3, 8), gain=(8,), bias=(8,), second=(3, 3, 8, 8), last=(8, 5))
    images, classes = pcp.spec((4, 8, 8, 3), "f32"), pcp.spec((4,), "i32")
    yield "convolutional", lambda: pcp.trace(_convolutional, shapes, images, classes)
    parts = specs(**{"in": (6, 8), "inner": (8, 8), "gain": (8,), "out": (8, 3)})
    yield (
        "sequence",
        lambda: pcp.trace(_sequence, parts, pcp.spec((5, 4, 6), "f32"), pcp.spec((5, 4, 3), "f32")),
    )


def steps(loss: pcp.Program) -> Iterator[tuple[str, Callable[[], pcp.Program]]]:
    """Training steps of a loss."""
    makers = {
        "adamw": lambda: optimizers.adamw(1e-3),
        "sgd": lambda: optimizers.sgd(1e-3),
        "muon": lambda: optimizers.muon(optimizers.adamw(1e-3)),
    }
    for name, make in makers.items():
        yield name, lambda make=make: pcp.training_step(loss, make(), clip_norm=1.0)


def choices(program: pcp.Program) -> Facts:
    """What a planner of a processor has to choose from, and what the first of each choice comes to."""
    ready = prepared(program)
    sites = [site for site in sites_of(ready, "cpu") if not site.inside]
    first = {site.key: kernel_named(site.kernels[0]) for site in cover(sites) if site.kernels}
    path = Path.of(program, first)
    return {
        "prepared": ready.digest,
        "sites": sorted([site.key, site.family, list(site.kernels)] for site in sites),
        "path": path.digest,
        "applied": path.applied(program).digest,
    }


def bits(program: pcp.Program) -> list[str]:
    """Digests of the results on random arguments."""
    arguments = random_arguments(program.arguments, Recipe(seed=7), 0)
    results = run(program, *program.argument_tree.unflatten(arguments))
    leaves = program.flatten_results(results) if hasattr(program, "flatten_results") else _leaves(results)
    return [hashlib.sha256(np.ascontiguousarray(leaf).tobytes()).hexdigest()[:16] for leaf in leaves]


def _leaves(nested: Any) -> list[Any]:
    if isinstance(nested, dict):
        return [leaf for key in sorted(nested) for leaf in _leaves(nested[key])]
    if isinstance(nested, list | tuple):
        return [leaf for each in nested for leaf in _leaves(each)]
    return [nested]


def derived(program: pcp.Program) -> Facts:
    """Digests of a program and of what transformations make of it."""
    found: Facts = {"digest": program.digest, "simplified": simplify(program).digest}
    makers: dict[str, Callable[[], pcp.Program]] = {
        "gradient": lambda: pcp.value_and_grad(program, 0),
        "second": lambda: pcp.vjp(pcp.grad(program, 0)),
        "tangents": lambda: pcp.jvp(program),
        "batched": lambda: pcp.vmap(program, size=2),
    }
    for name, make in makers.items():
        try:
            found[name] = make().digest
        except pcp.PCPError as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


def everything() -> Iterator[tuple[str, Facts]]:
    """The facts of every program, one at a time."""
    for index, row in enumerate(ROWS):
        if row.long:
            continue
        arguments, scales = drawn(row)
        program = pcp.trace(in_a_graph(row.function), tuple(scales), tuple(arguments))
        yield f"rule {index} {row.rule}", derived(program)
    for name, make in models():
        loss = make()
        yield f"model {name}", derived(loss) | choices(loss) | {"bits": bits(loss)}
        gradient = pcp.value_and_grad(loss, 0)
        yield f"gradient of {name}", choices(gradient) | {"bits": bits(gradient)}
        for optimizer, made in steps(loss):
            step = made()
            yield (
                f"step of {name} by {optimizer}",
                {"digest": step.digest} | choices(step) | {"bits": bits(step)},
            )


def differences(before: dict[str, Facts], now: dict[str, Facts]) -> list[str]:
    """What is not as it was, one line each."""
    found = [f"{name}: there is no such program any more" for name in before.keys() - now.keys()]
    found += [f"{name}: there was no such program" for name in now.keys() - before.keys()]
    for name in before.keys() & now.keys():
        for fact in before[name].keys() | now[name].keys():
            was, is_now = before[name].get(fact), now[name].get(fact)
            if was != is_now:
                found.append(f"{name}: {fact} was {str(was)[:200]}, is {str(is_now)[:200]}")
    return sorted(found)


def main() -> None:
    """Write the facts of today, or compare them with those that were written."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("action", choices=("write", "compare"))
    parser.add_argument("file", type=FilePath)
    arguments = parser.parse_args()
    now = json.loads(json.dumps(dict(everything())))
    if arguments.action == "write":
        arguments.file.write_text(json.dumps(now, indent=1), encoding="utf-8")
        print(f"{len(now)} programs written to {arguments.file}")
        return
    found = differences(json.loads(arguments.file.read_text(encoding="utf-8")), now)
    print("\n".join(found) or f"{len(now)} programs are as they were")
    sys.exit(bool(found))


if __name__ == "__main__":
    main()
