"""Kernels in CUDA: compiled wherever a compiler is, launched where a GPU is."""

import importlib.util
import shutil
from pathlib import Path

import numpy as np
import pytest

import pcp
from pcp.backends import Target
from pcp.kernels import cuda_source
from pcp.kernels.manifest import InvalidCandidate
from pcp.kernels.region_candidate import RegionCandidate, read_kernel
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.region_program import NativeNotAllowed, check_native, region_program
from pcp.planning.measuring.bench import Bench
from pcp.planning.workbench import examined

ROWS = 20000
SOURCE = f"""
extern "C" __global__ void thin(const float* a, const float* b, float* c) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= {ROWS} * 8) return;
  int r = i / 8, j = i % 8;
  c[i] = a[3 * r] * b[j] + a[3 * r + 1] * b[8 + j] + a[3 * r + 2] * b[16 + j];
}}
"""
MANIFEST = """
name = "product.thin"
effect = "lowers precision"
about = "Thin."
entry = "kernel.cu:thin"
region = "region.mlir"
tolerance = 1e-5

[launch]
grid = [625, 1, 1]
block = [256, 1, 1]
"""
can_compile = pytest.mark.skipif(
    shutil.which("nvcc") is None and cuda_source._nvrtc() is None, reason="there is neither NVRTC nor nvcc"
)


def folder(place: Path, source: str = SOURCE, manifest: str = MANIFEST) -> RegionCandidate:
    content = place / "content"
    content.mkdir()
    region = pcp.trace(lambda x, y: x @ y, pcp.spec((ROWS, 3), "f32"), pcp.spec((3, 8), "f32"))
    for name, text in (("region.mlir", region.text), ("kernel.cu", source), ("kernel.toml", manifest)):
        (content / name).write_text(text)
    found = read_kernel(content)
    assert isinstance(found, RegionCandidate)
    return found


@can_compile
def test_it_becomes_a_launch_of_ptx(tmp_path: Path) -> None:
    candidate = folder(tmp_path)
    assert (candidate.language, candidate.needs, candidate.is_native) == ("cuda", ("cuda",), True)
    with pytest.raises(
        NativeNotAllowed, match=r"is written in cuda for cuda \(kernel\.cu\): it would be compiled here"
    ):
        check_native(candidate, False)
    text = region_program(candidate, f"cuda {tmp_path}").text
    for words in (
        "stablehlo.custom_call @__gpu$xla.gpu.ptx(%arg0, %arg1)",
        "grid_x = 625 : i32",
        "block_x = 256 : i32",
        'name = "thin"',
        "output_indices = [2 : i32]",
        ".visible .entry thin(",
        ".target sm_80",
    ):
        assert words in text


@can_compile
def test_what_does_not_compile_is_said(tmp_path: Path) -> None:
    with pytest.raises(KernelNotLowered, match=r"does not build kernel\.cu: .*kernel\.cu\(.*undefined"):
        region_program(folder(tmp_path, SOURCE.replace("int r =", "q = r + 1; int r =")), f"cuda {tmp_path}")


def test_without_a_compiler_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_source, "_nvrtc", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelNotLowered, match=r"there is neither NVRTC nor nvcc; install JAX for CUDA"):
        region_program(folder(tmp_path), f"cuda {tmp_path}")


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[launch]", "[lunch]", "unknown key 'lunch'"),
        (
            "grid = [625, 1, 1]",
            "grid = [625, 1]",
            r"launch\.grid = \[625, 1\]; expected three positive integers",
        ),
        ("grid = [625, 1, 1]", "grid = [0, 1, 1]", r"launch\.grid = \[0, 1, 1\]; expected three positive"),
        ("block = [256, 1, 1]", "", r"launch\.block = None; expected three positive integers"),
        ("[launch]", "[launch]\nshared_bytes = -1", r"launch\.shared_bytes = -1; expected a number of bytes"),
        ("[launch]", "[launch]\nthreads = 1", "unknown key of \\[launch\\] 'threads'"),
        ("kernel.cu:thin", "region.mlir", "a kernel in CUDA, and no other, has a table"),
        ('region = "', 'device = "cpu"\nregion = "', "device = 'cpu'; expected one of 'cuda'"),
    ],
)
def test_what_the_manifest_says_wrongly(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MANIFEST
    with pytest.raises(InvalidCandidate, match=message):
        folder(tmp_path, manifest=MANIFEST.replace(old, new))


def _has_a_gpu() -> bool:
    if (
        importlib.util.find_spec("jax_cuda12_plugin") is None
        and importlib.util.find_spec("jax_cuda13_plugin") is None
    ):
        return False
    try:
        return Target.of("cuda:0").device.kind == "cuda"
    except pcp.PCPError:
        return False


@can_compile
@pytest.mark.skipif(not _has_a_gpu(), reason="there is no GPU here")
def test_it_runs_on_a_gpu(tmp_path: Path) -> None:
    candidate, target = folder(tmp_path), Target.of("cuda:0")
    program = region_program(candidate, f"cuda {tmp_path}")
    x = np.random.default_rng().normal(size=(ROWS, 3)).astype(np.float32)
    y = np.random.default_rng().normal(size=(3, 8)).astype(np.float32)
    [found] = pcp.plan(program, "cuda:0").run(x, y)
    np.testing.assert_allclose(np.asarray(found), x @ y, rtol=1e-4, atol=1e-5)
    with Bench() as bench:
        admission = examined(candidate, program, "product.thin@1", bench, target)
    assert admission.fault in ("", "too slow"), str(admission)
    assert admission.error is not None
    assert admission.error < 1e-5
