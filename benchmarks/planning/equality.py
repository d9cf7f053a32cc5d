"""Equal programs by equality saturation beside the plain ones: chains of products, products that share an operand, adapters.

Every alternative that was measured is printed, those that lose, too: its time relative to the plain program's, calls in turn in
one process, its error against float64 and that of the plain program. Then comes what `pcp.plan` takes, with kernels: its time
relative to the plain program's, and that of the path that it finds without equal programs. It needs egglog:
`pip install 'planetary-compute-protocol[equality]'`. Run: `python -m benchmarks equality`.
"""

import argparse
import json
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest import mock

import pcp
from benchmarks.options import add_option
from pcp.backends import Target
from pcp.planning.conditions import Conditions, evidence_of
from pcp.planning.forms import all_tried, forms_of
from pcp.planning.forms import search as forms_search
from pcp.planning.paths.kinds import EQUAL
from pcp.planning.search.loop import answered
from pcp.planning.search.whole import Whole

Shapes = tuple[tuple[int, ...], ...]


def programs() -> dict[str, tuple[Callable[..., Any], Shapes]]:
    """What is computed, by name, of arrays of float32."""

    def chain(*factors: Any) -> Any:
        made = factors[0]
        for factor in factors[1:]:
            made = made @ factor
        return made

    def joined(x: Any, *weights: Any) -> Any:
        return tuple(pcp.tanh(x @ weight) for weight in weights)

    def adapter(x: Any, w: Any, a: Any, b: Any) -> Any:
        return pcp.tanh(x @ w + x @ a @ b)

    def adapter_of_a_product(x: Any, w: Any, a: Any, b: Any) -> Any:
        return pcp.tanh(x @ w + x @ (a @ b))

    square = ((512, 512),) * 5
    return {
        "chain of 4, thin in the middle": (chain, ((1024, 16), (16, 1024), (1024, 16), (16, 1024))),
        "chain of 6, ends in a vector": (chain, (*square, (512, 1))),
        "chain of 5, in the best order": (chain, ((1, 512), *square[:4])),
        "query, key, value of 4 tokens": (joined, ((4, 768), *((768, 768),) * 3)),
        "query, key, value of 1024 tokens": (joined, ((1024, 768), *((768, 768),) * 3)),
        "twelve thin products of one array": (joined, ((1024, 768), *((768, 16),) * 12)),
        "adapter of rank 8, 4096 tokens": (adapter, ((4096, 512), (512, 512), (512, 8), (8, 512))),
        "adapter of rank 8, 4 tokens": (adapter, ((4, 512), (512, 512), (512, 8), (8, 512))),
        "adapter multiplied out, 16 tokens": (
            adapter_of_a_product,
            ((16, 2048), (2048, 2048), (2048, 8), (8, 2048)),
        ),
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    add_option(parser, "--tolerance", 1e-4, "largest error of a result")
    add_option(parser, "--budget", 60.0, "seconds of each search")
    add_option(parser, "--most", 4, "alternatives that are measured")
    parser.add_argument("--only", default="", help="only programs whose names begin so")


def run(options: argparse.Namespace) -> None:
    """Print each program, every alternative, and what is planned."""
    for name, (function, shapes) in programs().items():
        if name.startswith(options.only):
            program = pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))
            with tempfile.TemporaryDirectory() as folder:
                _run(name, program, options, Path(folder))


def _run(name: str, program: pcp.Program, options: argparse.Namespace, folder: Path) -> None:
    target = Target.of("cpu:0")
    capacity = target.capacity
    conditions = Conditions(target, capacity, folder / "alternatives", options.budget)
    with evidence_of(conditions) as evidence:
        with evidence.leaving(1 - evidence.strategy.for_costs, of=evidence.seconds_left):
            forms = answered(lambda _: forms_of(program, evidence, most=options.most), evidence)
        moves = [(EQUAL.move(form),) for form in forms.forms]
        whole = Whole(program, options.tolerance, target)
        offered = (each for each in moves)
        tried = [*answered(lambda _: all_tried(whole, offered, evidence, capacity), evidence).values()]
    graphs = [each.graph for each in forms.ways]
    facts: dict[str, Any] = {
        "program": name,
        "nodes": sum(each.nodes for each in graphs),
        "stopped": [each.stopped for each in graphs],
        "graph_seconds": sum(each.seconds for each in graphs),
        "operations_measured": sum(each.measured for each in forms.ways),
    }
    if options.json:
        print(json.dumps(facts), flush=True)
    else:
        print(
            f"{name}: {facts['nodes']} nodes in {facts['graph_seconds'] * 1e3:.0f} ms ({', '.join(facts['stopped'])}), "
            f"{facts['operations_measured']} operations measured",
            flush=True,
        )
    for each in tried:
        row = each.row
        facts = {
            "program": name,
            "form": str(each.whole.forms[0].value),
            "ratio": None if row.failure else row.ratio,
            "error": row.error,
            "plain_error": row.plain_error,
            "refused": each.refused,
        }
        print(json.dumps(facts) if options.json else _line(facts), flush=True)
    words = {"tolerance": options.tolerance, "budget": options.budget}
    with mock.patch.object(forms_search, "is_here", return_value=False):
        without = pcp.plan(program, "cpu:0", database=folder / "without", **words)
    with_equal = pcp.plan(program, "cpu:0", database=folder / "with", **words)
    for what, plan in (("pcp.plan without", without), ("pcp.plan", with_equal)):
        measured = plan.measurement
        facts = {
            "program": name,
            "form": what if plan.path.equal is None else f"{what}, {plan.path.equal}",
            "ratio": measured.ratio if measured is not None and measured.seconds else 1.0,
            "error": plan.error,
            "plain_error": plan.plain_error,
            "refused": "",
        }
        print(json.dumps(facts) if options.json else _line(facts), flush=True)


def _line(facts: dict[str, Any]) -> str:
    ratio = "  none" if facts["ratio"] is None else f"{facts['ratio']:6.2f}"
    errors = (
        "" if facts["error"] is None else f"error {facts['error']:.1e} (plain {facts['plain_error']:.1e})"
    )
    return f"  {ratio} of plain  {errors}  {'loses' if facts['refused'] else '     '}  {facts['form']}"
