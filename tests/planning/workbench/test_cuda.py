"""Kernels in CUDA: compiled wherever a compiler is; `test_on_a_gpu.py` launches them."""

import shutil
from pathlib import Path

import pytest
from tests.planning.workbench import gpu_candidates
from tests.planning.workbench.gpu_candidates import MANIFEST, THIN_IN_CUDA, digest_of

from pcp.kernels import cuda_source
from pcp.kernels.candidate import Candidate
from pcp.kernels.manifest import InvalidCandidate
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.native_program import NativeNotAllowed, check_native

can_compile = pytest.mark.skipif(
    shutil.which("nvcc") is None and cuda_source._nvrtc() is None, reason="there is neither NVRTC nor nvcc"
)


def folder(place: Path, source: str = THIN_IN_CUDA, manifest: str = MANIFEST) -> Candidate:
    return gpu_candidates.folder(place, "kernel.cu", source, manifest)


@can_compile
def test_it_becomes_a_launch_of_ptx(tmp_path: Path) -> None:
    candidate = folder(tmp_path)
    assert (candidate.language, candidate.needs, candidate.is_native) == ("cuda", ("cuda", "sm_80"), True)
    with pytest.raises(
        NativeNotAllowed, match=r"is written in cuda for cuda \(kernel\.cu\): it would be compiled here"
    ):
        check_native(candidate, False)
    text = lowered(candidate, digest_of(tmp_path)).text
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
        lowered(folder(tmp_path, THIN_IN_CUDA.replace("int r =", "q = r + 1; int r =")), digest_of(tmp_path))


def test_without_a_compiler_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(cuda_source, "_nvrtc", lambda: None)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(KernelNotLowered, match=r"there is neither NVRTC nor nvcc; install JAX for CUDA"):
        lowered(folder(tmp_path), digest_of(tmp_path))


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
