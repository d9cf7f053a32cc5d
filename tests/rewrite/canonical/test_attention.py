"""Attention is a site with kernels, however it is written, with the mask that it has; and no number is another one."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import Program, kernels
from pcp.ir.composites import composite_name, known_attributes
from pcp.ir.toolkit.walking import named_operations
from pcp.rewrite.canonical import canonical
from tests.execution import exactly
from tests.replay.machine import machine
from tests.rewrite.canonical.attention_forms import FORMS, Form


def squared(form: Form) -> Program:
    """The sum of the squares of what a form gives."""
    return pcp.from_jax(lambda *x: (form.function(*x) ** 2).sum(), *form.specs)


def attributes(program: Program) -> dict[str, Any]:
    """Those of its one attention."""
    module = program.module()
    composites = named_operations(module.operation, "stablehlo.composite")
    (found,) = (known_attributes(op) for op in composites if composite_name(op) == "pcp.attention")
    return found


def arrays(form: Form) -> list[Any]:
    random = np.random.default_rng()
    drawn = [random.normal(size=each.shape) for each in form.specs]
    # The first key is seen, so that every query sees one.
    return [
        (x > 0) | (np.arange(x.shape[1]) == 0) if each.dtype == bool else x.astype(np.float32)
        for x, each in zip(drawn, form.specs, strict=True)
    ]


@pytest.mark.share(3)
@pytest.mark.parametrize("name", FORMS)
def test_attention_is_a_site_however_it_is_written(name: str) -> None:
    form = FORMS[name]
    written = squared(form)
    program = canonical(written)
    said = attributes(program)
    assert {key: said.get(key) for key, _ in form.says} == dict(form.says)
    assert {"mask", "bias"} & said.keys() == {
        key for key, value in form.says if key in ("mask", "bias") and value
    }
    again = canonical(program)
    assert canonical(again).digest == again.digest
    gradient = pcp.value_and_grad(program, wrt=(0, 1, 2))
    with machine():
        for device, expected in (("cpu", {"whole", "native"}), ("cuda", {"whole", *form.cuda.split()})):
            found = [s for s in kernels.sites_of(gradient, device) if s.family.startswith("attention")]
            assert [s.family for s in found] == ["attention", "attention_gradient"]
            for site in found:
                names = {kernel.split(".")[1].partition(":")[0] for kernel in site.kernels}
                assert names & {"whole", "native", "cudnn", "triton"} == expected
    inputs = arrays(form)
    plain = exactly(pcp.value_and_grad(written, wrt=(0, 1, 2)), *inputs)
    for given in (gradient, with_kernel(gradient)):
        value, cotangents = exactly(given, *inputs)
        np.testing.assert_allclose(value, plain[0], rtol=1e-6)
        for ours, theirs in zip(cotangents, plain[1], strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-5, atol=1e-6 * abs(theirs).max())


def with_kernel(program: Program) -> Program:
    """The program, in which attention and its gradient are computed as a kernel of StableHLO does."""
    choices = {
        site.key: kernels.kernel_named(f"{site.family}.whole")
        for site in kernels.sites_of(program, "cpu", builds=False)
        if site.family.startswith("attention")
    }
    return kernels.apply_kernels(program, choices)
