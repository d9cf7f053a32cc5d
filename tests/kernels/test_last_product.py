"""The last product of a language model and its cross entropy as one site, by a pattern and a kernel of one's own."""

from collections.abc import Iterator

import numpy as np
import pytest

import pcp
from pcp.ir.bindings import ir
from pcp.kernels import FAMILIES, Family, Kernel, apply_kernels, register_family, register_kernel, sites_of
from pcp.kernels.artifact import StableHLO
from pcp.kernels.groups import parts_of
from pcp.kernels.named import is_named
from pcp.models import decoder
from pcp.models.published import gpt2_config
from pcp.ops.movement import slice_
from pcp.ops.movement.joining import concatenate
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.terms import Pattern, apply, product, value
from pcp.tensor import Tensor

LAST = Pattern(
    "tests.last_product",
    {"loss": (apply("pcp.cross_entropy", product(value("x"), value("weights")), value("targets")),)},
)


def _by_halves(op: ir.Operation) -> list[Tensor]:
    """Half of the examples at a time, so that only half of the logits are there at once."""
    (part,) = parts_of(op)
    x, weights, targets = (part.inputs[name] for name in ("x", "weights", "targets"))
    half = x.shape[0] // 2
    parts = [
        pcp.log_softmax(slice_(x, (i, 0, 0), (i + half, *x.shape[1:])) @ weights.T, -1) for i in (0, half)
    ]
    picked = [
        pcp.take_along_axis(
            logs, slice_(targets, (i, 0), (i + half, targets.shape[1])).reshape((half, -1, 1)), 2
        )
        for i, logs in zip((0, half), parts, strict=True)
    ]
    return [-concatenate(picked, 0).reshape(targets.shape)]


@pytest.fixture
def halves() -> Iterator[Kernel]:
    register_family(Family("last_product", "for tests", is_named(LAST.name), pattern=LAST))
    yield register_kernel(Kernel("last_product.halves", "for tests", lambda _: True, StableHLO(_by_halves)))
    del FAMILIES["last_product"]


def test_the_loss_of_gpt2_has_the_site_and_a_kernel_takes_it(halves: Kernel) -> None:
    config = gpt2_config(1, 2, 16, 8, 50)
    params = decoder.initial_parameters(config, 3)
    tokens = pcp.spec((4, 8), "i32")
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), pcp.specs_of(params), tokens, tokens)
    program = prepared(loss)
    (site,) = [each for each in sites_of(program, "cpu") if each.family == "last_product"]
    changed = apply_kernels(program, {site.key: halves})
    assert "tensor<4x8x50xf32>" in program.text
    main = changed.text.partition("func.func private")[0]
    assert "tensor<2x8x50xf32>" in main
    assert "tensor<4x8x50xf32>" not in main
    rng = np.random.default_rng(9)
    given = [rng.integers(0, 50, (4, 8)).astype(np.int32) for _ in range(2)]
    found, expected = (float(pcp.plan(each).run(params, *given)) for each in (changed, program))
    assert abs(found - expected) < 1e-6 * abs(expected)
