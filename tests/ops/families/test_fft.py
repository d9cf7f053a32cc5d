"""`pcp.fft` beside NumPy, and its gradients beside JAX."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import pcp
from pcp.tensor import ShapeMismatch, WrongArgument

RNG = np.random.default_rng(4)
X = RNG.normal(size=(3, 4, 6))
Z = X + 1j * RNG.normal(size=X.shape)
BIG = RNG.normal(size=(2, 3, 2, 3, 4))

FORMS: list[tuple[str, tuple[Any, ...], dict[str, Any]]] = [
    *[(name, (Z,), named) for name in ("fft", "ifft", "irfft", "hfft") for named in (
        {}, {"axis": 0}, {"n": 4}, {"n": 9, "axis": 1}, {"norm": "ortho"}, {"norm": "forward", "axis": -2},
    )],
    *[(name, (X,), named) for name in ("rfft", "ihfft", "fft") for named in (
        {}, {"axis": 0}, {"n": 5}, {"n": 9, "axis": 1}, {"norm": "ortho"}, {"norm": "forward"},
    )],
    *[(name, (Z,), named) for name in ("fftn", "ifftn", "irfftn", "fft2", "ifft2", "irfft2") for named in (
        {}, {"axes": (0, 2)}, {"s": (3, 5), "axes": (2, 0)}, {"norm": "ortho"},
    )],
    *[(name, (X,), named) for name in ("rfftn", "rfft2") for named in ({}, {"axes": (2, 0)}, {"s": (3, 5), "axes": (1, 2)})],
    ("fftn", (BIG,), {}), ("ifftn", (BIG + 1j,), {}), ("rfftn", (BIG,), {}),
    ("irfftn", (BIG + 0j,), {"s": (2, 3, 2, 3, 5), "axes": range(5)}),
    ("fftshift", (X,), {}), ("fftshift", (X,), {"axes": 1}), ("ifftshift", (X,), {}), ("ifftshift", (BIG,), {"axes": (1, 4)}),
    ("fftfreq", (7,), {"d": 0.5}), ("rfftfreq", (8,), {}), ("fftfreq", (6,), {}),
]  # fmt: skip


def test_values_are_those_of_numpy() -> None:
    def everything(x: Any, z: Any, big: Any) -> list[Any]:
        known = {id(X): x, id(Z): z, id(BIG): big}
        return [
            getattr(pcp.fft, name)(known.get(id(a[0]), a[0]), *a[1:], **named) for name, a, named in FORMS
        ]

    found = pcp.plan(pcp.trace(everything, X, Z, BIG), "cpu:0", cache=False).run(X, Z, BIG)
    for (name, given, named), mine in zip(FORMS, found, strict=True):
        theirs = getattr(np.fft, name)(*given, **named)
        assert np.shape(mine) == theirs.shape, (name, named)
        rtol = 1e-6 if name.endswith("freq") else 1e-10
        np.testing.assert_allclose(np.asarray(mine), theirs, rtol=rtol, atol=1e-10, err_msg=f"{name} {named}")


def test_gradients_are_those_of_jax() -> None:
    def loss(xp: Any, x: Any, y: Any) -> Any:
        z = x + 1j * y
        made = [
            xp.fft.fft(z, 9, axis=1), xp.fft.rfft(x, 5), xp.fft.irfft(z), xp.fft.ifft2(z), xp.fft.rfftn(x),
            xp.fft.fftn(x, norm="ortho"),
            xp.fft.irfft2(z, norm="forward"), xp.fft.hfft(z), xp.fft.ihfft(y), xp.fft.fftshift(z, 1) * z,
        ]  # fmt: skip
        return sum(xp.sum(xp.abs(part) ** 2 * xp.sin(xp.real(part))) for part in made)

    y = Z.imag.copy()
    mine = pcp.plan(
        pcp.grad(pcp.trace(lambda x, y: loss(pcp, x, y), X, y), wrt=(0, 1)), "cpu:0", cache=False
    ).run(X, y)
    with jax.enable_x64(True):
        theirs = jax.jit(jax.grad(lambda x, y: loss(jnp, x, y), argnums=(0, 1)))(X, y)
    for a, b in zip(mine, theirs, strict=True):
        np.testing.assert_allclose(np.asarray(a), b, rtol=1e-9, atol=1e-9)


def test_types_are_those_of_jax() -> None:
    x = X.astype(np.float32)
    assert [
        pcp.fft.fft(x).dtype,
        pcp.fft.irfft(x.astype(np.complex64)).dtype,
        pcp.fft.rfft(np.arange(4)).dtype,
    ] == ["c64", "f32", "c64"]
    np.testing.assert_allclose(pcp.fft.ifft(pcp.fft.fft(x)), x, atol=1e-5)


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (
            lambda: pcp.fft.rfft(Z),
            WrongArgument,
            "rfft: complex numbers were given; expected real ones: use pcp.fft.fft",
        ),
        (
            lambda: pcp.fft.fft(X, norm="both"),
            WrongArgument,
            "fft: norm = 'both' was given; expected None or one of backward",
        ),
        (lambda: pcp.fft.fft(X, axis=3), ShapeMismatch, "fft: axis 3 was given for a tensor of rank 3"),
        (
            lambda: pcp.fft.fftn(X, s=(2, 2), axes=(0,)),
            ShapeMismatch,
            "fftn: 2 lengths were given for 1 axes; expected as many",
        ),
        (lambda: pcp.fft.fft2(X, axes=(1, 1)), ShapeMismatch, r"fft2: axes \(1, 1\) name one axis twice"),
        (lambda: pcp.fft.fft(X, n=0), ShapeMismatch, r"fft: lengths \(0,\) were given; expected at least 1"),
    ],
)
def test_what_does_not_fit_is_explained(
    call: Callable[[], Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        call()
