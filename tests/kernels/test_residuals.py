"""A gradient that takes residuals is measured with those of its forward kernel, on whatever operands."""

import numpy as np
import pytest

import pcp
from pcp import kernels
from pcp.kernels.residuals import with_residuals
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.programs import normed

GRADIENT = kernels.kernel_named("normalisation_gradient.native")


def gradient_site(norm: str = "layer_norm") -> kernels.Site:
    sites = kernels.sites_of(prepared(normed(30, 50, norm)), "cpu")
    return next(site for site in sites if site.family == "normalisation_gradient")


@pytest.mark.cpu
@pytest.mark.parametrize("norm", ["layer_norm", "rms_norm"])
def test_the_candidate_is_given_what_the_forward_kernel_hands(norm: str) -> None:
    site = gradient_site(norm)
    given = with_residuals(site, GRADIENT, "cpu")
    assert given is not None
    assert "pcp.norm@" in str(given.residuals.module())
    call = next(line for line in str(given.candidate.module()).splitlines() if "norm_gradient@" in line)
    assert call.partition("(")[2].partition(")")[0].count("%") == 5
    random = np.random.default_rng(0)
    operands = [random.normal(size=e.spec.shape).astype(np.float32) for e in site.region.arguments]
    residuals = pcp.plan(given.residuals).run(*operands)
    plain = pcp.plan(site.region).run(*operands)
    for program in (given.subject, given.candidate):
        for a, b in zip(pcp.plan(program).run(*operands, *residuals), plain, strict=True):
            np.testing.assert_allclose(a, b, rtol=2e-4, atol=2e-5)


@pytest.mark.cpu
def test_it_is_measured_and_verified_so() -> None:
    site = gradient_site()
    given = with_residuals(site, GRADIENT, "cpu")
    assert given is not None
    exact = widened(given.subject)

    def request(residuals: pcp.Program | None) -> Request:
        return Request(
            given.subject, given.candidate, GRADIENT.name, exact, timing_seconds=0.05, site=GRADIENT.claims, residuals=residuals
        )  # fmt: skip

    with Bench() as bench:
        row = bench.measure(request(given.residuals))
        assert row.failure is None, row.detail
        assert row.seconds
        assert row.error is not None
        assert row.error < 1e-5
        # With any other means and deviations it is wrong: it was measured with those, and uses them.
        assert bench.measure(request(None)).failure is not None


def test_others_are_measured_alone() -> None:
    site = gradient_site()
    assert with_residuals(site, kernels.kernel_named("normalisation_gradient.fused"), "cpu") is None
    with kernels.features.masked("library:normalisation"):
        assert with_residuals(site, GRADIENT, "cpu") is None
    forward = kernels.sites_of(
        prepared(pcp.trace(pcp.nn.layer_norm, *[e.spec for e in site.region.arguments][:3])), "cpu"
    )
    assert all(each.pair is None for each in forward)
