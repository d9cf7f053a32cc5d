"""Files of programs whose source may choose by its sizes unseen: they hold at the sizes that were compared, others between."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import export

import pcp
from pcp.symbolic import SizesRefused, SymbolicProgram
from tests.execution import run_in_jax


def read(program: Any) -> Any:
    return SymbolicProgram.from_artifact(program.artifact())


HIDDEN = [2 * n for n in (2600, 2700)]  # no number of the function


def between(x: Any) -> Any:
    """Chooses between two sizes that are compared, by numbers that nothing sees."""
    return x * 2 if HIDDEN[0] < float(x.shape[0]) < HIDDEN[1] else x


def by_text(x: Any) -> Any:
    """Chooses by the text of a size."""
    return x * {str(HIDDEN[0] + 100): 2.0}.get(f"{x.shape[0]}", 1.0)


@pytest.mark.parametrize(
    ("make", "function"), [(pcp.from_jax, between), (pcp.trace, between), (pcp.trace, by_text)]
)
def test_a_file_of_an_unseen_choice_holds_at_the_sizes_that_were_compared(
    make: Callable[..., Any], function: Callable[[Any], Any], tmp_path: Path
) -> None:
    program = make(function, pcp.spec(("n",), "f32"))
    assert program.at(n=7).digest == program.at(n=7).digest
    program.save(tmp_path / "between.pcp")
    for each in (read(program), pcp.load(tmp_path / "between.pcp"), read(read(program))):
        assert each.at(n=7).digest == program.at(n=7).digest
        for sizes, made in program.programs:
            assert each.at(n=sizes[0]).digest == made.digest
        for n in (HIDDEN[0] + 100, 8):
            with pytest.raises(
                SizesRefused,
                match=rf"\(n={n}\) were given; before it was written the program was compared with its function at \d+ sizes, "
                rf"the nearest \(n=\d+\); .*; at these it may be another, because .* is not seen.*: expected one of those; "
                rf"where the function lives, call program.at\(n={n}\), and then write the program",
            ):
                each.at(n=n)


def test_why_a_file_holds_at_few_sizes_is_said() -> None:
    from_jax: Any = pcp.from_jax(lambda x: x * 2, pcp.spec(("n",), "f32"))
    with pytest.raises(SizesRefused, match=r"what jax.export.export makes of .*import that by pcp.from_jax"):
        read(from_jax).at(n=8)
    traced: Any = pcp.trace(lambda x: x * float(x.shape[0]), pcp.spec(("n",), "f32"))
    with pytest.raises(
        SizesRefused, match=r"a size became a number or a text at .*test_unseen_choices.py:\d+, and what is"
    ):
        read(traced).at(n=8)


def test_a_gradient_of_what_was_read_holds_at_the_same_sizes() -> None:
    program: Any = pcp.from_jax(
        lambda w, x: jnp.tanh(x * w).sum(), pcp.spec((), "f32", "weight"), pcp.spec(("n",), "f32")
    )
    program.at(n=7)
    loaded = read(program)
    for gradient in (pcp.grad(loaded), read(pcp.grad(loaded)), read(pcp.grad(program))):
        x = np.linspace(0, 1, 7, dtype=np.float32)
        got = pcp.plan(gradient.at(n=7), "arena:cpu").run(np.float32(2), x)
        np.testing.assert_allclose(got, (x * (1 - np.tanh(2 * x) ** 2)).sum(), rtol=1e-4, atol=1e-5)
        with pytest.raises(SizesRefused, match=r"\(n=8\) were given; before it was written"):
            gradient.at(n=8)


def test_a_program_of_unseen_choices_that_is_called_makes_its_caller_one() -> None:
    called: Any = pcp.from_jax(lambda x: x * 2, pcp.spec(("n",), "f32"))
    caller: Any = pcp.trace(lambda x: pcp.call(called, x) + 1, pcp.spec(("n",), "f32"))
    with pytest.raises(SizesRefused, match=r"\(n=8\) were given; before it was written"):
        read(caller).at(n=8)


def test_a_plan_of_what_was_read_searches_at_the_sizes_that_were_compared() -> None:
    program: Any = pcp.from_jax(lambda x: x @ x.T, pcp.spec(("n", 8), "f32"), constraints=["n <= 64"])
    program.at(n=7)
    plan = pcp.plan(read(program), "arena:cpu", tolerance=1e-2)
    x = np.ones((7, 8), np.float32)
    np.testing.assert_allclose(plan.run(x), x @ x.T)


def exported(function: Callable[[Any], Any], shape: str = "n") -> Any:
    sizes = export.symbolic_shape(shape)
    return pcp.from_jax(export.export(jax.jit(function))(jax.ShapeDtypeStruct(sizes, jnp.float32)))


IMAGE = np.random.default_rng(0).normal(size=(3, 3, 2, 4)).astype(np.float32)
EXPORTS: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "mlp": ("n, 4", lambda x: jnp.tanh(x @ jnp.ones((4, 3))).sum()),
    "attention": ("b, n, 4", lambda x: jax.nn.softmax(x @ x.swapaxes(1, 2)) @ x),
    "half": ("n", lambda x: x[: x.shape[0] // 2]),
    "reshape": ("2*n", lambda x: x.reshape(-1, 2)),
    "mean": ("n, 3", lambda x: x - x.mean(axis=0)),
    "cumsum": ("n", jnp.cumsum),
    "top half": ("n", lambda x: jax.lax.top_k(x, (x.shape[0] + 1) // 2)[0]),
    "window": ("n", lambda x: jax.lax.reduce_window(x, 0.0, jax.lax.add, (3,), (2,), "VALID")),
    "image": (
        "n, 8, 8, 2",
        lambda x: jax.lax.conv_general_dilated(x, IMAGE, (2, 2), "SAME", dimension_numbers=("NHWC", "HWIO", "NHWC")),
    ),
    "scan": ("n, 3", lambda x: jax.lax.scan(lambda c, r: (c + r, c * 2), jnp.zeros(3), x)[1]),
    "causal": ("n, 3", lambda x: jnp.where(jnp.tri(x.shape[0]) > 0, x @ x.T, 0)),
    "joined": ("n, 3", lambda x: jnp.concatenate([x, x[:2]])),
}  # fmt: skip


@pytest.mark.parametrize("name", EXPORTS)
def test_a_file_of_an_export_of_jax_holds_at_all_sizes(name: str) -> None:
    shape, function = EXPORTS[name]
    program = exported(function, shape)
    loaded = read(program)
    assert not loaded.evidence.unseen
    rng = np.random.default_rng()
    for n in (7, int(rng.integers(64, 400))):
        sizes = {symbol: n if symbol == "n" else 3 for symbol in program.symbols}
        x = rng.normal(size=[size.value(sizes) for size in program.arguments[0].spec.shape]).astype(
            np.float32
        )
        got = pcp.plan(loaded.at(**sizes), "arena:cpu").run(x)
        np.testing.assert_allclose(np.asarray(got), run_in_jax(function, x), rtol=1e-3, atol=1e-3)


CHOSEN: list[tuple[Callable[[Any, Any], Any], str]] = [
    (lambda x, _: x[:4000].sum(), "n <= 4000"),
    (lambda x, _: x[:3], "n >= 3"),
    (lambda x, _: x[10:], "n >= 10"),
    (lambda x, xp: x * xp.minimum(x.shape[0] // 4000, 3), "n // 4000 == 0"),
    (lambda x, xp: x * xp.where(xp.asarray(x.shape[0]) > 3000, 2.0, 1.0), "n <= 3000"),
]
"""Functions of JAX's or NumPy's arrays and of their module."""


@pytest.mark.parametrize(("function", "constraint"), CHOSEN)
def test_what_an_export_chooses_by_its_sizes_is_a_constraint(
    function: Callable[[Any, Any], Any], constraint: str
) -> None:
    program = exported(lambda x: function(x, jnp))
    assert constraint in program.constraints
    for n in (5, 9, 11, 2999, 3001, 3999, 4001):
        for each in (program, read(program)):
            try:
                made = each.at(n=n)
            except SizesRefused:
                assert not all(entry.holds({"n": n}) for entry in program.space.constraints)
                continue
            x = np.random.default_rng(n).normal(size=n).astype(np.float32)
            got = pcp.plan(made, "arena:cpu").run(x)
            np.testing.assert_allclose(np.asarray(got), function(x, np), rtol=1e-3, atol=1e-3)
