"""The comparison on a GPU: its sizes, batches that do not fit, what is left out; and that its peers compute the same loss."""

import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np
import pytest
from benchmarks.gpu import gpt2_jax, gpu, gpu_curve, gpu_kernels, llama_jax
from benchmarks.gpu.contestants import Made, Task, contestant
from benchmarks.gpu.gpu import Comparison, line_of
from benchmarks.gpu.gpu_kernels import Contestants
from benchmarks.gpu.kernel_cases import attention
from benchmarks.gpu.sizes import MODELS, Sizes, overridden
from benchmarks.gpu.step_errors import StepError
from benchmarks.own_process import is_lack_of_memory

import pcp
from pcp.backends.base import OutOfMemory
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.published import gpt2_config, llama_config
from pcp.training.recipes.config import TrainingConfig

TINY = gpt2_config(layers=2, heads=2, width=16, context=8, vocabulary=16)


def test_a_model_keeps_the_width_of_its_heads() -> None:
    small = overridden(MODELS["llama-1b"], 3, 256, 64, None, None)
    assert small.config == llama_config(3, 4, 1, 256, 704, 64, 32000)
    assert (small.judged.layers, small.judged_batch, small.judges_itself) == (2, 1, False)
    small = overridden(MODELS["gpt2"], 3, 128, 64, 100, 5)
    assert small.judges_itself
    assert (small.judged, small.judged_batch) == (gpt2_config(3, 2, 128, 64, 100), 5)
    assert overridden(MODELS["gpt2-1.5b"], *[None] * 5) == MODELS["gpt2-1.5b"]


class FewFit:
    """Contestants of which 3 sequences do not fit, and one that has no plan."""

    def __init__(self, make: Any, *arguments: Any) -> None:
        self.made: Made | None = None
        if make is not contestant:
            return
        kind, task, tolerance, _ = arguments
        if kind == "planned":
            self.made = Made("PCP (planned)", about=f"no plan within {tolerance:g}")
        elif task.batch <= 2:
            error = StepError(0.25, "0.params.wte", 0.125) if task.folder else None
            self.made = Made(kind, 1.5, 2**30, error)

    def __enter__(self) -> "FewFit":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def call(self, steps: int) -> tuple[float, float]:
        return 0.5 * steps, 2.5


@pytest.mark.parametrize(("batch", "layers", "fits"), [(8, 1, 2), (2, 2, 2)])
def test_a_batch_is_halved_until_it_fits(
    batch: int, layers: int, fits: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "OwnProcess", FewFit)
    monkeypatch.setattr(gpu, "peak_of", lambda _: SimpleNamespace(flops_per_second=1e6))
    rows: list[dict[str, Any]] = []
    sizes = Sizes(TINY, batch, layers, 2)
    assert sizes.judges_itself is (batch == 2)
    comparison = Comparison(sizes, "cpu:0", 0.1, 1.0, turns=3, turn=4, tell=lambda _: None)
    comparison.rows(["torch.compile", "planned", "jax"], rows.append)
    by_name = {row["contestant"]: row for row in rows}
    assert by_name["planned"]["about"] == "no plan within 0.1"
    assert "left out: no plan" in line_of(by_name["planned"])
    for name in ("torch.compile", "jax"):
        row = by_name[name]
        assert (row["batch"], row["step_seconds"], row["tokens_per_second"]) == (fits, 0.5, fits * 8 / 0.5)
        assert (row["error"], row["gradient_error"], row["judged_layers"]) == (0.25, 0.125, layers)
        products = 16 * 16 + 2 * 12 * 16 * 16
        assert row["mfu"] == pytest.approx(row["tokens_per_second"] * (6 * products + 12 * 2 * 16 * 8) / 1e6)


def test_a_plan_is_left_out_where_no_tolerance_is_known() -> None:
    told: list[str] = []
    comparison = Comparison(Sizes(TINY, 8, 1, 2), "cpu:0", None, 1.0, 1, 1, told.append)
    assert comparison._tolerance("planned", None) is None
    assert told == ["PCP's plan is left out: there is no peer's error to plan within; give --tolerance"]
    comparison = Comparison(Sizes(TINY, 2, 2, 2), "cpu:0", 0.0, 1.0, 1, 1, told.append)
    assert comparison._tolerance("planned", StepError(0.1, "", 0.1)) is None
    assert len(told) == 1
    comparison = Comparison(Sizes(TINY, 2, 2, 2), "cpu:0", None, 1.0, 1, 1, lambda _: None)
    assert comparison._tolerance("planned", StepError(0.1, "", 0.1)) == 0.1


def test_peers_that_are_not_installed_are_left_out(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(gpu_kernels, "find_spec", lambda _: None)
    made = contestant("eager", Task(TINY, 1, "cpu:0"), 0.0, 0.0)
    assert made is not None
    assert made[0] == Made("eager", about="torch is not installed")
    assert line_of({"contestant": made[0].name, "about": made[0].about}).endswith(
        "left out: torch is not installed"
    )
    monkeypatch.setattr(Contestants, "_results", lambda *_: {})
    with Contestants("cpu:0") as contestants:
        assert list(contestants.found(attention(32, 64, 2, 16))) == ["PCP, fastest kernels"]
    assert capsys.readouterr().err == "gpu-kernels: PyTorch is left out, torch is not installed\n"


def test_a_lack_of_memory_is_told_from_other_problems() -> None:
    assert is_lack_of_memory(OutOfMemory("needs 300 GiB"))
    assert is_lack_of_memory(RuntimeError("RESOURCE_EXHAUSTED: Out of memory while trying to allocate"))
    assert is_lack_of_memory(RuntimeError("CUDA out of memory. Tried to allocate 20.00 GiB"))
    assert not is_lack_of_memory(ValueError("shapes do not fit"))


@pytest.mark.long
def test_a_contestant_has_an_error_where_it_is_judged(tmp_path: Path) -> None:
    task = Task(TINY, 2, "cpu:0", str(tmp_path))
    task.step.compute("cpu:0")
    made = contestant("jax", task, 0.0, 0.0)
    assert made is not None
    assert made[0].error is not None
    assert 0 < made[0].error.gradients < 0.1
    assert 2 < made[1](2) < 3


@pytest.mark.parametrize(
    ("config", "theirs"),
    [(replace(TINY, layers=1), gpt2_jax), (llama_config(1, 4, 2, 32, 40, 8, 16), llama_jax)],
)
def test_the_losses_of_jax_are_those_of_pcp(config: DecoderConfig, theirs: Any) -> None:
    params = decoder.initial_parameters(config)
    tokens = np.random.default_rng(1).integers(0, 16, (2, 2, 8), np.int32)
    program = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), params, *tokens)
    found = jax.jit(lambda p: theirs.loss(p, *tokens, config))(params)
    assert float(found) == pytest.approx(float(pcp.plan(program)(params, *tokens)), rel=3e-3)


def test_curves_are_drawn(tmp_path: Path) -> None:
    draws = np.random.default_rng(1)
    curves = {name: [4 - draws.random(50) for _ in range(2)] for name in ("as written", "planned")}
    gpu_curve.draw(curves, tmp_path / "curves.png", "a run")
    assert (tmp_path / "curves.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.long
def test_curves_of_a_tiny_run() -> None:
    config = TrainingConfig(steps=12, batch=2, tolerance=1e-2, plan_seconds=5.0)
    text = gpu_curve.text_of_the_repository()[: 2**15]
    model = replace(TINY, vocabulary=256)
    curves, found = gpu_curve.compared(model, config, text, 2)
    assert [len(losses) for losses in curves["planned"]] == [12, 12]
    assert found["largest_difference_of_paths"] < 1e-2
    assert found["text_bytes"] == 2**15
