"""Pages of programs and plans: what they show, that no text of a file becomes markup, and that they stay small."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.cli import main
from pcp.ir.operations import operations_of
from pcp.planning.pages import page, program_fragment
from pcp.planning.pages.drawings import held
from pcp.planning.pages.layers import MOST_LAYERS, layers_of
from pcp.planning.pages.markup import joined, table, tag

RNG = np.random.default_rng()
FORBIDDEN = re.compile(r"<script|javascript:|\son\w+=|<img|<iframe|<link|https?://|url\(", re.IGNORECASE)


def blocks(count: int) -> pcp.Program:
    """A program of `blocks.0`, `blocks.1`, ... which ends with a sum of the first and the last."""

    def function(params: dict[str, Any], x: pcp.Tensor) -> pcp.Tensor:
        first = x = pcp.tanh(x @ params["embedding"])
        for weight in params["blocks"]:
            x = pcp.sin(x @ weight) + x
        return (x + first).sum()

    square = pcp.spec((8, 8), "f32", "weight")
    return pcp.trace(function, {"blocks": [square] * count, "embedding": square}, pcp.spec((4, 8), "f32"))


def test_a_page_tells_what_a_program_takes_makes_and_holds() -> None:
    program = blocks(3)
    shown = program._repr_html_()
    for text in (
        program.digest[:12],
        "params.blocks.2",
        "f32[4,8]",
        "blocks.1: ",
        "dot_general",
        "Memory over time",
        "<svg",
    ):
        assert text in shown, text
    assert FORBIDDEN.search(shown) is None
    document = page("a <title>", shown)
    assert document.startswith("<!doctype html>")
    assert "<title>a &lt;title&gt;</title>" in document
    assert "default-src 'none'" in document


def test_layers_follow_the_weights() -> None:
    program = blocks(3)
    layers = layers_of(program, operations_of(program))
    assert [layer.title for layer in layers] == ["before the layers", "blocks.0", "blocks.1", "blocks.2"]
    assert layers[3].sources.keys() == {0, 2}  # the first sum, and the block before
    assert sum(len(layer.operations) for layer in layers) == len(operations_of(program))
    few = layers_of(blocks(7), operations_of(blocks(7)), most=4)
    assert [layer.title for layer in few][1] == "blocks.1 to blocks.2"
    assert len(few) == 4


def test_layers_of_a_program_without_weights_are_functions() -> None:
    def inner(x: pcp.Tensor) -> pcp.Tensor:
        return pcp.sin(x) * 2

    def outer(x: pcp.Tensor) -> pcp.Tensor:
        return inner(pcp.exp(x))

    program = pcp.trace(outer, pcp.spec((3,), "f32"))
    assert [layer.title for layer in layers_of(program, operations_of(program))] == ["outer", "inner"]


def test_bytes_that_are_held_are_those_of_a_walk() -> None:
    """Beside the walk that the sentence describes, on random programs."""
    for _ in range(5):
        drawn = RNG.integers(0, 4, 12)

        def function(state: pcp.Tensor, x: pcp.Tensor, drawn: Any = drawn) -> Any:
            values = [state, x]
            for number in drawn:
                values.append(pcp.sin(values[-1 - number % len(values)]) + values[0])
            return values[-1], values[len(values) // 2]

        program = pcp.trace(function, pcp.spec((16,), "f32", "state"), pcp.spec((16,), "f32"))
        operations = operations_of(program)
        last = {value: place for place, each in enumerate(operations) for value in each.operands}
        expected = []
        for place in range(len(operations)):
            living = {1}  # the argument that is not donated
            living |= {0} if last.get(0, -1) >= place else set()
            for made, each in enumerate(operations[: place + 1]):
                living |= {
                    value for value in each.results if last.get(value, len(operations)) >= max(place, made)
                }
            expected.append(64 * len(living))
        assert held(program, operations) == expected


def test_texts_of_a_file_stay_texts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    evil = '<script>alert(1)</script>" onload="x'
    program = pcp.trace(lambda tree: tree[evil] * 2, {evil: pcp.spec((3,), "f32")})
    shown = program_fragment(program)
    assert "<script" not in shown
    assert "&lt;script&gt;" in shown
    assert tag("p", evil, title=evil).count("<") == 2
    assert table([evil], [[evil]]).count("script&gt;") == 4
    assert joined([evil]) != evil
    program.save(tmp_path / "evil.pcp")
    file = tmp_path / "evil.html"
    assert main(["inspect", str(tmp_path / "evil.pcp"), "--html", str(file)]) == 0
    assert f"page         {file}" in capsys.readouterr().out
    assert "<script" not in file.read_text(encoding="utf-8")


def test_a_page_of_thousands_of_operations_is_small() -> None:
    program = blocks(1400)
    assert len(operations_of(program)) > 4000
    shown = program._repr_html_()
    assert len(shown) < 1_000_000
    assert shown.count("<details") <= MOST_LAYERS + 8
    assert re.search(r"blocks\.\d+ to blocks\.\d+: ", shown)


def test_the_page_of_a_plan(tmp_path: Path) -> None:
    plan = pcp.plan(blocks(2))
    shown = plan._repr_html_()
    for text in (
        "Plan of program",
        "The plain path; its time was not measured.",
        "No tolerance was asked for",
        "in a call",
    ):
        assert text in shown, text
    blocks(2).save(tmp_path / "p.pcp")
    assert main(["plan", str(tmp_path / "p.pcp"), "--html", str(tmp_path / "p.html")]) == 0
    assert "Plan of program" in (tmp_path / "p.html").read_text(encoding="utf-8")


def test_choices_at_sites_are_rows() -> None:
    from pcp.planning.pages.fragment import _choices

    row = {"seconds": 2e-3, "plain_seconds": 5e-3, "error": 1e-4, "failure": None}
    classes = [
        {"computes": "product", "uses": 3, "kernel": None, "measured": {"b": row}, "locations": []},
        {
            "computes": "softmax",
            "uses": 4,
            "kernel": "a",
            "measured": {"a": row, "b": row},
            "locations": ["x/m.py:3, in f"],
        },
    ]
    title, chosen, plain = _choices(classes)
    assert "Kernels at 4 of 7 sites" in title
    for text in ("softmax", ">2 ms<", ">5 ms<", "1.0e-04", ">m.py:3, in f<"):
        assert text in chosen, text
    assert "3 sites run as they are written" in plain
    assert "softmax" not in plain


def test_a_symbolic_program_has_a_page_of_its_sizes() -> None:
    program = pcp.trace(
        lambda x, w: {"y": pcp.tanh(x @ w)},
        pcp.spec(("batch", 3), "f32"),
        pcp.spec((3, 4), "f32"),
        constraints=["batch <= 40"],
    )
    shown = program._repr_html_()
    sizes, _ = program.programs[0]
    for text in (
        program.digest[:12], "Sizes: batch, each 1 or more; batch &lt;= 40.", "f32[batch,3]", "f32[batch,4]",
        f"The program at batch={sizes[0]}", "dot_general",
    ):  # fmt: skip
        assert text in shown, text
    assert FORBIDDEN.search(shown) is None
