"""Native kernels are measured and verified in the child that measures everything."""

from collections.abc import Callable, Iterator

import pytest

import pcp
from pcp import kernels, nn
from pcp.ir import Program
from pcp.planning.judging.oracle import widened
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.request import Request
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.programs import normed
from tests.kernels.native.test_optimizers import step_of


@pytest.fixture(scope="module")
def bench() -> Iterator[Bench]:
    with Bench() as made:
        yield made


def gelu() -> Program:
    """With its bias, as a gate, and its gradient."""
    specs = [pcp.spec(shape, "f32") for shape in ((5, 7, 50), (50,), (5, 7, 50))]
    return pcp.value_and_grad(pcp.trace(lambda x, b, g: (nn.gelu(x + b) * g).sum(), *specs), wrt=(0, 1))


PROGRAMS: dict[str, tuple[Callable[[], Program], int]] = {
    "layer norm": (lambda: normed(64, 160), 2),
    "RMS norm": (lambda: normed(64, 160, "rms_norm"), 2),
    "GELU": (gelu, 3),
    "AdamW": (step_of, 1),
}
"""Programs, and how many sites each has with a kernel that reassociates at most."""


@pytest.mark.parametrize("name", PROGRAMS)
def test_they_are_measured_and_verified_in_the_child(name: str, bench: Bench) -> None:
    made, count = PROGRAMS[name]
    native = [(site, f"{site.family}.native") for site in kernels.sites_of(prepared(made()), "cpu")]
    native = [(site, name) for site, name in native if name in site.kernels and "product" not in name]
    assert len(native) == count
    for site, name in native:
        kernel = kernels.kernel_named(name)
        candidate, exact = kernels.replaced(site.region, kernel), widened(site.region)
        row = bench.measure(
            Request(site.region, candidate, name, exact, timing_seconds=0.05, site=kernel.claims)
        )
        assert row.failure is None, row.detail
        assert row.seconds
        assert row.error is not None
        assert row.error < 1e-5
