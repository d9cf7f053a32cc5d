"""Taps show values from inside a program, and change nothing else."""

import logging
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import exp, sin

X = np.array([0.5, -1.0], np.float32)
SPEC = pcp.spec((2,), "f32")


def tapped(x: Any) -> Any:
    y = pcp.tap("sine", sin(x))
    return pcp.tap("the sum", exp(y).sum()) + 1


def test_taps_are_shown_in_order_with_their_labels() -> None:
    shown: list[tuple[str, Any]] = []
    plan = pcp.plan(pcp.trace(tapped, SPEC), taps=lambda label, value: shown.append((label, value)))
    result = plan.run(X)
    assert [label for label, _ in shown] == ["sine", "the sum"]
    np.testing.assert_allclose(shown[0][1], np.sin(X), rtol=1e-6)
    np.testing.assert_allclose(result, np.exp(np.sin(X)).sum() + 1, rtol=1e-6)
    assert len(plan.outputs) == 1
    plan.run(X)
    assert len(shown) == 4


def test_print_shows_them(capsys: pytest.CaptureFixture[str]) -> None:
    pcp.plan(pcp.trace(lambda x: pcp.tap("x is", x) * 2, SPEC), taps=print).run(X)
    assert capsys.readouterr().out == "x is [ 0.5 -1. ]\n"


def test_without_being_asked_for_they_cost_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    plan = pcp.plan(pcp.trace(tapped, SPEC))
    plan.run(X)
    assert capsys.readouterr().out == ""
    assert plan.memory[str(plan.device)].results == 4


def test_derivatives_pass_through_and_keep_the_taps() -> None:
    shown: list[str] = []
    program = pcp.grad(pcp.trace(tapped, SPEC))
    gradient = pcp.plan(program, taps=lambda label, _: shown.append(label)).run(X)
    np.testing.assert_allclose(gradient, np.exp(np.sin(X)) * np.cos(X), rtol=1e-5)
    assert "sine" in shown


def test_state_is_donated_as_ever_and_bound_weights_stay_bound() -> None:
    shown: list[float] = []
    step = pcp.trace(
        lambda w, s, x: pcp.tap("new", s + w * x), X, pcp.spec((2,), "f32", "state"), SPEC, roles=None
    )
    plan = pcp.plan(step, taps=lambda _, value: shown.append(value)).bind(X)
    state = plan.place(X, X)[0]
    new = plan.run(state, X)
    assert state.is_deleted()
    np.testing.assert_allclose(new, X + X * X, rtol=1e-6)
    np.testing.assert_array_equal(shown[0], new)


def test_they_travel_with_the_program(tmp_path: Any) -> None:
    pcp.trace(tapped, SPEC).save(tmp_path / "p.pcp")
    shown: list[str] = []
    pcp.plan(pcp.load(tmp_path / "p.pcp"), taps=lambda label, _: shown.append(label)).run(X)
    assert shown == ["sine", "the sum"]


def test_a_tap_in_a_loop_is_announced_to_show_nothing(caplog: pytest.LogCaptureFixture) -> None:
    program = pcp.trace(lambda x: fori_loop(0, 2, lambda _, c: pcp.tap("carry", c * 2), x), SPEC)
    shown: list[str] = []
    with caplog.at_level(logging.WARNING, "pcp.planning.diagnostics.taps"):
        plan = pcp.plan(program, taps=lambda label, _: shown.append(label))
    assert "the tap 'carry' is inside of a stablehlo.while and shows nothing" in caplog.text
    np.testing.assert_allclose(plan.run(X), 4 * X)
    assert shown == []
