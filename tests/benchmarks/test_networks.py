"""Training steps of networks beside other libraries: a contestant that fails does not end the others."""

import os
from pathlib import Path
from typing import Any

import pytest
from benchmarks.own_process import OwnProcess
from benchmarks.programs import networks
from benchmarks.programs.networks import FASTEST, TOLERANCES, Contestant, compare, with_pcp
from tests.benchmarks.test_decoding import Here


def made(*task: Any) -> tuple[Contestant, Any]:
    return Contestant(
        f"after {len(task)}"
    ), lambda count: (0.5, float(count)) if isinstance(count, int) else None


def cannot_be_made(*_: Any) -> None:
    raise RuntimeError("it is not supported")


def nothing(*_: Any) -> None:
    """In place of the step in float64, which another test computes."""


def where_it_may_fail(make: Any, *given: Any) -> Any:
    """A contestant in a process of its own if it fails, and else in this one."""
    return (OwnProcess if make in (cannot_be_made, ends_in_a_step) else Here)(make, *given)


def ends_in_a_step(*_: Any) -> tuple[Contestant, Any]:
    return Contestant("ends"), lambda _: os._exit(1)


def test_a_contestant_that_fails_is_left_out_with_a_sentence(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(networks, "with_jax", cannot_be_made)
    monkeypatch.setattr(networks, "with_torch", ends_in_a_step)
    monkeypatch.setattr(networks, "with_pcp", made)
    monkeypatch.setattr(networks, "exactly", nothing)
    monkeypatch.setattr(networks, "OwnProcess", where_it_may_fail)
    rows = compare("lstm", 1, 2, steps=2, tolerance=1e-2, budget=0.0, few=True)
    assert [row.loss for row in rows] == [1.0] * (1 + len(FASTEST))
    assert [len(row.seconds) for row in rows] == [2] * (1 + len(FASTEST))
    said = capfd.readouterr().err
    for name in ("JAX", "PyTorch"):
        assert f"{name} is left out, its process ended with the error above" in said
    assert "it is not supported" in said
    networks._print("LSTM", rows, False)
    assert capfd.readouterr().out.count("x JAX nan") == 1 + len(FASTEST)


def test_the_fastest_kernels_compute_the_step() -> None:
    plain, step = with_pcp("lstm", 2, 3)
    (_, expected), names = step(2), []
    for rounding in FASTEST:
        row, steps = with_pcp("lstm", 2, 3, None, 0.0, rounding)
        assert steps(2)[1] == pytest.approx(expected, rel=1e-2)
        names.append(row.name)
    kinds = ("kernels", "of 16 bits", "of float32")
    assert [plain.name, *names] == ["PCP", *(f"PCP, fastest {kind}" for kind in kinds)]


def test_the_first_step_is_judged_beside_float64(tmp_path: Path) -> None:
    folder = str(tmp_path)
    networks.exactly("lstm", 2, 3, folder)
    found = with_pcp("lstm", 2, 3)[1](folder)
    jax_error = networks.with_jax("lstm", 2, 3)[1](folder)
    assert 0 < found.gradients < 1e-5
    assert 0 < jax_error.gradients < 1e-5
    assert found.loss < 1e-6
    _, steps = with_pcp("lstm", 2, 3)
    steps(1)  # so that what is judged is another step
    assert steps(folder).gradients > 0.1


def test_every_network_has_a_tolerance() -> None:
    assert set(TOLERANCES) == {"resnet50", "lstm"}
