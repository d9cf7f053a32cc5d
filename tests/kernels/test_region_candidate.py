"""The manifest of a kernel for one region."""

from pathlib import Path

import pytest

import pcp
from pcp.kernels.candidate import read_candidate
from pcp.kernels.manifest import InvalidCandidate

MANIFEST = """
name = "softmax.mine"
effect = "lowers precision"
about = "Mine."
entry = "kernel.py:kernel"
region = "region.mlir"
tolerance = 1e-3
"""
EXAMPLE = Path(__file__).parent.parent.parent / "examples" / "kernels" / "softmax_bf16"


def folder(place: Path, manifest: str) -> Path:
    region = pcp.trace(lambda x: pcp.softmax(x, 1), pcp.spec((4, 8), "f32"))
    (place / "region.mlir").write_text(region.text)
    (place / "kernel.toml").write_text(manifest)
    for name in ("kernel.py", "kernel.cc", "kernel.mlir", "kernel.txt"):
        (place / name).write_text("raise SystemExit  # nobody executes this")
    return place


def test_what_it_says(tmp_path: Path) -> None:
    found = read_candidate(folder(tmp_path, MANIFEST))
    assert (found.family, found.language, found.file, found.function) == (
        "softmax",
        "jax",
        "kernel.py",
        "kernel",
    )
    assert (found.claimed(found.problems[0]), found.version, found.nonfinite) == (1e-3, 1, "nan")
    assert not found.is_native
    assert found.region is not None
    assert [str(entry.spec) for entry in found.region.arguments] == ["f32[4,8]"]
    native = read_candidate(folder(tmp_path, MANIFEST.replace("kernel.py:", "kernel.cc:")))
    assert (native.language, native.is_native, native.needs) == ("cpp", True, ("cpu",))
    pallas = MANIFEST.replace("tolerance = 1e-3", 'language = "pallas"')
    for device, needs_consent in (("cpu", False), ("cuda", True)):
        found = read_candidate(folder(tmp_path, pallas + f'device = "{device}"'))
        assert (found.is_native, found.needs) == (needs_consent, (device,))


def test_without_a_region_it_is_one_of_a_family() -> None:
    assert read_candidate(EXAMPLE).region is None


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("softmax.mine", "sorting.mine", "does not begin with a known family"),
        ("softmax.mine", "softmax.reciprocal", "is the name of one of PCP's own kernels"),
        (
            "kernel.py:kernel",
            "kernel.txt",
            r"expected 'FILE\.py:FUNCTION', 'FILE\.cc:HANDLER', 'FILE\.cu:KERNEL' or",
        ),
        ("kernel.py:kernel", "kernel.cc:Kernel", r"expected 'FILE\.py:FUNCTION', 'FILE\.cc:HANDLER'"),
        ("kernel.py:kernel", "../kernel.mlir", "lies outside of the folder"),
        ("kernel.py:kernel", "other.py:kernel", r"there is no file other\.py in the folder"),
        ('"region.mlir"', '"../region.mlir"', "lies outside of the folder"),
        ('"region.mlir"', '"kernel.mlir"', r"region = 'kernel\.mlir' is no program: "),
        ('"region.mlir"', "7", "region = 7; expected a text"),
        ("1e-3", "2", "tolerance = 2; expected a number between 0 and 1"),
        ("tolerance = 1e-3", 'language = "cpp"', "language = 'cpp'; expected one of 'jax', 'pallas'"),
        ("tolerance = 1e-3", 'device = "tpu"', "device = 'tpu'; expected one of 'cpu', 'cuda'"),
        ("tolerance = 1e-3", 'nonfinite = "maybe"', "nonfinite = 'maybe'; expected one of 'exact'"),
        ("tolerance = 1e-3", "version = 0", "version = 0; expected a positive integer"),
        ("tolerance = 1e-3", 'gradient = "derived"', "unknown key 'gradient'; there are name, effect"),
        ("lowers precision", "is fast", "effect = 'is fast'; expected one of"),
    ],
)
def test_what_is_not_understood_is_said(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in MANIFEST
    with pytest.raises(InvalidCandidate, match=message) as refusal:
        read_candidate(folder(tmp_path, MANIFEST.replace(old, new)))
    assert str(refusal.value).startswith(f"{tmp_path / 'kernel.toml'}: ")
