"""SwiGLU and its kin by Triton: found in programs however they are written, and interpreted, beside float64."""

import math
from collections import Counter
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ir import Program
from pcp.ir.toolkit.functions import entry_block
from pcp.kernels import kernel_named
from pcp.kernels.activations.gated import Gated
from pcp.kernels.groups import groups_in
from pcp.kernels.regions import only_operation
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising.activations import ACTIVATIONS
from tests.kernels.gpu.emulated import interpreted
from tests.kernels.gpu.test_activations import of_numbers

SHAPES = ((4, 8, 16), (16, 128), (16, 128), (128, 16))


def _own(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return ((nn.silu(x @ gate) * (x @ up)) @ down).sum()


def _of_jax(x: Any, gate: Any, up: Any, down: Any) -> Any:
    return ((x @ up * jax.nn.silu(x @ gate)) @ down).sum()


def _abstract() -> list[Any]:
    return [jax.ShapeDtypeStruct(shape, jnp.float32) for shape in SHAPES]


def _gradient_of_pcp() -> Program:
    return pcp.value_and_grad(pcp.trace(_own, *(pcp.spec(each, "f32") for each in SHAPES)), wrt=(0, 1, 2, 3))


def _gradient_of_import() -> Program:
    return pcp.value_and_grad(pcp.from_jax(_of_jax, *_abstract()), wrt=(0, 1, 2, 3))


def _gradient_of_jax() -> Program:
    return pcp.from_jax(jax.value_and_grad(_of_jax, argnums=(0, 1, 2, 3)), *_abstract())


@pytest.mark.parametrize("made", [_gradient_of_pcp, _gradient_of_import, _gradient_of_jax])
def test_it_is_found_forward_and_in_both_gradients(made: Callable[[], Program]) -> None:
    module = prepared(made()).module()
    groups = groups_in(entry_block(module))
    found = Counter(group.family.name for group in groups)
    assert found["gated_silu"] == 2
    assert [len(each.results) for each in groups if each.family.name == "gated_silu_gradient"] == [2]


def test_the_gradient_of_the_gate_alone_is_found_where_nobody_asks_for_the_other() -> None:
    program = pcp.trace(lambda gate, up, w: (nn.silu(gate) * up * w).sum(), *[pcp.spec((4, 128), "f32")] * 3)
    module = prepared(pcp.grad(program, wrt=0)).module()
    groups = groups_in(entry_block(module))
    assert [len(each.results) for each in groups if each.family.name == "gated_silu_gradient"] == [1]


def test_what_another_gate_lets_pass_is_no_part_of_the_gradient() -> None:
    def gradients(gate: pcp.Tensor, other: pcp.Tensor, up: pcp.Tensor, cotangent: pcp.Tensor) -> Any:
        logistic, passed = pcp.sigmoid(gate), cotangent * up
        of_gate = passed * logistic + passed * gate * (logistic * (1.0 - logistic))
        return cotangent * nn.silu(other), of_gate

    module = prepared(pcp.trace(gradients, *[pcp.spec((4, 128), "f32")] * 4)).module()
    groups = groups_in(entry_block(module))
    assert [len(each.results) for each in groups if each.family.name == "gated_silu_gradient"] == [1]


def test_two_functions_of_one_gate_are_no_gradient_together() -> None:
    """What passes is by SiLU, the gradient of the gate that of GELU: only the latter is one."""

    def of_gelu(gate: pcp.Tensor, passed: pcp.Tensor) -> pcp.Tensor:
        normal = pcp.exp(gate * gate * -0.5) * (1 / math.sqrt(2 * math.pi))
        return passed * (0.5 * (1 + pcp.erf(gate * math.sqrt(0.5))) + gate * normal)

    program = pcp.trace(
        lambda gate, up, cotangent: (cotangent * nn.silu(gate), of_gelu(gate, cotangent * up)),
        *[pcp.spec((4, 128), "f32")] * 3,
    )
    module = prepared(program).module()
    (group,) = (each for each in groups_in(entry_block(module)) if each.family.name == "gated_silu_gradient")
    assert len(group.results) == 1
    assert group.matches[0].attributes["function"] == "exact_gelu"


@pytest.mark.parametrize("function", ACTIVATIONS)
@pytest.mark.parametrize("size", [1, 640])
def test_it_computes_the_product_and_its_gradient(size: int, function: str) -> None:
    rng = np.random.default_rng(size)
    gate, up, cotangent = (rng.normal(0, 3, size).astype(np.float32) for _ in range(3))
    gate[:1] = -60
    activated, slope = of_numbers(function, gate)
    of_gate = up * cotangent * slope
    for operands, exact in (
        ((), [activated * up]),
        ((cotangent,), [of_gate]),
        ((cotangent,), [activated * cotangent, of_gate]),
    ):
        for rounded, error in ((False, 1e-6), (True, 3e-3)):
            found = interpreted(Gated(rounded, len(exact), function=function))(gate, up, *operands)
            for y, right in zip(found, exact, strict=True):
                assert y.dtype.name == ("bfloat16" if rounded else "float32")
                distance = np.linalg.norm(np.asarray(y, np.float64) - right)
                assert distance <= error * np.linalg.norm(right) + 1e-20


@pytest.mark.parametrize(
    ("shape", "dtype", "takes"), [((3, 128), "f32", True), ((3, 127), "f32", False), ((3, 128), "f64", False)]
)
def test_it_takes_whole_blocks_of_float32_alone(shape: tuple[int, ...], dtype: str, takes: bool) -> None:
    program = prepared(pcp.trace(lambda gate, up: nn.silu(gate) * up, *[pcp.spec(shape, dtype)] * 2))
    module = program.module()
    (group,) = (each for each in groups_in(entry_block(module)) if each.family.name == "gated_silu")
    region = group.region(program, entry_block(module)).module()
    assert kernel_named("gated_silu.triton").applies(only_operation(entry_block(region))) is takes
