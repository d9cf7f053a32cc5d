"""Methods and forms of Tensors that JAX has, beside JAX: updates by `.at`, masks, moving slices, formulas of einsum."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.tensor import ShapeMismatch

RNG = np.random.default_rng(7)
X = RNG.normal(size=(5, 6)).astype(np.float32)
Y = RNG.uniform(0.5, 2, (5, 6)).astype(np.float32)
Z = (X[:3, :4] + 1j * X[2:, 2:]).astype(np.complex64)
PLACES = np.array([3, 0, -1], np.int32)
MASK = X > 0.3
ROWS = MASK[:, 1]


def same(function: Any, *arguments: Any, also: Any = None) -> None:
    """The same function of Tensors and of JAX's arrays has the same results; `also` stands for it there."""
    found = pcp.plan(pcp.trace(function, *arguments), "arena:cpu").run(*arguments)
    wanted = jax.jit(also or function)(*arguments)  # one compilation instead of one for every operation
    assert len(found) == len(wanted) > 0
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert np.shape(mine) == np.shape(theirs), number
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-5, atol=1e-6, err_msg=str(number))


def test_updates_by_at_are_those_of_jax() -> None:
    def everything(x: Any, y: Any, i: Any, places: Any, mask: Any) -> Any:
        whole = slice(None)
        keys = [
            1,
            (slice(1, 4), 2),
            slice(None, None, -2),
            (..., 0),
            PLACES,
            (whole, places),
            (places, i),
            ROWS,
            MASK,
        ]
        return [
            *[made for key in keys for made in (
                x.at[key].set(2.5), x.at[key].add(0.5), x.at[key].subtract(0.5), x.at[key].multiply(3.0), x.at[key].divide(2.0),
                y.at[key].power(2.0), x.at[key].min(0.1), x.at[key].max(0.1), x.at[key].get(), x.at[key].apply(abs),
            )],
            x.at[:, 0].add(y[:, 1]), x.at[places].add(y[:3]), x.at[mask].set(0.0), x.at[mask].add(1.0), x.at[MASK].set(y[MASK]),
            x.at[mask[:, 1]].multiply(y[0]), x.at[PLACES, PLACES].mul(2.0),
        ]  # fmt: skip

    known = functools.partial(everything, mask=MASK)  # JAX wants masks that have values
    same(everything, X, Y, np.int32(2), PLACES, MASK, also=lambda x, y, i, places, _: known(x, y, i, places))


def test_masks_that_are_known_index_as_in_numpy() -> None:
    def everything(x: Any) -> Any:
        return (
            x[MASK],
            x[ROWS],
            x[:, X[0] > 0],
            x[ROWS, 1:3],
            x[None, MASK],
            x[..., MASK[0]],
            x[MASK & False],
        )

    same(everything, X)


def test_masks_and_bounds_that_have_a_value_need_no_size() -> None:
    x, i, mask = pcp.array(X), pcp.array(1), pcp.array(MASK)
    found = (
        x[mask], x[x > 0.3], x[mask[:, 1], 2:], x[i : i + 2], x.at[i : i + 2, 1].set(0.0), x.at[mask].set(x[mask] * 2),
        x.at[mask[:, 1]].add(1.0), x.at[i : i + 2].multiply(x[:2]), x[i, pcp.array(PLACES)],
    )  # fmt: skip
    y = jnp.asarray(X)
    wanted = (
        X[MASK], X[X > 0.3], X[ROWS, 2:], X[1:3], y.at[1:3, 1].set(0.0), np.where(MASK, X * 2, X), y.at[ROWS].add(1.0),
        y.at[1:3].multiply(X[:2]), X[1, PLACES],
    )  # fmt: skip
    for number, (mine, theirs) in enumerate(zip(found, wanted, strict=True)):
        assert isinstance(mine, pcp.Array)
        np.testing.assert_allclose(mine, theirs, rtol=1e-6, err_msg=str(number))


def test_methods_are_those_of_jax() -> None:
    def everything(x: Any, y: Any, z: Any) -> Any:
        return (
            x.flatten(), x.sort(), x.sort(0), x.argsort(), x.take(PLACES, 0), x.take(PLACES), x.dot(y.T), x.repeat(2, 1),
            x.round(), x.round(2), z.real, z.imag, z.conj(), x.real, x.mT, x.clip(-0.5), x.clip(max=0.5), x.clip(min=-1, max=1),
            x.sum(dtype="float32"), x.mean(0, where=MASK), x.std(ddof=1), x.var(1, ddof=1), x.argmax(keepdims=True),
            x.argmin(1), x.cumsum(), x.cumprod(0), x.diagonal(1), x.trace(), x.max(0, initial=0.5),
            x.min(where=MASK, initial=9.0), x.squeeze(), x.any(), x.all(0), x.prod(1, where=MASK),
            x.astype("int32"), x.swapaxes(0, 1), x.ravel(),
        )  # fmt: skip

    same(everything, X, Y, Z)


def test_elementary_functions_are_methods() -> None:
    def everything(y: Any) -> Any:
        names = ("exp", "log", "log1p", "sqrt", "rsqrt", "square", "sin", "cos", "tanh", "sigmoid", "abs")
        return [getattr(y, name)() for name in names] + [getattr(pcp.ops, name)(y) for name in names]

    found = [np.asarray(each) for each in pcp.plan(pcp.trace(everything, Y), "arena:cpu").run(Y)]
    for mine, theirs in zip(found[:11], found[11:], strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_a_slice_moves_with_its_bounds() -> None:
    def moving(x: Any, i: Any) -> Any:
        return (
            x[i : i + 2], x[1:, i - 1 : i + 3], x[2 * i - 3 : 2 * i, ::2], x[3 - i : 3 - i + 2], x[i : 1 + i, None, PLACES],
            x[i - 1 : i + 3 : 2], x[i:i], x.at[i : i + 2].set(7.0), x.at[i : i + 2, 1].add(1.0), x[(i - 1) * 2 : 2 * i],
        )  # fmt: skip

    same(moving, X, np.int32(2), also=lambda x, _: moving(x, 2))
    negative = pcp.plan(pcp.trace(lambda x, i: x[i : i + 2], X, np.int32(0)), "arena:cpu")
    np.testing.assert_array_equal(negative.run(X, np.int32(-3)), X[2:4])
    np.testing.assert_array_equal(negative.run(X, np.int32(9)), X[3:])


@pytest.mark.parametrize("key", ["i:", ":i", "i:2*i", "i:j", "i:i+2:-1"])
def test_a_slice_whose_size_is_not_known_is_explained(key: str) -> None:
    with pytest.raises(
        ShapeMismatch, match=r"expected bounds with a fixed distance.*pcp.dynamic_slice\(x, \(i, 0,\)"
    ):
        pcp.trace(lambda x, i, j: eval(f"x[{key}]", {"x": x, "i": i, "j": j}), X, np.int32(1), np.int32(1))


def test_einsum_takes_diagonals_and_any_number_of_axes() -> None:
    formulas = {
        "ii": (X[:, :5],), "ii->i": (X[:, :5],), "iij->ji": (RNG.normal(size=(3, 3, 4)).astype(np.float32),),
        "iji,j->i": (RNG.normal(size=(3, 2, 3)).astype(np.float32), X[0, :2]), "...ij,...jk->...ik": (X[None], Y.T[None, None]),
        "...i,...i": (X, Y[:1]), "...": (X,), "i...->...i": (X,), "...ij,jk": (X[None], Y.T),
        "ij...,jk...->ik...": (X[..., None], Y.T),
        "b...,b...->...": (X, Y), "iii->": (RNG.normal(size=(3, 3, 3)).astype(np.float32),), "i...,i->...": (X, Y[:, 0]),
        "ab,bc,cd->ad": (X, Y.T, X),
    }  # fmt: skip
    given = list(formulas.values())
    program = pcp.trace(
        lambda given: [pcp.einsum(f, *x) for f, x in zip(formulas, given, strict=True)], given
    )
    for formula, mine in zip(formulas, pcp.plan(program, "arena:cpu").run(given), strict=True):
        theirs = np.einsum(formula, *formulas[formula])
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=2e-5, atol=1e-5, err_msg=formula)
        assert np.shape(mine) == theirs.shape, formula
    with pytest.raises(ShapeMismatch, match="einsum: 'ii': axis i has size 5 and size 6"):
        pcp.trace(lambda x: pcp.einsum("ii", x), X)
    with pytest.raises(ShapeMismatch, match=r"give one letter for each axis, or ... for several"):
        pcp.trace(lambda x: pcp.einsum("...ijk", x), X)


def test_gradients_pass_through_these_forms() -> None:
    import jax

    def loss(x: Any, y: Any, xp: Any) -> Any:
        made = x.at[PLACES].multiply(y[:3]).at[1].set(y[0]).at[MASK].power(2.0)
        made = made + xp.einsum("...i,...i->...", x, y)[:, None] + xp.pad(x, 1, mode="reflect")[1:-1, :-2]
        return (made * made).sum() + (x[MASK] ** 3).sum() + xp.std(x, ddof=1) + xp.var(y, 0, where=MASK).sum()

    found = pcp.plan(pcp.grad(pcp.trace(lambda x, y: loss(x, y, pcp), X, Y)), "arena:cpu").run(X, Y)
    wanted = jax.grad(lambda x, y: loss(x, y, jnp), argnums=0)(X, Y)
    np.testing.assert_allclose(
        np.asarray(found[0] if isinstance(found, tuple) else found), wanted, rtol=1e-4, atol=1e-4
    )
