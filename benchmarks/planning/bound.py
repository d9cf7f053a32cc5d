"""A token of GPT-2 on a processor where weights are bound: what they alone decide computed once, beside in every call.

By the same kernels at every site: plain is XLA's own code; native products copy their weights into panels in every call, or
keep these from when the weights are bound. All plans are called in turn in one process, and CPU time of a call is printed,
because others may use the machine; errors are those of the scores beside the plain program. Run: `python -m benchmarks bound`.
"""

import argparse
import json
import statistics
import time
from dataclasses import replace
from typing import Any

import numpy as np

import pcp
from benchmarks.options import add_option
from pcp.ir import Program, Role
from pcp.models import decoder
from pcp.models.published import configuration
from pcp.planning.paths.kinds import BOUND
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.planning.search.site_classes import kernels_by_site, site_classes
from pcp.tracing import spec, specs_of, trace

DEVICE = "cpu:0"
PAGES = 16
"""Of each sequence."""
FAMILIES = ("product_epilogue", "product", "attention")
STORAGES = {"native": (".native",), "native bf16": (".native:bf16", ".native")}
"""For each contestant the ends of names of kernels, those first that are taken where they apply."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    add_option(parser, "--model", "gpt2", "configuration")
    add_option(parser, "--turns", 12, "calls of each plan; the first two are not counted")
    parser.add_argument("--batches", type=int, nargs="*", default=[1, 8], help="sequences (default: 1 8)")


def run(options: argparse.Namespace) -> None:
    """Print the times and errors of each batch."""
    config = replace(configuration(options.model), context=256)
    parameters = decoder.initial_parameters(config, 0)
    for batch in options.batches:
        table = np.arange(1, 1 + batch * PAGES, dtype=np.int32).reshape(batch, PAGES)
        cache = decoder.empty_cache(config, 1 + table.size, config.context // PAGES)
        program = trace(
            lambda parameters, cache, token, position, table=table: decoder.read(
                parameters, cache, token[:, None], position, np.ones(len(table), np.int32), table, config
            ),
            specs_of(parameters),
            specs_of(cache, Role.state),
            spec((batch,), "i32"),
            spec((batch,), "i32"),
        )
        plans = {name: plan.bind(parameters) for name, plan in _plans(program).items()}
        for name, facts in _measured(plans, cache, batch, options.turns).items():
            facts = {"batch": batch, "what": name, **facts}
            print(json.dumps(facts) if options.json else _line(facts), flush=True)


def _plans(program: Program) -> dict[str, pcp.Plan]:
    count = program.argument_tree.children[0].leaf_count
    plans = {"plain": pcp.plan(program, DEVICE)}
    classes = site_classes(prepared(program), "cpu")
    for name, ends in STORAGES.items():
        wanted = [f"{family}{end}" for end in ends for family in FAMILIES]
        chosen = {}
        for each in classes:
            fitting = [kernel for kernel in each.kernels if kernel.name in wanted]
            if fitting:
                chosen[each.digest] = min(fitting, key=lambda kernel: wanted.index(kernel.name))
        path = Path.of(program, kernels_by_site(classes, chosen))
        plans[name] = pcp.plan(program, DEVICE, path=path)
        once = path.having(BOUND.name, [BOUND.move(count)])
        plans[f"{name}, bound once"] = pcp.plan(program, DEVICE, path=once)
    return plans


def _measured(plans: dict[str, pcp.Plan], cache: Any, batch: int, turns: int) -> dict[str, dict[str, Any]]:
    tokens, start = np.arange(batch, dtype=np.int32), np.full(batch, 100, np.int32)
    states = {name: plan.place(cache, tokens, start) for name, plan in plans.items()}
    times: dict[str, list[float]] = {name: [] for name in plans}
    scores: dict[str, np.ndarray[Any, Any]] = {}
    for _ in range(turns):
        for name, plan in plans.items():
            held, token, position = states[name]
            began = time.process_time()
            after, found = plan.run(held, token, position)
            scores[name] = np.asarray(found)
            times[name].append(time.process_time() - began)
            states[name] = (after, token, position)
    right = scores["plain"].astype(np.float64)
    return {
        name: {
            "cpu_seconds": statistics.median(each[2:]),
            "ratio": statistics.median(each[2:]) / statistics.median(times["plain"][2:]),
            "error": float(np.linalg.norm(scores[name] - right) / np.linalg.norm(right)),
        }
        for name, each in times.items()
    }


def _line(facts: dict[str, Any]) -> str:
    return (
        f"{facts['batch']:>3} sequences  {facts['what']:<24} {facts['cpu_seconds'] * 1e3:7.1f} ms of CPU time, "
        f"{facts['ratio']:.2f} of plain, error {facts['error']:.1e}"
    )
