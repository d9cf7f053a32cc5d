"""The benchmark of single kernels: both sides compute the same, beside a float32 form that is right."""

import dataclasses

import numpy as np
import pytest
from benchmarks.gpu import kernels_jax, kernels_pcp, kernels_torch
from benchmarks.gpu.kernel_cases import Case, cases, error_of

CASES = [case for case in cases(dry=True) if case.name != "attention 2 x 32 x 2 x 16"]


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.operation)
def test_both_sides_compute_the_same(case: Case, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kernels_torch.torch, "compile", lambda function: function)
    call, right = kernels_pcp.made(case, "cpu:0", plain=True)
    call(2)
    (how,) = kernels_torch.variants(case, "cpu:0")[:1]
    found = kernels_torch.contestant("cpu:0")[1]((case, how))
    assert {place: each.shape for place, each in found.items()} == {
        p: each.shape for p, each in right.items()
    }
    assert error_of(found, right) < 6e-3
    for how in kernels_jax.variants(case, "cpu:0"):
        assert error_of(kernels_jax.contestant("cpu:0")[1]((case, how)), right) < 6e-3
    worse = {place: each * 1.5 for place, each in found.items()}
    assert error_of(worse, right) > 0.4


def test_work_is_counted_within_the_lengths() -> None:
    case = next(case for case in cases(dry=False) if case.operation == "attention_padded")
    *_, cotangent, lengths = dataclasses.replace(case, shape=(4, 64, 1, 8)).operands()
    assert lengths[0] == 64
    assert lengths.min() >= 16
    for each, end in zip(cotangent, lengths, strict=True):
        assert each[:end].all()
        assert not each[end:].any()
    assert 0.25 < case.flops / (14 * 16 * 16 * 1024**2 * 128) < 0.8


def test_what_a_case_needs_at_least() -> None:
    (first, *_, last) = [case for case in cases(dry=False) if case.operation == "attention"]
    assert (first.shape, last.shape) == ((16, 1024, 16, 128), (1, 16384, 16, 128))
    # FlashAttention counts 4 T^2 width heads, halved by the mask, and two and a half times that backward.
    assert last.flops == 3.5 * 4 * 16384**2 * 128 * 16 / 2
    assert first.is_judged
    assert not last.is_judged
    assert np.array_equal(*(dataclasses.replace(CASES[0]).operands()[0] for _ in range(2)))
