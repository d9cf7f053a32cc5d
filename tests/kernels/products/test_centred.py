"""Products of what is left when means are taken off: beside float64 on tokens that are nearly alike, in the orders of steps."""

from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.kernels import apply_kernels, kernel_named, replaced, sites_of

CENTRED, ROUNDED = "product.xla:bf16_centred", "product.xla:bf16"
FORWARD, TO_X, TO_KERNEL = "btk,kn->btn", "btn,kn->btk", "btk,btn->kn"
ORDERS = {
    FORWARD: ((3, 24, 32), (32, 40)),
    TO_X: ((3, 24, 40), (32, 40)),
    TO_KERNEL: ((3, 24, 32), (3, 24, 40)),
    "rk,kn->rn": ((72, 32), (32, 40)),
    "rk,rn->kn": ((72, 32), (72, 40)),
    "bthd,hdn->btn": ((3, 24, 4, 8), (4, 8, 40)),
    "bhtd,btn->hdn": ((3, 4, 24, 8), (3, 24, 40)),
}


def _drawn(order: str, apart: float) -> list[Any]:
    """Operands of which rows differ from one another in a sequence by a part of their size."""
    rng, drawn = np.random.default_rng(5), []
    for axes, shape in zip(order.partition("->")[0].split(","), ORDERS[order], strict=True):
        x = rng.normal(size=shape)
        if set(axes) & {"t", "r"}:
            alike = [1 if axis in "tr" else size for axis, size in zip(axes, shape, strict=True)]
            x = rng.normal(size=alike) + apart * x
        drawn.append(x.astype(np.float32))
    return drawn


def _error(found: Any, right: Any, order: str, *, of_differences: bool) -> float:
    """Of a result, or of how its rows differ, relative to that."""
    found, axes = np.asarray(found, np.float64), order.partition("->")[2]
    if of_differences:
        rows = max(axes.find("t"), axes.find("r"))
        found, right = (x - x.mean(rows, keepdims=True) for x in (found, right))
    return float(np.linalg.norm(found - right) / np.linalg.norm(right))


def test_rows_that_are_nearly_alike_keep_what_tells_them_apart() -> None:
    orders = [order for order in ORDERS if set("tr") & set(order.partition("->")[2])]
    traced = [pcp.trace(lambda a, b, o=o: pcp.einsum(o, a, b), *map(_spec, ORDERS[o])) for o in orders]
    for apart, least in ((1.0, 0.0), (0.01, 0.1)):
        for order, program in zip(orders, traced, strict=True):
            (site,), operands = sites_of(program, "cpu"), _drawn(order, apart)
            right = np.einsum(order, *(x.astype(np.float64) for x in operands))
            errors = {}
            for name in (CENTRED, ROUNDED):
                y = run(replaced(site.region, kernel_named(name)), *operands)[0]
                errors[name] = _error(y, right, order, of_differences=True)
            assert errors[CENTRED] <= 4e-3, (order, apart)
            assert errors[ROUNDED] >= least, (order, apart)


def test_sums_over_rows_whose_cotangents_cancel() -> None:
    """As of a weight of keys: cotangents add up to zero over the tokens, and only what tells these apart counts."""
    for order in ORDERS.keys() - {o for o in ORDERS if set("tr") & set(o.partition("->")[2])}:
        x, g = _drawn(order, 0.01)
        axes = order.partition("->")[0].split(",")[1]
        g = g - g.astype(np.float64).mean(max(axes.find("t"), axes.find("r")), keepdims=True)
        g = g.astype(np.float32)
        right = np.einsum(order, x.astype(np.float64), g.astype(np.float64))
        program = pcp.trace(lambda a, b, o=order: pcp.einsum(o, a, b), *map(_spec, ORDERS[order]))
        (site,) = sites_of(program, "cpu")
        errors = [
            _error(
                run(replaced(site.region, kernel_named(name)), x, g)[0], right, order, of_differences=False
            )
            for name in (CENTRED, ROUNDED)
        ]
        assert errors[0] <= 5e-3, order
        assert errors[1] >= 0.05, order


def _spec(shape: tuple[int, ...]) -> Any:
    return pcp.spec(shape, "f32")


def test_sequences_that_a_reshape_joined_have_a_mean_each() -> None:
    """As a linear layer of PyTorch is imported: rows of all sequences behind one another."""

    def step(x: Any, w: Any, g: Any) -> Any:
        rows, behind = pcp.reshape(pcp.tanh(x), (72, 32)), pcp.reshape(pcp.tanh(g), (72, 40))
        return pcp.reshape(rows @ w, (3, 24, 40)), pcp.einsum("rk,rn->kn", rows, behind)

    shapes = (3, 24, 32), (32, 40), (3, 24, 40)
    program = pcp.trace(step, *map(_spec, shapes))
    changed = apply_kernels(program, {site.key: kernel_named(CENTRED) for site in sites_of(program, "cpu")})
    means = [line for line in changed.text.splitlines() if "dot_general" in line and "bf16" not in line]
    assert [("3x1x32" in line, "-> tensor<32x40xf32>" in line) for line in means] == [
        (True, False),
        (True, True),
    ]
    rng = np.random.default_rng(7)
    x, g = (rng.normal(size=(3, 1, s)) + 0.01 * rng.normal(size=(3, 24, s)) for s in (32, 40))
    w = rng.normal(size=(32, 40))
    y, of_w = run(changed, *(each.astype(np.float32) for each in (x, w, g)))
    x, g = np.tanh(x.astype(np.float32).astype(float)), np.tanh(g.astype(np.float32).astype(float))
    assert _error(y, x @ w.astype(np.float32).astype(float), FORWARD, of_differences=True) < 4e-3
    assert _error(of_w, np.einsum("btk,btn->kn", x, g), TO_KERNEL, of_differences=False) < 1e-5


@pytest.mark.parametrize(
    ("order", "shapes", "side"),
    [
        ("rk,khd->rhd", ((48, 32), (32, 4, 60)), 0),  # a weight that has more axes, and more of them
        ("kn,rk->nr", ((32, 60), (48, 32)), 1),
        ("kn,rk->nr", ((32, 40), (48, 32)), None),  # both unknown: the one with more rows
    ],
)
def test_means_are_of_rows_and_not_of_weights(order: str, shapes: Any, side: int | None) -> None:
    program = pcp.trace(
        lambda a, b: pcp.einsum(order, *(pcp.tanh(x) if i == side else x for i, x in enumerate((a, b)))),
        *map(_spec, shapes),
    )
    (site,) = sites_of(program, "cpu")
    text = apply_kernels(program, {site.key: kernel_named(CENTRED)}).text
    (sums,) = [line for line in text.splitlines() if "stablehlo.reduce" in line]
    assert "1x48x32xf32" in sums


@pytest.mark.parametrize("number", [np.nan, np.inf, -np.inf])
def test_what_is_not_finite_stays_in_its_row_and_is_lost_nowhere(number: float) -> None:
    for order in (FORWARD, TO_KERNEL):
        operands = _drawn(order, 1.0)
        operands[0][1, 3, 5] = number
        found, right = _both(order, operands)
        np.testing.assert_array_equal(np.isfinite(found), np.isfinite(right))
        assert (np.isnan(found) | (found == right))[~np.isfinite(right)].all()


def test_rows_whose_sum_is_no_number_have_a_mean() -> None:
    for order in (FORWARD, TO_KERNEL):
        operands = _drawn(order, 1.0)
        operands[0][1, :, 7] = 1e38
        operands[1] *= np.float32(1e-3)
        found, right = _both(order, operands)
        assert np.isfinite(found).all()
        assert np.linalg.norm(found / 1e30 - right / 1e30) <= 1e-2 * np.linalg.norm(right / 1e30)


def _both(order: str, operands: list[Any]) -> tuple[Any, Any]:
    """The product by the kernel, and in float64."""
    program = pcp.trace(lambda a, b: pcp.einsum(order, a, b), *map(_spec, ORDERS[order]))
    (site,) = sites_of(program, "cpu")
    found = run(replaced(site.region, kernel_named(CENTRED)), *operands)[0]
    with np.errstate(all="ignore"):
        return found, np.einsum(order, *(x.astype(np.float64) for x in operands))


@pytest.mark.parametrize(
    ("order", "shapes"),
    [
        ("bqd,bkd->bqk", ((2, 24, 8), (2, 24, 8))),  # a batch: of scores
        ("rk,kn->rn", ((7, 32), (32, 7))),  # too few rows for a mean
        ("rk,kn->rn", ((0, 32), (32, 40))),
    ],
)
def test_other_products_are_left_alone(order: str, shapes: Any) -> None:
    program = pcp.trace(lambda a, b: pcp.einsum(order, a, b), *map(_spec, shapes))
    assert not any(CENTRED in site.kernels for site in sites_of(program, "cpu"))
