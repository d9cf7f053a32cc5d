"""Products of float32 are float32, where the program does not ask for less."""

import pytest

import pcp
from pcp import Path
from pcp.backends import Device, Target
from pcp.backends.full_precision import (
    is_of_full_precision,
    multiplies_eight_bits,
    with_full_precision,
)
from pcp.backends.xla import XLABackend

TEXT = """!t = tensor<4x4x{type}>
func.func public @main(%a: !t, %b: !t) -> !t {{
  %c = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]{precision} : (!t, !t) -> !t
  return %c : !t
}}"""

GPU, CPU = Target("xla", (Device("cuda", 0, 2**40),)), Target.of("cpu:0")


def text(type_: str = "f32", precision: str = "") -> str:
    return TEXT.format(type=type_, precision=precision)


@pytest.mark.parametrize("precision", ["", ", precision = [DEFAULT, DEFAULT]"])
def test_open_products_of_float32_become_exact(precision: str) -> None:
    program = pcp.Program.parse(text(precision=precision))
    assert "precision = [HIGHEST, HIGHEST]" in with_full_precision(program).text
    assert "HIGHEST" not in program.text


@pytest.mark.parametrize(
    "given",
    [
        text(precision=", precision = [HIGH, DEFAULT]"),
        text(
            precision=", algorithm = <lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32, "
            "lhs_component_count = 1, rhs_component_count = 1, num_primitive_operations = 1, "
            "allow_imprecise_accumulation = false>"
        ),
        text("bf16"),
    ],
)
def test_what_a_program_says_itself_stays(given: str) -> None:
    program = pcp.Program.parse(given)
    assert with_full_precision(program) is program


@pytest.mark.parametrize(
    ("given", "full"),
    [
        (text(), True),
        (text("f64"), True),
        (text("bf16"), False),
        (text(precision=", precision = [HIGH, DEFAULT]"), False),
        (text("f32").replace("dot_general %a, %b, contracting_dims = [1] x [0]", "add %a, %b"), False),
    ],
)
def test_a_gpu_multiplies_at_full_precision_by_its_library(given: str, full: bool) -> None:
    program = pcp.Program.parse(given)
    assert is_of_full_precision(with_full_precision(program)) == full
    suits = (("xla_gpu_enable_triton_gemm", False),) if full else ()
    mine = {"xla_gpu_enable_triton_gemm": True}
    assert GPU.suited(program).options == suits
    assert Path.plain(program).suited(program, GPU).options == suits
    assert GPU.with_options(mine).suited(program).options == tuple(mine.items())
    assert Path.plain(program, mine).suited(program, GPU).options == tuple(mine.items())
    assert CPU.suited(program) is CPU


def test_xla_is_told_the_options_of_the_target_and_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    program = pcp.Program.parse(text())
    told: list[dict[str, object]] = []
    monkeypatch.setattr(XLABackend, "_compiled", lambda _, __, ___, options, ____: told.append(options))
    for target in (GPU, GPU.with_options({"xla_gpu_autotune_level": 0}), GPU.suited(program), CPU):
        target.compile(program, cache=False)
    assert told == [{}, {"xla_gpu_autotune_level": 0}, {"xla_gpu_enable_triton_gemm": False}, {}]


def test_products_in_loops_too() -> None:
    def powers(x: pcp.Tensor) -> pcp.Tensor:
        return pcp.fori_loop(0, 3, lambda _, y: y @ x, x)

    program = pcp.trace(powers, pcp.spec((4, 4), "f32"))
    assert with_full_precision(program).text.count("HIGHEST, HIGHEST") == 1


@pytest.mark.parametrize(("dtype", "expected"), [("f8E4M3FN", True), ("f8E5M2", True), ("bf16", False)])
def test_products_in_eight_bits_are_left_to_the_library(dtype: str, expected: bool) -> None:
    assert multiplies_eight_bits(pcp.Program.parse(text(dtype))) is expected
