"""Kernels in CUDA and in Triton, launched: right, and timed beside the region itself."""

import importlib.util
import shutil
from collections.abc import Sequence
from pathlib import Path

import jax.numpy as jnp
import numpy as np
import pytest
from tests.planning.workbench.gpu_candidates import (
    MANIFEST,
    PRODUCT_IN_TRITON,
    ROWS,
    THIN_IN_CUDA,
    THIN_IN_TRITON,
    TRITON_MANIFEST,
    WITH_DESCRIPTORS,
    digest_of,
    folder,
)

import pcp
from pcp.backends import Target
from pcp.kernels import cuda_source
from pcp.kernels.candidate import Candidate
from pcp.kernels.features import lacking
from pcp.planning.added.lowering import lowered
from pcp.planning.measuring.bench import Bench
from pcp.planning.measuring.measurement import Failure
from pcp.planning.verification import Verdict, verify


def _has_a_gpu() -> bool:
    if all(importlib.util.find_spec(f"jax_cuda{version}_plugin") is None for version in (12, 13)):
        return False
    try:
        return Target.of("cuda:0").device.kind == "cuda"
    except pcp.PCPError:
        return False


pytestmark = pytest.mark.skipif(not _has_a_gpu(), reason="there is no GPU here")
needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not here")


def launched(candidate: Candidate, digest: str, arguments: Sequence[object]) -> tuple[np.ndarray, Verdict]:
    """What a kernel returns, and what came of measuring it, which is printed: `make test-gpu TEST_FLAGS=-s` shows it."""
    missing = lacking(candidate.needs, "cuda")
    if missing:
        pytest.skip(missing)
    target = Target.of("cuda:0")
    program = lowered(candidate, digest)
    [found] = pcp.plan(program, "cuda:0").run(*arguments)
    with Bench() as bench:
        verdict = verify(candidate, bench, target, program=program)
    print(f"\n{verdict}")
    assert {each.fault for each in verdict.findings} <= {Failure.too_slow}, str(verdict)
    return np.asarray(found), verdict


@pytest.mark.parametrize(
    ("file", "source", "manifest"),
    [
        pytest.param(
            "kernel.cu",
            THIN_IN_CUDA,
            MANIFEST,
            id="cuda",
            marks=pytest.mark.skipif(
                shutil.which("nvcc") is None and cuda_source._nvrtc() is None,
                reason="there is neither NVRTC nor nvcc",
            ),
        ),
        pytest.param("kernel.py", THIN_IN_TRITON, TRITON_MANIFEST, id="triton", marks=needs_triton),
    ],
)
def test_a_thin_product_is_right_and_timed(tmp_path: Path, file: str, source: str, manifest: str) -> None:
    random = np.random.default_rng()
    x, y = (random.normal(size=shape).astype(np.float32) for shape in ((ROWS, 3), (3, 8)))
    found, verdict = launched(folder(tmp_path, file, source, manifest), digest_of(tmp_path), (x, y))
    np.testing.assert_allclose(found, x @ y, rtol=1e-4, atol=1e-5)
    assert verdict.error is not None
    assert verdict.error < 1e-5
    assert verdict.ratio is not None


@needs_triton
@pytest.mark.parametrize(
    ("source", "capability"),
    [(PRODUCT_IN_TRITON, 80), (PRODUCT_IN_TRITON, 90), (WITH_DESCRIPTORS, 90)],
    ids=["80", "90", "descriptors"],
)
def test_a_product_in_tensor_cores_with_memory_that_threads_share(
    tmp_path: Path, source: str, capability: int
) -> None:
    """More shared memory than a launch has without asking, and, with descriptors, memory of Triton's own."""
    given = pcp.spec((1024, 1024), "bf16")
    region = pcp.trace(lambda x, y: pcp.dot_general(x, y, ([1], [0]), dtype="f32"), given, given)
    manifest = TRITON_MANIFEST.replace("capability = 80", f"capability = {capability}")
    candidate = folder(tmp_path, "kernel.py", source, manifest, region)
    random = np.random.default_rng()
    x, y = (jnp.asarray(random.normal(size=(1024, 1024)), jnp.bfloat16) for _ in range(2))
    found, _ = launched(candidate, digest_of(tmp_path), (x, y))
    exact = np.asarray(x, np.float64) @ np.asarray(y, np.float64)
    np.testing.assert_allclose(found, exact, rtol=1e-4, atol=1e-3)
