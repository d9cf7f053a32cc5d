"""Pictures of a program: the bytes that are held after each operation, and the layers with what flows between them."""

from collections.abc import Sequence

from pcp.ir import Program
from pcp.ir.operations import Operation
from pcp.planning.capacity import human
from pcp.planning.pages.layers import Layer
from pcp.planning.pages.markup import Markup, tag

WIDTH, HEIGHT = 1000, 180
MOST_POINTS = 500
"""Of a curve; of more operations the most bytes of each part are drawn."""
_NODE, _ROW = 220, 22


def held(program: Program, operations: Sequence[Operation]) -> list[int]:
    """Bytes that are held while each operation of the program's body runs, arguments among them.

    As the program is written: a value lives from the operation that makes it to the last that takes it, or to the end if none
    takes it. An argument lives all the time, unless its memory is donated. What a compiler fuses is never made.
    """
    body: list[list[Operation]] = []
    for each in operations:
        if each.depth:
            body[-1].append(each)
        else:
            body.append([each])
    last: dict[int, int] = {}
    for place, group in enumerate(body):
        last |= dict.fromkeys((value for each in group for value in each.operands), place)
    sizes = {number: entry.spec.bytes for number, entry in enumerate(program.arguments)}
    kept = {number for number, entry in enumerate(program.arguments) if entry.alias is None}
    changes = [0] * (len(body) + 1)
    for number, size in sizes.items():
        changes[0] += size
        changes[len(body) if number in kept else last.get(number, -1) + 1] -= size
    for place, group in enumerate(body):
        for value, spec in zip(group[0].results, group[0].specs, strict=True):
            changes[place] += spec.bytes if spec else 0
            changes[last.get(value, len(body) - 1) + 1] -= spec.bytes if spec else 0
    total, curve = 0, []
    for change in changes[:-1]:
        total += change
        curve.append(total)
    return curve


def memory_curve(curve: Sequence[int], layers: Sequence[Layer], arguments: int) -> Markup:
    """The bytes of `held` as a curve, with where layers begin; it is stretched to the width that there is."""
    top = max([*curve, arguments, 1])
    share = max(1, -(-len(curve) // MOST_POINTS))
    points = [max(curve[start : start + share]) for start in range(0, len(curve), share)]

    def x(place: float) -> str:
        return f"{WIDTH * place / max(len(curve), 1):.1f}"

    def y(value: float) -> str:
        return f"{HEIGHT * (1 - value / top):.1f}"

    ends = [min((number + 1) * share, len(curve)) for number in range(len(points))]
    steps = [
        f"{x(place)},{y(value)}"
        for number, value in enumerate(points)
        for place in (number * share, ends[number])
    ]
    outline = " ".join([f"0,{HEIGHT}", *steps, f"{WIDTH},{HEIGHT}"])
    return tag(
        "svg",
        tag("title", f"bytes held, at most {human(max(curve, default=0))}"),
        *(tag("line", x1=x(each.first), x2=x(each.first), y1=0, y2=HEIGHT, class_="axis") for each in layers),
        tag("rect", x=0, y=y(arguments), width=WIDTH, height=HEIGHT, class_="held"),
        tag("polygon", points=outline, class_="area"),
        view_box=f"0 0 {WIDTH} {HEIGHT}",
        preserveAspectRatio="none",
        class_="curve",
        role="img",
    )


def layer_graph(layers: Sequence[Layer]) -> Markup:
    """The layers below one another, and an arc from each to those that take its values, but for the next one."""
    height = _ROW * len(layers) + 8
    shapes = []
    for number, layer in enumerate(layers):
        top = 4 + _ROW * number
        title = layer.title if len(layer.title) <= 32 else f"{layer.title[:30]}..."
        shapes += [
            tag("rect", x=4, y=top, width=_NODE, height=_ROW - 6, rx=3, class_="node"),
            tag("text", title, x=10, y=top + 12),
        ]
        for source, values in layer.sources.most_common(8):
            start, end = 4 + _ROW * source + 8, top + 8
            reach = _NODE + 8 + min(24 + 9 * (number - source), 260) * (number - source > 1)
            width = min(1 + values / 8, 5)
            if number - source == 1:
                shapes.append(
                    tag("line", x1=16, x2=16, y1=top - 6, y2=top, class_="link", stroke_width=f"{width:.1f}")
                )
            else:
                path = f"M{_NODE + 4},{start} C{reach},{start} {reach},{end} {_NODE + 4},{end}"
                shapes.append(tag("path", d=path, class_="link", stroke_width=f"{width:.1f}"))
    return tag("svg", *shapes, view_box=f"0 0 520 {height}", style="max-width: 520px", role="img")
