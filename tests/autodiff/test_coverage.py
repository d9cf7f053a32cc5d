"""The table of what becomes of every operation: complete and true to the rules."""

from importlib.metadata import version

import numpy as np
import pytest

import pcp
from pcp.autodiff import REFUSED, RULES, Coverage, NoDerivative, coverage, coverage_of
from pcp.autodiff.coverage import as_markdown
from pcp.ir.bindings import operation_names
from tests.autodiff.rows.row import from_text
from tests.execution import run

NEWEST = (0, 11, 2)
"""The last jaxlib whose operations the table was compared with."""
NEWER = {"stablehlo.collective_reduce"}
"""Operations that not every jaxlib has that PCP runs with."""


def test_every_operation_of_stablehlo_and_chlo_is_decided() -> None:
    unknown = [name for name, found in coverage().items() if found is Coverage.unknown]
    if tuple(int(part) for part in version("jaxlib").split(".")[:3]) <= NEWEST:
        assert not unknown, f"give {unknown} a rule or, in pcp.autodiff.coverage, a reason to refuse it"


def test_what_has_a_rule_is_not_refused() -> None:
    assert not set(RULES) & set(REFUSED)


def test_the_table_names_no_operation_that_does_not_exist() -> None:
    known = operation_names() | NEWER
    named = {name for name in (*RULES, *REFUSED) if name.startswith(("stablehlo.", "chlo."))}
    assert named <= known


def test_an_operation_that_nobody_knows() -> None:
    assert coverage_of("custom_call.nobody") is Coverage.unknown


def test_the_table_has_a_line_for_every_operation() -> None:
    lines = as_markdown().splitlines()
    assert "| `tanh` | rule |" in lines
    assert "| `floor` | zero by definition |" in lines
    assert f"| `send` | refused: {REFUSED['stablehlo.send']} |" in lines
    assert len(lines) == 2 + len(coverage())


DYNAMIC = """func.func public @main(%x: tensor<3x4xf64>) -> tensor<f64> {{
  %s = {sizes}
  %r = stablehlo.dynamic_reshape %x, %s : (tensor<3x4xf64>, tensor<2xi64>) -> tensor<?x?xf64>
  %y = stablehlo.multiply %r, %r : tensor<?x?xf64>
  %z = stablehlo.constant dense<0.0> : tensor<f64>
  %t = stablehlo.reduce(%y init: %z) applies stablehlo.add across dimensions = [0, 1]
    : (tensor<?x?xf64>, tensor<f64>) -> tensor<f64>
  return %t : tensor<f64> }}"""


def test_a_dynamic_operation_whose_sizes_are_constants() -> None:
    x = np.random.default_rng(0).normal(size=(3, 4))
    text = DYNAMIC.format(sizes="stablehlo.constant dense<[4, 3]> : tensor<2xi64>")
    np.testing.assert_allclose(run(pcp.grad(pcp.Program.parse(text)), x), 2 * x, rtol=1e-12)


def test_a_dynamic_operation_whose_sizes_are_not_known() -> None:
    sizes = """stablehlo.custom_call @sizes() : () -> tensor<2xi64>"""
    program = pcp.Program.parse(DYNAMIC.format(sizes=sizes))
    with pytest.raises(
        NoDerivative, match="dynamic_reshape cannot be differentiated: its shape is only known"
    ):
        pcp.grad(program)


def test_a_deprecated_operation() -> None:
    function = from_text("""func.func @main(%x: tensor<3x4xf64>, %y: tensor<4xf64>) -> tensor<3xf64> {
      %b = "stablehlo.broadcast"(%y) <{broadcast_sizes = array<i64: 3>}> : (tensor<4xf64>) -> tensor<3x4xf64>
      %p = stablehlo.multiply %x, %b : tensor<3x4xf64>
      %d = stablehlo.dot %p, %y : (tensor<3x4xf64>, tensor<4xf64>) -> tensor<3xf64>
      return %d : tensor<3xf64> }""")
    random = np.random.default_rng(0)
    x, y = random.normal(size=(3, 4)), random.normal(size=4)
    gradient = pcp.grad(pcp.trace(lambda x, y: function(x, y).sum(), x, y), (0, 1))
    expected = np.broadcast_to(y * y, (3, 4)), 2 * x.sum(0) * y
    for mine, other in zip(run(gradient, x, y), expected, strict=True):
        np.testing.assert_allclose(mine, other, rtol=1e-12)


@pytest.mark.parametrize(
    ("operation", "reason"),
    [
        (
            '"stablehlo.send"(%x, %t) <{channel_handle = #stablehlo.channel_handle<handle = 1, type = 2>, '
            "is_host_transfer = true}> : (tensor<3xf64>, !stablehlo.token) -> !stablehlo.token",
            "derivatives cannot follow what leaves the program through a channel",
        ),
        (
            "stablehlo.custom_call @xla_ffi_python_cpu_callback(%x) : (tensor<3xf64>) -> tensor<3xf64>",
            "it runs Python code, which cannot be differentiated",
        ),
    ],
)
def test_a_refusal_gives_the_reason_of_the_table(operation: str, reason: str) -> None:
    returned = "%x" if "send" in operation else "%s"
    program = pcp.Program.parse(f"""func.func public @main(%x: tensor<3xf64>) -> tensor<3xf64> {{
      %t = stablehlo.create_token : !stablehlo.token
      %s = {operation}
      return {returned} : tensor<3xf64> }}""")
    with pytest.raises(NoDerivative, match=f"cannot be differentiated: {reason}"):
        pcp.vjp(program)
