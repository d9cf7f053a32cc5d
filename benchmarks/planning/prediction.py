"""How well what was measured of some regions predicts what kernels take at others: rank correlation and typical error.

    python -m benchmarks prediction                           on the measurements that are stored
    python -m benchmarks prediction --measure 300             after measuring regions of many shapes for 300 seconds

A tenth of the regions is left out in turn and predicted from the others: the time of the plain operation and the ratio of every
kernel. Beside it stands the analytic model, which knows shapes and element types only.
"""

import argparse
import dataclasses
import functools
import json
from collections.abc import Iterator
from pathlib import Path

import numpy as np

import pcp
from benchmarks.planning.prediction_quality import Quality, quality_of
from pcp.backends import Target
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.measuring.hardware import hardware_of, versions
from pcp.planning.paths.preparation import prepared
from pcp.planning.profile.database import ProfileDatabase
from pcp.planning.search.loop import answered
from pcp.planning.search.site_classes import site_classes
from pcp.planning.search.tuning import tune


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument(
        "--database", type=Path, default=None, help="file, if not the one in PCP's cache folder"
    )
    parser.add_argument("--measure", type=float, default=0.0, metavar="SECONDS", help="measure regions first")
    parser.add_argument("--device", default=None, help="where, as cuda:0")


def run(arguments: argparse.Namespace) -> None:
    """Print the quality of both models."""
    if arguments.measure:
        measure(arguments.device, arguments.database, arguments.measure)
    found = quality(arguments.device, arguments.database)
    if arguments.json:
        print(json.dumps({name: dataclasses.asdict(each) for name, each in found.items()}))
        return
    for name, each in found.items():
        print(f"{name:24}{described(each)}")


def quality(device: str | None, file: Path | None) -> dict[str, Quality]:
    """The quality of both models on what was measured here."""
    return quality_of(ProfileDatabase(file), hardware_of(Target.of(device)).digest, versions())


def described(one: Quality) -> str:
    """One line."""
    return (
        f"{one.count:5} held out; rank correlation {one.rank_correlation:.2f}, "
        f"typical error a factor of {one.median_factor:.2f}, within one of 2: {one.within_2:.0%}"
    )


def measure(device: str | None, file: Path | None, seconds: float) -> None:
    """Measure kernels alone at regions of many shapes, as long as there is time."""
    target = Target.of(device)
    with evidence_of(Conditions(target, target.capacity, file, budget=seconds)) as evidence:
        for program in programs():
            if evidence.seconds_left <= 0:
                return
            answered(functools.partial(tune, site_classes(prepared(program), target)), evidence)
            print(f"{evidence.measured} measurements after {evidence.seconds_spent:.0f} s", flush=True)


def programs() -> Iterator[pcp.Program]:
    """Programs whose regions have many shapes, different ones every time with the same seed."""
    random = np.random.default_rng(0)
    while True:
        for _ in range(4):
            m, k, n = (int(2 ** random.uniform(5, 11)) for _ in range(3))
            yield pcp.trace(lambda x, w: x @ w, pcp.spec((m, k), "f32"), pcp.spec((k, n), "f32"))
        rows, columns = int(2 ** random.uniform(6, 12)), int(2 ** random.uniform(6, 11))
        yield pcp.trace(lambda x: pcp.softmax(x), pcp.spec((rows, columns), "f32"))
        heads = int(random.integers(2, 9))
        width = heads * int(random.choice([32, 64]))
        context, batch = int(random.choice([64, 128, 256, 512])), int(random.integers(1, 5))
        vocabulary = int(random.choice([256, 1024, 4096, 16384]))
        configuration = gpt2_config(1, heads, width, context, vocabulary, True)
        parameters = decoder.parameter_shapes(configuration)
        tokens = pcp.spec((batch, context), "i32")

        loss = functools.partial(decoder.loss, config=configuration)
        yield pcp.value_and_grad(pcp.trace(loss, parameters, tokens, tokens))
        yield pcp.trace(functools.partial(decoder.logits, config=configuration), parameters, tokens)
