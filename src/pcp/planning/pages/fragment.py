"""The page of a program or a plan, as a notebook takes it in and as a file of its own. It has no script and loads nothing."""

import html
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from pcp.backends import MemoryUse
from pcp.ir import Argument, Program, Result
from pcp.ir.operations import operations_of
from pcp.planning.capacity import human
from pcp.planning.diagnostics.cost import estimate_cost
from pcp.planning.pages.drawings import held, layer_graph, memory_curve
from pcp.planning.pages.layers import Layer, layers_of
from pcp.planning.pages.markup import DOCUMENT, STYLE, Markup, folded, joined, table, tag
from pcp.planning.report import seconds
from pcp.symbolic.expressions import listed
from pcp.symbolic.program import SymbolicProgram

MOST_LISTED = 60
"""Operations of one layer, and arguments, that are listed; a page of 13,000 operations stays below a megabyte."""
MOST_CLASSES = 40


def page(title: str, fragment: str) -> str:
    """A whole document around a fragment."""
    return DOCUMENT.format(title=html.escape(title), body=fragment)


def program_fragment(program: Program) -> Markup:
    """What a program takes, returns and computes, the memory that it holds, and its layers."""
    return _fragment(
        tag("h2", f"Program {program.digest[:12]}"),
        *_signature(program.arguments, program.results),
        *_computes(program),
    )


def symbolic_fragment(program: SymbolicProgram) -> Markup:
    """What a symbolic program takes and returns, in its symbols, what holds of these, and its program at a few sizes."""
    sizes, example = program.programs[0]
    shown = listed(dict(zip(program.symbols, sizes, strict=True)))
    takes = [(e.name or str(i), str(e.spec), e.role.value) for i, e in enumerate(program.arguments)]
    returns = [(e.name or str(i), str(e.spec)) for i, e in enumerate(program.results)]
    holds = "".join(f"; {each}" for each in program.constraints)
    return _fragment(
        tag("h2", f"Symbolic program {program.digest[:12]}"),
        tag("p", f"Sizes: {', '.join(program.symbols)}, each 1 or more{holds}."),
        _listed(f"Takes {len(takes)} arrays", ("name", "type", "role"), takes, numbers=()),
        _listed(f"Returns {len(returns)} arrays", ("name", "type"), returns, numbers=()),
        folded(f"The program at {shown}", *_computes(example)),
    )


def plan_fragment(
    lowered: Program,
    facts: Mapping[str, Any],
    text: str,
    place: str,
    use: MemoryUse,
    inputs: Sequence[Argument],
) -> Markup:
    """What a plan runs, how fast and how exactly, what was chosen at which sites, and the program as it is run.

    Arguments:
        lowered: the program with the kernels of its path in place.
        facts: of `Plan.to_json`.
        text: of `Plan.__str__`.
        place: where it runs.
        use: the memory of a call.
        inputs: what a call takes.
    """
    memory = (
        f"{human(use.peak)} in a call: arguments {human(use.arguments)}, results {human(use.results)}, of which "
        f"{human(use.aliased)} in donated arguments, temporaries {human(use.temporaries)}"
    )
    return _fragment(
        tag("h2", f"Plan of program {str(facts['program'])[:12]} on {place}"),
        tag("p", _speed(facts)),
        tag("p", _exactness(facts)),
        tag("p", memory, class_="soft"),
        *_choices(facts["classes"]),
        folded("All that is known of the path, as print shows it", tag("pre", text)),
        *_signature(inputs, lowered.results),
        *_computes(lowered),
    )


def _fragment(*parts: str) -> Markup:
    return tag("div", tag("style", Markup(STYLE)), *parts, class_="pcp-page")


def _speed(facts: Mapping[str, Any]) -> str:
    mine, plain = facts["seconds"], facts["plain_seconds"]
    name = "The plain path" if facts["plain"] else f"Path {facts['path'][:12]}"
    if mine and plain:
        return (
            f"{name} takes {seconds(mine)}, the plain one {seconds(plain)}: {plain / mine:.2f} times as fast."
        )
    return f"{name}; its time was not measured."


def _exactness(facts: Mapping[str, Any]) -> str:
    if facts["tolerance"] is None:
        return "No tolerance was asked for, so nothing was searched, and its error is not known."
    if facts["error"] is None:
        return f"The tolerance is {facts['tolerance']:g}; the error was not measured."
    plain = "" if facts["plain_error"] is None else f"; the plain path has {facts['plain_error']:.1e}"
    return f"Its error is {facts['error']:.2e} of at most {facts['tolerance']:g}{plain}."


def _choices(classes: Sequence[Mapping[str, Any]]) -> Iterator[Markup]:
    """What runs at each class of sites: those with a kernel, and folded those that run as they are written."""
    if not classes:
        return
    chosen = [each for each in classes if each["kernel"] is not None]
    plain = [each for each in classes if each["kernel"] is None]
    yield tag("h3", f"Kernels at {_uses(chosen)} of {_uses(classes)} sites")
    if chosen:
        yield _sites(chosen)
    if plain:
        yield folded(f"{_uses(plain)} sites run as they are written", _sites(plain))


def _uses(classes: Sequence[Mapping[str, Any]]) -> int:
    return sum(each["uses"] for each in classes)


def _sites(classes: Sequence[Mapping[str, Any]]) -> Markup:
    more = len(classes) - MOST_CLASSES
    return joined(
        [
            table(
                ("sites", "computes", "kernel", "time", "plain", "error", "measured too", "first at"),
                map(_site, classes[:MOST_CLASSES]),
                numbers=(0, 3, 4, 5),
            ),
            tag("p", f"and {more} classes more", class_="soft") if more > 0 else Markup(),
        ]
    )


def _site(each: Mapping[str, Any]) -> tuple[str, ...]:
    measured = each["measured"].get(each["kernel"], {})
    others = [name for name in each["measured"] if name != each["kernel"]]
    shown = ", ".join(others[:3]) + (f" and {len(others) - 3} more" if len(others) > 3 else "")
    error = measured.get("error")
    return (
        str(each["uses"]),
        _short(str(each["computes"]), 110),
        each["kernel"] or "as written",
        seconds(measured["seconds"]) if measured.get("seconds") else "",
        seconds(measured["plain_seconds"]) if measured.get("plain_seconds") else "",
        "" if error is None else f"{error:.1e}",
        shown,
        next(iter(each["locations"]), "").rpartition("/")[2],
    )


def _short(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[: most - 3]}..."


def _signature(arguments: Sequence[Argument], results: Sequence[Result]) -> Iterator[Markup]:
    """Arguments and results, with their bytes."""
    rows = [
        (each.name or str(i), str(each.spec), each.role.value, human(each.spec.bytes))
        for i, each in enumerate(arguments)
    ]
    total = sum(each.spec.bytes for each in arguments)
    yield _listed(f"Takes {len(arguments)} arrays, {human(total)}", ("name", "type", "role", "bytes"), rows)
    of_results = [
        (each.name or str(i), str(each.spec), human(each.spec.bytes)) for i, each in enumerate(results)
    ]
    total = sum(each.spec.bytes for each in results)
    yield _listed(f"Returns {len(results)} arrays, {human(total)}", ("name", "type", "bytes"), of_results)


def _listed(
    title: str, head: Sequence[str], rows: Sequence[Sequence[str]], numbers: Sequence[int] | None = None
) -> Markup:
    """The first rows of a table; its last column holds numbers, unless others are named."""
    more = (
        tag("p", f"and {len(rows) - MOST_LISTED} more", class_="soft")
        if len(rows) > MOST_LISTED
        else Markup()
    )
    of_numbers = (len(head) - 1,) if numbers is None else tuple(numbers)
    shown = table(head, rows[:MOST_LISTED], numbers=of_numbers)
    return folded(title, shown, more, is_open=len(rows) <= 8)


def _computes(program: Program) -> Iterator[Markup]:
    """Operations by kind, memory over time, layers."""
    operations = operations_of(program)
    if not operations:
        return
    layers, curve, cost = layers_of(program, operations), held(program, operations), estimate_cost(program)
    rows = [
        (name, f"{kind.count:,}", f"{kind.flops:,}", human(kind.bytes)) for name, kind in cost.kinds.items()
    ]
    yield tag("h3", "Memory over time")
    yield memory_curve(curve, layers, sum(each.spec.bytes for each in program.arguments))
    yield tag(
        "p",
        f"At most {human(max(curve))}, at operation {curve.index(max(curve)) + 1:,} of {len(curve):,}, as the program is "
        "written; a compiler fuses operations, so that a call takes less. Grey: the arguments. Lines: where layers begin.",
        class_="soft",
    )
    yield tag("h3", f"{sum(layer.count for layer in layers):,} operations in {len(layers)} layers")
    yield folded(
        "Operations by kind", table(("operation", "count", "flops", "bytes"), rows, numbers=(1, 2, 3))
    )
    if len(layers) > 1:
        yield folded("What flows between layers", layer_graph(layers), is_open=len(layers) <= 16)
    yield from (_layer(layer, layers) for layer in layers)


def _layer(layer: Layer, layers: Sequence[Layer]) -> Markup:
    takes = ", ".join(f"{layers[number].title} ({count})" for number, count in layer.sources.most_common(4))
    title = f"{layer.title}: {len(layer.operations):,} operations ({layer.kinds}){'; takes values of ' if takes else ''}{takes}"
    shown = layer.operations[:MOST_LISTED]
    more = len(layer.operations) - len(shown)
    lines = [_short(str(each), 240) for each in shown] + ([f"... and {more:,} more"] if more else [])
    return folded(title, tag("pre", joined(f"{line}\n" for line in lines)))
