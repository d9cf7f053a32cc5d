"""Every problem of every family computes what NumPy does, and PCP's own kernels find their sites in it."""

import math

import numpy as np
import pytest

from pcp.kernels import FAMILIES
from pcp.kernels.problems import DEFINITIONS, UnknownProblem, problem, problems_of
from pcp.planning import plan
from pcp.planning.verification.family_bench import sites_in

RNG = np.random.default_rng(0)


def normals(*shape: int) -> np.ndarray:
    return RNG.standard_normal(shape).astype(np.float32)


@pytest.mark.parametrize("family", list(DEFINITIONS))
def test_a_site_of_the_family_is_found_in_each_of_its_forms(family: str) -> None:
    for form in DEFINITIONS[family].forms:
        [site] = sites_in(problem(family, form), FAMILIES[family], "cpu")
        assert site.kernels
    sizes = [each.sizes for each in problems_of(family)]
    assert any(size == 1 for each in sizes for _, size in each)
    assert any(size % 2 for each in sizes for _, size in each if size > 1)


def test_references_against_numpy() -> None:
    x, y = normals(5, 3), normals(5, 4)
    product = problem("product", "left_transposed", sizes={"b": 1, "m": 3, "k": 5, "n": 4})
    np.testing.assert_allclose(plan(product.reference()).run(x, y), x.T @ y, rtol=1e-5)
    q, k, v = normals(1, 3, 2, 4), normals(1, 5, 2, 4), normals(1, 5, 2, 4)
    sizes = {"batch": 1, "queries": 3, "keys": 5, "heads": 2, "width": 4}
    scores = np.einsum("bqhd,bkhd->bhqk", q, k) / 2
    scores[..., ~np.tri(3, 5, 2, dtype=bool)] = -math.inf
    weights = np.exp(scores) / np.exp(scores).sum(-1, keepdims=True)
    attention = plan(problem("attention", "causal", sizes=sizes).reference()).run(q, k, v)
    np.testing.assert_allclose(attention, np.einsum("bhqk,bkhd->bqhd", weights, v), rtol=1e-4, atol=1e-6)
    indices = np.array([0, 2, 2], np.int32)
    added = problem("embedding_gradient", sizes={"count": 3, "rows": 4, "width": 3})
    summed = np.zeros((4, 3), np.float32)
    np.add.at(summed, indices, x[:3])
    np.testing.assert_allclose(plan(added.reference()).run(indices, x[:3]), summed, rtol=1e-6)


def test_unknown_problems_are_refused() -> None:
    with pytest.raises(UnknownProblem, match="there is no family 'sorting'; choose one of product, softmax"):
        problem("sorting")
    with pytest.raises(
        UnknownProblem, match="family 'softmax' does not have the form 'middle'; it has last_axis, first_axis"
    ):
        problems_of("softmax", ["middle"])
    with pytest.raises(UnknownProblem, match="expected a positive integer for each of rows, columns"):
        problem("softmax", sizes={"rows": 3})
