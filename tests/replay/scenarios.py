"""The searches that are recorded, by what each is there for."""

import itertools
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.planning.measuring.measurement import Failure
from tests.replay import programs
from tests.replay import searched_programs as small
from tests.replay.bench import Mood
from tests.replay.null_backend import NullBackend
from tests.replay.searches import CPU, CUDA, OTHER, Recorded, Search, shown

QUIET, UNLIKELY = Mood(), Mood(surprise=0.5)
NOISY = Mood(noise=0.12, surprise=0.2)
SLOW = Mood(speed=3000.0, surprise=0.3)
"""A call takes longer than `Strategy.often_seconds`, so that the whole is not measured for single classes."""


def _planned(program: Any, device: Any = CPU, *budgets: float, **options: Any) -> Any:
    """Plan with a tolerance of 1e-2, or another; then again with what is known."""

    def drive(search: Search) -> None:
        given = {"tolerance": 1e-2, **options}
        for number, budget in enumerate(budgets or (300.0,)):
            search.plan(program(), device, f"search {number}" if number else "", budget=budget, **given)
        search.plan(program(), device, "known", budget=0.0, **given)

    return drive


def _gradient(name: str) -> Any:
    return lambda: programs.gradient(name)


def _step(name: str) -> Any:
    return lambda: programs.training_step(name, "adamw")


def _loss(name: str) -> Any:
    return lambda: programs.loss(name)


def _of_one_tolerance_after_another(search: Search) -> None:
    for tolerance in (1e-2, 1e-4, 1e-6, 0.0, 1e-8):
        search.plan(small.layers(), CPU, f"within {tolerance:g}", tolerance=tolerance)


def _judged_otherwise(search: Search) -> None:
    program = small.layers()
    rng = np.random.default_rng(0)
    flat = [rng.standard_normal(entry.spec.shape).astype(np.float32) for entry in program.arguments]
    search.plan(program, CPU, "on an example", tolerance=1e-2, example=program.argument_tree.unflatten(flat))
    search.plan(program, CPU, "with options", tolerance=1e-2, options={"made_up": 1})
    search.plan(
        programs.gradient("sequence"), CPU, "with a result ignored", tolerance=1e-2, judge={"0": "ignore"}
    )


def _of_similar_programs(search: Search) -> None:
    for size in (32, 64, 128, 256):
        search.plan(small.of_any_size().at(n=size), CPU, f"of {size}", tolerance=1e-2)
    search.plan(small.of_any_size().at(n=192), CPU, "predicted", tolerance=1e-2, budget=0.0)
    search.plan(small.of_any_size().at(n=192), CPU, "measured", tolerance=1e-2)


def _with_failures_that_pass(search: Search) -> None:
    search.plan(small.layers(), CPU, "first", tolerance=1e-2)
    search.mood = QUIET
    for number in range(2):
        search.plan(small.layers(), CPU, f"later {number}", tolerance=1e-2)


def _that_differ_here(search: Search) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(NullBackend, "is_wrong", staticmethod(lambda program: "custom_call" in program.text))
        search.plan(small.layers(), CPU, "where native kernels compute something else", tolerance=1e-2)
        patch.setattr(NullBackend, "is_wrong", staticmethod(lambda program: "bf16" in program.text))
        search.plan(small.layers(), CPU, "where bfloat16 does, too", tolerance=1e-2)


def _within_memory(program: Any, device: str, shares: Sequence[float], **options: Any) -> Any:
    def drive(search: Search) -> None:
        peak = pcp.plan(program(), device).memory[str(pcp.Target.of(device).device)].peak
        for share in shares:
            search.plan(program(), device, f"in {share:g}", memory=int(share * peak), **options)

    return drive


def _in_other_places(*devices: str, **options: Any) -> Any:
    def drive(search: Search) -> None:
        for program in (small.mixed(), small.layers()):
            search.plan(program, [CPU, *devices], "places", tolerance=1e-2, **options)

    return drive


def _piece_by_piece(search: Search) -> None:
    for layers, device in itertools.product((8, 12), (CPU, CUDA)):
        for tolerance in (None, 1e-2, 1e-6):
            options = {"tolerance": tolerance, "database": search.database}
            path = pcp.streamed(small.stack(layers), device, 6 * 4 * 64 * 64, **options)
            search.note(f"{layers} on {device} within {tolerance}", shown(path, small.stack(layers)))


def _explored(program: Any, device: Any, most: int = 14, **options: Any) -> Any:
    def drive(search: Search) -> None:
        found = pcp.explore(program(), device, database=search.database, **options)
        for number, each in enumerate(itertools.islice(found, most)):
            search.note(f"explored {number:02}{' anew' if each.is_new else ''}", shown(each.path, program()))
        search.plan(program(), device if isinstance(device, str) else device[0], tolerance=1e-2, budget=0.0)

    return drive


def _listed(program: Any, device: Any, **options: Any) -> Any:
    def drive(search: Search) -> None:
        for known in ("unknown", "known"):
            found = pcp.paths(program(), device, database=search.database, **options)
            for number, path in enumerate(itertools.islice(found, 10)):
                search.note(f"{known} {number}", shown(path, program()))
            if known == "unknown":
                search.plan(program(), device if isinstance(device, str) else device[0], tolerance=1e-2)

    return drive


def _at_sizes(search: Search) -> None:
    plan = search.plan(small.of_any_size(), CPU, tolerance=1e-2)
    for size in (48, 64, 200, 33):
        search.note_plan(f"of {size}", plan.at(n=size))
    search.note("searches", f"{plan.searches}, {plan.judgements} judged")


SEARCHES: dict[str, Recorded] = {
    # Every level of a search, on each kind of device, of programs of each kind.
    "layers on a processor": Recorded(_planned(small.layers)),
    "layers on a processor, a whole is not its parts": Recorded(_planned(small.layers), UNLIKELY),
    "layers on a bare processor": Recorded(_planned(small.layers), UNLIKELY, bare=True),
    "layers on a GPU": Recorded(_planned(small.layers, CUDA), UNLIKELY),
    "sequence, gradient": Recorded(_planned(_gradient("sequence")), UNLIKELY),
    "convolutional, step": Recorded(_planned(_step("convolutional")), NOISY),
    "convolutional on a GPU": Recorded(_planned(_loss("convolutional"), CUDA), UNLIKELY),
    "gpt2, gradient": Recorded(_planned(_gradient("gpt2")), UNLIKELY),
    "gpt2, loss on a GPU": Recorded(_planned(_loss("gpt2"), CUDA), UNLIKELY),
    "llama, loss on a bare processor": Recorded(_planned(_loss("llama")), NOISY, bare=True),
    "llama, loss on a GPU": Recorded(_planned(_loss("llama"), CUDA), replace(UNLIKELY, error=6e-3)),
    # Tolerances, and what is judged.
    "one tolerance after another": Recorded(_of_one_tolerance_after_another, UNLIKELY),
    "judged otherwise": Recorded(_judged_otherwise, UNLIKELY),
    "errors leave kernels at some sites": Recorded(_planned(small.layers), replace(UNLIKELY, error=7e-3)),
    "errors leave kernels at some sites of a GPU": Recorded(
        _planned(small.layers, CUDA), replace(UNLIKELY, error=5e-3)
    ),
    # Noise, failures, interruption, and time that is up at every step.
    "noise": Recorded(_planned(small.layers), NOISY),
    "noise on a GPU": Recorded(_planned(small.layers, CUDA), replace(NOISY, noise=0.3)),
    "slow calls": Recorded(_planned(small.layers, CPU, 300.0, 3000.0), SLOW),
    "slow calls with noise": Recorded(
        _planned(small.layers, CPU, 3000.0), replace(SLOW, noise=0.2, surprise=0.6)
    ),
    "slow calls, at first slower": Recorded(_planned(small.layers, CPU, 3000.0), replace(SLOW, first=6.0)),
    "slow calls, at first a little slower": Recorded(
        _planned(small.layers, CPU, 3000.0), replace(SLOW, first=2.5)
    ),
    "at first slower": Recorded(_planned(small.layers), replace(UNLIKELY, first=6.0)),
    "a loop, at first slower": Recorded(_planned(small.long), replace(UNLIKELY, first=8.0)),
    "a loop, at first a little slower": Recorded(_planned(small.long), replace(UNLIKELY, first=2.0)),
    "a loop": Recorded(_planned(small.long), UNLIKELY),
    "a loop, too wrong together": Recorded(_planned(small.long), replace(UNLIKELY, error=1.2e-2)),
    "a loop on a bare processor": Recorded(_planned(small.long), UNLIKELY, bare=True),
    "candidates fail": Recorded(_planned(small.layers), replace(UNLIKELY, failing=0.3)),
    "candidates fail on a GPU": Recorded(_planned(small.layers, CUDA), replace(UNLIKELY, failing=0.3)),
    "candidates fail for a while": Recorded(
        _with_failures_that_pass, Mood(failing=0.4, failures=(Failure.timeout, Failure.out_of_memory))
    ),
    "kernels that run alone only": Recorded(_planned(small.layers), Mood(broken=("pcp.norm",))),
    "the plain program fails": Recorded(_planned(small.layers), replace(UNLIKELY, plain_fails=5)),
    "interrupted": Recorded(_planned(small.layers), replace(UNLIKELY, until=9)),
    "interrupted later": Recorded(_planned(small.layers), replace(UNLIKELY, until=30)),
    "interrupted on a GPU": Recorded(_planned(small.layers, CUDA), replace(UNLIKELY, until=4)),
    "little time, and more, and all": Recorded(_planned(small.layers, CPU, 4.0, 15.0, 40.0, 300.0), UNLIKELY),
    "little time on a GPU": Recorded(_planned(small.layers, CUDA, 10.0, 30.0, 60.0), UNLIKELY),
    "little time for a loop": Recorded(_planned(small.long, CPU, 8.0, 40.0), UNLIKELY),
    "no time, but similar programs": Recorded(_of_similar_programs),
    "in this process it differs": Recorded(_that_differ_here, UNLIKELY),
    # Matrices that are bound.
    "a token, weights bound": Recorded(_planned(small.token, tolerance=5e-2, binds=("weights",)), UNLIKELY),
    "a token on a GPU, weights bound": Recorded(
        _planned(small.token, CUDA, tolerance=0.2, binds=("weights",)), replace(UNLIKELY, error=3e-2)
    ),
    # Memory.
    "in less memory": Recorded(
        _within_memory(small.there_and_back, CPU, (1.0, 0.8, 0.4, 0.05), tolerance=1e-2), UNLIKELY
    ),
    "in less memory, values are made again": Recorded(
        _within_memory(small.residual_gradient, CPU, (0.9, 0.7, 0.5), tolerance=1e-2), UNLIKELY
    ),
    "in less memory without a tolerance": Recorded(_within_memory(small.there_and_back, CPU, (0.8, 0.4))),
    "in less memory of a GPU": Recorded(
        _within_memory(small.there_and_back, CUDA, (0.7,), tolerance=1e-2), UNLIKELY
    ),
    "in less memory in little time": Recorded(
        _within_memory(small.there_and_back, CPU, (0.5, 0.5), tolerance=1e-2, budget=10.0), UNLIKELY
    ),
    "in less memory in hardly any time": Recorded(
        _within_memory(small.there_and_back, CPU, (0.5,), tolerance=1e-2, budget=3.0), UNLIKELY
    ),
    "in less memory, too wrong": Recorded(
        _within_memory(small.there_and_back, CPU, (0.5,), tolerance=1e-2), replace(UNLIKELY, error=9e-3)
    ),
    "in less memory of a bare processor": Recorded(
        _within_memory(small.residual_gradient, CPU, (0.9, 0.7), tolerance=1e-2), UNLIKELY, bare=True
    ),
    "a gradient in less memory": Recorded(_within_memory(small.residual_gradient, CPU, (0.95, 0.7))),
    # Other places, and pieces.
    "another backend is faster": Recorded(_in_other_places(OTHER), replace(UNLIKELY, elsewhere=0.2)),
    "some operations are faster there": Recorded(
        _in_other_places(OTHER),
        replace(UNLIKELY, elsewhere=3.0, alone=(("sort", 0.05), ("log_plus_one", 0.1)), speed=100.0),
    ),
    "three places": Recorded(
        _in_other_places(OTHER, "other:cuda:0"), replace(UNLIKELY, elsewhere=0.9, speed=100.0)
    ),
    "places in little time": Recorded(_in_other_places(OTHER, budget=20.0), replace(UNLIKELY, elsewhere=0.5)),
    "piece by piece": Recorded(_piece_by_piece, UNLIKELY),
    "piece by piece, too wrong": Recorded(_piece_by_piece, replace(UNLIKELY, error=5e-3)),
    # The same choices, walked.
    "explored": Recorded(_explored(small.wide_layers, CPU), replace(UNLIKELY, failing=0.1)),
    "explored on a GPU": Recorded(_explored(small.wide_layers, CUDA, 12), UNLIKELY),
    "explored in two places": Recorded(
        _explored(small.mixed, [CPU, OTHER]), replace(UNLIKELY, elsewhere=2.0, alone=(("sort", 0.05),))
    ),
    "listed": Recorded(_listed(small.wide_layers, CPU, tolerance=1e-2), UNLIKELY),
    "listed in two places": Recorded(_listed(small.mixed, [CPU, OTHER]), replace(UNLIKELY, elsewhere=0.5)),
    "at several sizes": Recorded(_at_sizes, UNLIKELY),
    # Equal programs, which egglog finds.
    "equal programs": Recorded(_planned(small.chain), QUIET, egglog=True),
    "equal programs, surprising": Recorded(_planned(small.chain, CPU, 30.0, 300.0), UNLIKELY, egglog=True),
    "equal programs, where they are slower": Recorded(
        _planned(small.chain), replace(UNLIKELY, surprise=0.9), egglog=True
    ),
    "equal programs on a GPU": Recorded(_planned(small.chain, CUDA), UNLIKELY, egglog=True),
    "equal programs in less memory": Recorded(
        _within_memory(small.chain, CPU, (1.0, 0.95), tolerance=1e-2), QUIET, egglog=True
    ),
    "equal programs explored": Recorded(_explored(small.chain, CPU, 12), QUIET, egglog=True),
}
