"""Equal programs by equality saturation beside the plain ones: chains of products, products that share an operand, adapters.

Every alternative that was measured is printed, those that lose, too: its time relative to the plain program's, calls in turn in
one process, its error against float64 and that of the plain program. It needs egglog:
`pip install 'planetary-compute-protocol[equality]'`. Run: `python -m benchmarks equality`.
"""

import argparse
import json
from collections import Counter
from collections.abc import Callable
from typing import Any

import pcp
from benchmarks.options import add_option
from pcp.backends import Target
from pcp.planning.equality import equal_program
from pcp.planning.measuring.bench import Bench

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
    add_option(parser, "--seconds", 1.0, "time of each alternative, in turn with the plain program")
    add_option(parser, "--most", 4, "alternatives that are measured")
    parser.add_argument("--only", default="", help="only programs whose names begin so")


def run(options: argparse.Namespace) -> None:
    """Print each program and every alternative."""
    target = Target.of("cpu:0")
    with Bench() as bench:
        for name, (function, shapes) in programs().items():
            if not name.startswith(options.only):
                continue
            program = pcp.trace(function, *(pcp.spec(shape, "f32") for shape in shapes))
            found = equal_program(
                program, target, bench, options.tolerance, most=options.most, seconds=options.seconds
            )
            assert found.graph is not None
            facts = {
                "program": name,
                "nodes": found.graph.nodes,
                "stopped": found.graph.stopped,
                "graph_seconds": found.graph.seconds,
                "measured_operations": found.measured,
            }
            if not options.json:
                print(
                    f"{name}: {found.graph.nodes} nodes in {found.graph.seconds * 1e3:.0f} ms ({found.graph.stopped}), "
                    f"{found.measured} operations measured"
                )
            for each in found.tried:
                row = each.row
                facts |= {
                    "operations": each.operations,
                    "ratio": None if row.failure else row.ratio,
                    "error": row.error,
                    "plain_error": row.plain_error,
                    "taken": each is found.best,
                    "refused": each.refused,
                }
                print(json.dumps(facts) if options.json else _line(facts), flush=True)


def _line(facts: dict[str, Any]) -> str:
    ratio = "  none" if facts["ratio"] is None else f"{facts['ratio']:6.2f}"
    errors = (
        "" if facts["error"] is None else f"error {facts['error']:.1e} (plain {facts['plain_error']:.1e})"
    )
    counts = Counter(facts["operations"])
    counted = ", ".join(f"{count} {name}" for name, count in counts.items())
    taken = "taken" if facts["taken"] else "loses" if facts["refused"] else "     "
    return f"  {ratio} of plain  {errors}  {taken}  {counted}"
