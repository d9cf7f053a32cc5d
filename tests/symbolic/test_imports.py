"""Symbolic programs from JAX and from files: against JAX on random inputs at random sizes."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import pcp
from pcp.importers.imported_module import NotImportable
from pcp.ir.specializing import UnknownShape
from pcp.symbolic import BuiltDifferently, SizesRefused, SymbolicProgram

SAVED = Path(__file__).parent.parent / "ir" / "saved"


def block(weights: Any, x: Any) -> dict[str, Any]:
    q, k = x @ weights["q"], x @ weights["k"]
    scores = jax.nn.softmax(q @ jnp.swapaxes(k, -1, -2) / jnp.sqrt(x.shape[-1]), axis=-1)
    return {
        "mean": (scores @ x).mean(axis=1),
        "half": x[: x.shape[0] // 2].sum(axis=2),
        "whole": scores.sum(),
    }


def specs() -> tuple[Any, Any]:
    batch, length = export.symbolic_shape("b, 2*l", constraints=["l <= 30", "mod(b, 2) == 0", "b >= 4"])
    weights = {name: jax.ShapeDtypeStruct((8, 8), jnp.float32) for name in "qk"}
    return weights, jax.ShapeDtypeStruct((batch, length, 8), jnp.float32)


def compare(program: Any, batch: int, length: int) -> None:
    rng = np.random.default_rng()
    weights = {name: rng.normal(size=(8, 8)).astype(np.float32) for name in "qk"}
    x = rng.normal(size=(batch, 2 * length, 8)).astype(np.float32)
    got = pcp.plan(program.at(b=batch, l=length), "arena:cpu").run(weights, x)
    for name, expected in block(weights, x).items():
        np.testing.assert_allclose(np.asarray(got[name]), expected, rtol=2e-4, atol=2e-4)


@pytest.mark.parametrize("exported", [True, False])
def test_symbolic_sizes_of_jax(exported: bool) -> None:
    given: Any = (export.export(jax.jit(block))(*specs()),) if exported else (block, *specs())
    program: Any = pcp.from_jax(*given)
    assert isinstance(program, SymbolicProgram)
    assert [str(entry.spec) for entry in program.arguments] == ["f32[8,8]", "f32[8,8]", "f32[b,2*l,8]"]
    assert [str(entry.spec) for entry in program.results] == ["f32[b // 2,2*l]", "f32[b,8]", "f32[]"]
    assert {"l <= 30", "b % 2 == 0", "b >= 4"} <= set(program.constraints)
    compare(
        program, 2 * int(np.random.default_rng().integers(2, 9)), int(np.random.default_rng().integers(1, 31))
    )
    for sizes in ({"b": 5, "l": 3}, {"b": 4, "l": 31}, {"b": 2, "l": 3}):
        with pytest.raises(SizesRefused, match="does not hold"):
            program.at(**sizes)


def test_a_function_of_jax_with_specs_and_roles_and_its_gradient() -> None:
    def loss(weights: Any, x: Any) -> Any:
        return (jnp.tanh(x @ weights) ** 2).mean()

    program: Any = pcp.from_jax(
        loss,
        pcp.spec((8, 3), "f32"),
        pcp.spec(("n", 8), "f32"),
        roles=["weight", "input"],
        constraints=["n <= 99"],
    )
    rng = np.random.default_rng()
    weights = rng.normal(size=(8, 3)).astype(np.float32)
    x = rng.normal(size=(int(rng.integers(1, 99)), 8)).astype(np.float32)
    assert program.arguments[0].role == "weight"
    gradient = pcp.plan(pcp.grad(program).at(n=len(x)), "arena:cpu").run(weights, x)
    np.testing.assert_allclose(np.asarray(gradient), jax.grad(loss)(weights, x), rtol=1e-4, atol=1e-5)


def test_a_symbolic_program_as_a_function_of_jax() -> None:
    def squares(w: pcp.Tensor, x: pcp.Tensor) -> pcp.Tensor:
        return (pcp.tanh(x @ w) ** 2).mean(axis=0)

    program: Any = pcp.trace(squares, pcp.spec((4, 3), "f32"), pcp.spec(("n", 4), "f32"))
    function = jax.jit(pcp.to_jax(program))
    rng = np.random.default_rng()
    w = rng.normal(size=(4, 3)).astype(np.float32)
    for n in (2, 9):
        x = rng.normal(size=(n, 4)).astype(np.float32)
        np.testing.assert_allclose(function(w, x), (np.tanh(x @ w) ** 2).mean(axis=0), rtol=1e-4, atol=1e-5)
        gradient = jax.grad(lambda w, x=x: function(w, x).sum())(w)
        expected = jax.grad(lambda w, x=x: (jnp.tanh(x @ w) ** 2).mean(axis=0).sum())(w)
        np.testing.assert_allclose(gradient, expected, rtol=1e-4, atol=1e-5)


def test_a_file_of_jax_export_with_symbols() -> None:
    program: Any = pcp.load(
        SAVED / "any_batch.jax_export", shapes=[None, ("batch", 3)], constraints=["batch <= 64"]
    )
    assert [str(entry.spec) for entry in program.results] == ["f32[batch,4]"]
    assert program.constraints == ("batch <= 64",)
    assert (
        program.at(batch=5).digest == pcp.load(SAVED / "any_batch.jax_export", shapes=[None, (5, 3)]).digest
    )


def test_mlir_with_open_sizes(tmp_path: Path) -> None:
    (tmp_path / "open.mlir").write_text(
        """func.func public @main(%a: tensor<?x4xf32>, %b: tensor<4x?xf32>) -> tensor<?x?xf32> {
          %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
            : (tensor<?x4xf32>, tensor<4x?xf32>) -> tensor<?x?xf32>
          return %0 : tensor<?x?xf32>
        }"""
    )
    program: Any = pcp.load(tmp_path / "open.mlir", shapes=[("m", 4), (4, "2*n")])
    assert [str(entry.spec) for entry in program.results] == ["f32[m,2*n]"]
    rng = np.random.default_rng()
    a, b = rng.normal(size=(5, 4)).astype(np.float32), rng.normal(size=(4, 6)).astype(np.float32)
    np.testing.assert_allclose(pcp.plan(program, "arena:cpu").run(a, b), a @ b, rtol=1e-4, atol=1e-5)
    with pytest.raises(
        UnknownShape, match=r"constraints were given \(m <= 5\) and no symbols; expected a symbol"
    ):
        pcp.load(tmp_path / "open.mlir", shapes=[(3, 4), (4, 2)], constraints=["m <= 5"])


COUNTED = """func.func public @main(%n: tensor<1xi32>, %x: tensor<?xf32>) -> tensor<?xi32> {
  %0 = stablehlo.dynamic_iota %n, dim = 0 : (tensor<1xi32>) -> tensor<?xi32>
  return %0 : tensor<?xi32>
}"""
PRODUCT = """func.func public @main(%a: tensor<?x4xf32>, %b: tensor<?x?xf32>) -> tensor<?x?xf32> {
  %0 = stablehlo.dot_general %a, %b, contracting_dims = [1] x [0]
    : (tensor<?x4xf32>, tensor<?x?xf32>) -> tensor<?x?xf32>
  return %0 : tensor<?x?xf32>
}"""


@pytest.mark.parametrize(
    ("text", "shapes", "message"),
    [
        (
            COUNTED,
            [(1,), ("n",)],
            r"the program returns tensor<\?xi32> for the shapes .*; expected sizes that follow from those of the arguments: "
            r"export it with shapes that are numbers",
        ),
        (
            COUNTED,
            [(1,), (3,)],
            r"the program returns tensor<\?xi32> for the shapes \[\(1,\), \(3,\)\]; expected sizes that",
        ),
        (PRODUCT, [("n", 4), (4, 2), (3,)], "3 shapes were given; the program takes 2 arguments"),
        (PRODUCT, [("n", 4)], "1 shapes were given; the program takes 2 arguments"),
        (
            PRODUCT,
            [("n", 4, 3), (4, 2)],
            r"argument 0 is tensor<\?x4xf32>; the shape \(\d+, 4, 3\) does not fit",
        ),
        (PRODUCT, [("n", 5), (5, 2)], r"argument 0 is tensor<\?x4xf32>; the shape \(\d+, 5\) does not fit"),
        (
            PRODUCT,
            [("n", 4), None],
            r"argument 1 is tensor<\?x\?xf32>, whose sizes are not known; give a shape for each",
        ),
        (PRODUCT, [("n", 4), (5, 2)], r"the shapes .* do not fit together"),
    ],
)
def test_open_sizes_that_stay_unknown_are_refused(
    text: str, shapes: Any, message: str, tmp_path: Path
) -> None:
    (tmp_path / "open.mlir").write_text(text)
    with pytest.raises(UnknownShape, match=message):
        pcp.load(tmp_path / "open.mlir", shapes=shapes)


@pytest.mark.parametrize(
    "function",
    [
        jnp.cumsum,
        lambda x: jax.lax.cummax(x, reverse=True),
        lambda x: jax.lax.top_k(x, (x.shape[0] + 1) // 2)[0],
        lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (3,), (1,), "SAME"),
    ],
)
def test_operations_that_jax_exports_as_calls_for_open_sizes(function: Any) -> None:
    (size,) = export.symbolic_shape("n")
    exported = export.export(jax.jit(function))(jax.ShapeDtypeStruct((size,), jnp.float32))
    program: Any = pcp.from_jax(exported)
    x = np.random.default_rng().normal(size=41).astype(np.float32)
    got = pcp.plan(program.at(n=41), "arena:cpu").run(x)
    np.testing.assert_allclose(np.asarray(got), function(jnp.asarray(x)), rtol=1e-4, atol=1e-4)


CHOOSES = """func.func public @main(%x: tensor<?xf32>) -> tensor<?xf32> {{
  %n = stablehlo.get_dimension_size %x, dim = 0 : (tensor<?xf32>) -> tensor<i32>
  %k = stablehlo.constant dense<4000> : tensor<i32>
  %shape = stablehlo.reshape %n : (tensor<i32>) -> tensor<1xi32>
  {chosen}
  %scale = stablehlo.convert %c : (tensor<i32>) -> tensor<f32>
  %all = stablehlo.dynamic_broadcast_in_dim %scale, %shape, dims = [] : (tensor<f32>, tensor<1xi32>) -> tensor<?xf32>
  %r = stablehlo.multiply %x, %all : tensor<?xf32>
  return %r : tensor<?xf32>
}}"""


@pytest.mark.parametrize(
    ("chosen", "scale"),
    [
        ("%c = stablehlo.minimum %n, %k : tensor<i32>", lambda n: min(n, 4000)),
        ("%c = stablehlo.divide %n, %k : tensor<i32>", lambda n: n // 4000),
        (
            "%p = stablehlo.compare GT, %n, %k : (tensor<i32>, tensor<i32>) -> tensor<i1>\n"
            "%c = stablehlo.select %p, %k, %n : tensor<i1>, tensor<i32>",
            lambda n: min(n, 4000),
        ),
        ("%c = stablehlo.remainder %n, %k : tensor<i32>", lambda n: n % 4000),
    ],
)
def test_mlir_that_chooses_by_a_size_is_right_or_refused(chosen: str, scale: Any, tmp_path: Path) -> None:
    (tmp_path / "chooses.mlir").write_text(CHOOSES.format(chosen=chosen))
    try:
        program: Any = pcp.load(tmp_path / "chooses.mlir", shapes=[("n",)])
    except BuiltDifferently:
        program = pcp.load(tmp_path / "chooses.mlir", shapes=[("n",)], constraints=["n <= 3999"])
    for each in (program, SymbolicProgram.from_artifact(program.artifact())):
        for n in (3, 3999, 4000, 4001, 9000):
            try:
                made = each.at(n=n)
            except SizesRefused:
                assert n > 3999
                continue
            got = pcp.plan(made, "arena:cpu").run(np.ones(n, np.float32))
            np.testing.assert_array_equal(np.asarray(got), np.full(n, scale(n), np.float32))


def test_exports_that_are_refused() -> None:
    struct = jax.ShapeDtypeStruct((3,), jnp.float32)
    exported = export.export(jax.jit(lambda x: x))(struct)
    with pytest.raises(NotImportable, match="1 arguments beside it; expected it alone, of one platform"):
        pcp.from_jax(exported, struct)
    named = export.export(jax.jit(lambda *, x: x))(x=struct)
    with pytest.raises(NotImportable, match="takes x by keyword; expected positions only"):
        pcp.from_jax(named)
    two = export.export(jax.jit(lambda x: x), platforms=["cpu", "cuda"])(struct)
    with pytest.raises(NotImportable, match=r"given with platforms \('cpu', 'cuda'\); expected it alone"):
        pcp.from_jax(two)
