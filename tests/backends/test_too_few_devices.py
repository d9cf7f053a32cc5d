"""Collectives whose groups name devices that the target does not have: refused by name, not computed with one value."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pcp
from pcp import ops
from pcp.backends import CompilationFailed, TooFewDevices
from pcp.importers.imported_module import NotImportable, clean
from pcp.ir import Program
from pcp.ir.bindings import parse_module
from pcp.planning.artifact import compile_ahead

X = np.arange(4, dtype=np.float32)
PAIR = [[0, 1]]

REFUSED: dict[str, tuple[Callable[[pcp.Tensor], Any], str]] = {
    "all_reduce": (lambda x: ops.all_reduce(x, PAIR), r"all_reduce with groups \[\[0, 1\]\]"),
    "all_gather": (lambda x: ops.all_gather(x, PAIR), "all_gather with groups"),
    "reduce_scatter": (lambda x: ops.reduce_scatter(x, PAIR), "reduce_scatter with groups"),
    "all_to_all": (lambda x: ops.all_to_all(x, PAIR), "all_to_all with groups"),
    "collective_permute": (
        lambda x: ops.collective_permute(x, [(0, 1), (1, 0)]), r"collective_permute with pairs \[\[0, 1\], \[1, 0\]\]",
    ),
    "groups of one": (lambda x: ops.all_reduce(x, [[0], [1]]), r"all_reduce with groups \[\[0\], \[1\]\]"),
    "in a loop": (lambda x: ops.fori_loop(0, 2, lambda _, c: ops.all_reduce(c, PAIR), x), "all_reduce with groups"),
    "in a gradient": (lambda x: pcp.grad(lambda y: ops.all_reduce(y, PAIR).sum())(x), "all_reduce with groups"),
    "in a composite": (lambda x: pcp.composite("my.sum")(lambda y: ops.all_reduce(y, PAIR))(x), "all_reduce with groups"),
}  # fmt: skip


@pytest.mark.parametrize("target", ["cpu:0", "arena:cpu"])
@pytest.mark.parametrize("case", REFUSED)
def test_collectives_of_more_devices_are_refused(case: str, target: str) -> None:
    function, shown = REFUSED[case]
    said = r"needs 2 devices, and the program is compiled for 1: cpu:0; give groups of one, \[\[0\]\], or"
    message = rf"{shown}.* {said}(.|\n)*\n  at "
    with pytest.raises(TooFewDevices, match=message):
        pcp.plan(pcp.trace(function, X), target)
    assert issubclass(TooFewDevices, CompilationFailed)


@pytest.mark.parametrize("devices", ["cpu:0", ["cpu:0", "arena:cpu"], ["arena:cpu", "cpu:0"]])
def test_a_search_refuses_them_before_it_measures(devices: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.planning.conditions.Bench", None)
    with pytest.raises(TooFewDevices, match=r"all_reduce with groups \[\[0, 1\]\] needs 2 devices"):
        pcp.plan(pcp.trace(lambda x: ops.all_reduce(x, PAIR), X), devices, tolerance=1e-2)


def test_a_function_of_jax_runs_on_one_device() -> None:
    with pytest.raises(
        TooFewDevices, match=r"needs 2 devices, and .* for 1: the one of jax.jit; give groups of one"
    ):
        pcp.trace(lambda x: ops.all_reduce(x, PAIR), X).to_jax()
    alone = pcp.trace(lambda x: ops.all_reduce(x, [[0]]), X).to_jax()
    np.testing.assert_array_equal(np.asarray(alone(X)), X)


def test_what_is_compiled_ahead_is_for_one_device() -> None:
    pytest.importorskip("iree.compiler")
    with pytest.raises(TooFewDevices, match=r"needs 2 devices, .* compiled for 1: llvm-cpu:generic; give"):
        compile_ahead(pcp.trace(lambda x: ops.all_reduce(x, PAIR), X), "llvm-cpu:generic")


def test_groups_of_the_one_device_compute() -> None:
    def everything(x: pcp.Tensor) -> Any:
        return (
            ops.all_reduce(x, [[0]]),
            ops.all_gather(x, [[0]]),
            ops.reduce_scatter(x, [[0]]),
            ops.all_to_all(x, [[0]]),
        )

    for target in ("cpu:0", "arena:cpu"):
        for found in pcp.plan(pcp.trace(everything, X), target).run(X):
            np.testing.assert_array_equal(np.asarray(found), X)


MODULE = """module @m attributes {mhlo.num_replicas = 2 : i32} { func.func @main(%x: tensor<4xf32>) -> tensor<4xf32> {
  %r = "stablehlo.all_reduce"(%x) ({ ^bb0(%a: tensor<f32>, %b: tensor<f32>): %c = stablehlo.add %a, %b : tensor<f32>
    stablehlo.return %c : tensor<f32> }) {replica_groups = dense<> : tensor<0x0xi64>} : (tensor<4xf32>) -> tensor<4xf32>
  return %r : tensor<4xf32> } }"""


def test_all_replicas_of_a_module_are_counted(tmp_path: Any) -> None:
    with pytest.raises(TooFewDevices, match=r"all_reduce with groups .* needs 2 devices"):
        pcp.plan(Program.parse(MODULE))
    alone = MODULE.replace("num_replicas = 2", "num_replicas = 1")
    np.testing.assert_array_equal(np.asarray(pcp.plan(Program.parse(alone)).run(X)), X)
    path = tmp_path / "m.mlir"
    path.write_text(MODULE)
    with pytest.raises(TooFewDevices, match="all_reduce with groups"):
        pcp.plan(pcp.load(path))
    with pytest.raises(
        NotImportable, match=r"all_reduce with groups .* cannot be imported: it is written for 2 devices"
    ):
        clean(parse_module(MODULE))  # where the attributes go
