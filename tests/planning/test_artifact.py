"""Programs compiled ahead: for chips that are not here, and in files that run without a compiler."""

import contextlib
import io
import json
import re
import sys
import warnings
import zipfile
from pathlib import Path
from random import Random

import numpy as np
import pytest

import pcp
from pcp.backends import CompilationFailed, InvalidTarget, UnknownDevice
from pcp.cli import main
from pcp.ir.program_file import NotAProgram
from pcp.planning.artifact import CompiledArtifact, InvalidArtifact, compile_ahead

RNG = np.random.default_rng()


def layer(x: pcp.Tensor, w: pcp.Tensor) -> pcp.Tensor:
    centered = x - x.mean(axis=-1, keepdims=True)
    return pcp.softmax((centered * 2.0) @ w)


LAYER = pcp.trace(layer, pcp.spec((8, 16), "f32"), pcp.spec((16, 12), "f32"))
NEGATED = pcp.trace(lambda x: (-(x * x)).sum(axis=1), pcp.spec((64, 32), "f32"))


@pytest.fixture
def compiler() -> None:
    pytest.importorskip("iree.compiler")


@pytest.mark.usefixtures("compiler")
def test_a_file_runs_without_the_compiler(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("iree.runtime")
    LAYER.save(tmp_path / "layer.pcp")
    program, file = str(tmp_path / "layer.pcp"), str(tmp_path / "layer.vmfb")
    assert main(["compile", program, "--target", "llvm-cpu:generic", "--out", file]) == 0
    assert f"wrote {file}" in capsys.readouterr().out
    monkeypatch.setitem(sys.modules, "iree.compiler.tools", None)
    x, w = RNG.standard_normal((8, 16), np.float32), RNG.standard_normal((16, 12), np.float32)
    artifact = CompiledArtifact.load(file)
    assert artifact.program.digest == LAYER.digest
    expected = np.asarray(pcp.plan(LAYER).run(x, w))
    np.testing.assert_allclose(np.asarray(artifact.on().call(x, w)), expected, atol=1e-6)
    np.savez(tmp_path / "x.npz", x=x, w=w)
    outputs = str(tmp_path / "y.npz")
    assert main(["run", file, "--inputs", str(tmp_path / "x.npz"), "--out", outputs]) == 0
    np.testing.assert_allclose(np.load(outputs)["0"], expected, atol=1e-6)
    assert main(["run", file, "--inputs", str(tmp_path / "x.npz"), "--check"]) == 2
    assert "is compiled already, so --check and --taps cannot look inside" in capsys.readouterr().err
    with pytest.raises(
        InvalidArtifact, match=r"was compiled for llvm-cpu:generic, and the device is cpu:0 by xla"
    ):
        artifact.on("cpu:0")
    with pytest.raises(CompilationFailed, match=r"IREE's compiler is not installed .*: pip install"):
        compile_ahead(LAYER, "llvm-cpu:generic")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize(
    ("chip", "holds"),
    [
        ("cuda:sm_80", b".target sm_80"),
        ("cuda:sm_89", b".target sm_89"),
        ("rocm:gfx90a", b"amdhsa-unknown-gfx90a"),
        ("rocm:gfx942", b"amdhsa-unknown-gfx942"),
        ("rocm:gfx1100", b"amdhsa-unknown-gfx1100"),
        ("metal", b"#include <metal_stdlib>"),
        ("vulkan", b"GLSL.std.450"),
    ],
)
def test_code_is_made_for_chips_that_are_not_here(chip: str, holds: bytes) -> None:
    both = pcp.trace(
        lambda x, w, y: (layer(x, w), (-(y * y)).sum(axis=1)),
        *[pcp.spec(shape, "f32") for shape in ((8, 16), (16, 12), (64, 32))],
    )
    assert holds in compile_ahead(both, chip).module


@pytest.mark.usefixtures("compiler")
def test_the_shaders_of_metal_compute_the_program() -> None:
    module = compile_ahead(LAYER, "metal").module.decode("latin-1")
    kernels = re.findall(r"kernel void main_dispatch_\d_(\w+)\((.*?)\n}", module, re.DOTALL)
    bodies = {name.partition("_")[0]: body for name, body in kernels}
    assert list(bodies) == ["reduction", "matmul", "softmax"]
    assert all("[[buffer(0)]]" in body for body in bodies.values())
    assert re.search(r"/ 16\.0.*\* 2\.0;", bodies["reduction"])  # the mean taken off, doubled
    assert re.search(r"_m0\[_\d+\] \+= \(.*\* ", bodies["matmul"])
    assert re.search(r"\b(exp|exp2|fma)\(", bodies["softmax"])


def test_what_is_no_chip() -> None:
    with pytest.raises(
        InvalidTarget, match=r"'abacus' is not a target of IREE; choose one of: llvm-cpu:host, llvm"
    ):
        compile_ahead(LAYER, "abacus")
    with pytest.raises(
        InvalidTarget, match=r"'cuda:sm_90' is not .* of cuda there are: cuda:sm_80, cuda:sm_86, cuda:sm_89"
    ):
        compile_ahead(LAYER, "iree:cuda:sm_90")


@pytest.mark.usefixtures("compiler")
@pytest.mark.parametrize("chip", ["vulkan", "metal"])
def test_numbers_that_a_chip_lacks_are_said(chip: str) -> None:
    wide = pcp.trace(lambda x: x + x, pcp.spec((4,), "f64"))
    with pytest.raises(CompilationFailed, match="XLA, or write it in f32: IREE has no f64 there") as refused:
        compile_ahead(wide, chip)
    assert len(str(refused.value)) < 500  # no page of the compiler's own form of the program
    assert "hal.pipeline" not in str(refused.value)


def test_a_chip_that_is_not_here_is_said() -> None:
    pytest.importorskip("iree.runtime")
    foreign = CompiledArtifact(LAYER, "metal", b"module")
    with pytest.raises(
        UnknownDevice, match="compiled for metal, and IREE finds no metal device here; take the"
    ):
        foreign.on()
    with pytest.raises(UnknownDevice, match="'metal:7' is not a device of this machine"):
        foreign.on("iree:metal:7")


def test_what_was_compiled_is_no_program(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file, cut, nothing = (tmp_path / name for name in ("a.vmfb", "cut.vmfb", "inputs.npz"))
    CompiledArtifact(LAYER, "llvm-cpu:generic", b"module").save(file)
    with pytest.raises(
        NotAProgram, match=r"is what `pcp compile` made of a program, .* give the program that it"
    ):
        pcp.load(file)
    cut.write_bytes(file.read_bytes()[:-100])
    np.savez(nothing)
    assert main(["run", str(cut), "--inputs", str(nothing)]) == 2
    assert "is no compiled program (File is not a zip file)" in " ".join(capsys.readouterr().err.split())


def test_files_that_are_no_artifacts(tmp_path: Path) -> None:
    file = tmp_path / "a.vmfb"
    file.write_bytes(b"no archive")
    with pytest.raises(InvalidArtifact, match=r"is no compiled program .* write one with `pcp compile`"):
        CompiledArtifact.load(file)
    CompiledArtifact(LAYER, "llvm-cpu:generic", b"module").save(file)
    assert CompiledArtifact.load(file).module == b"module"
    for change, match in (
        ("format", "has format 0, this PCP reads 1"),
        ("digest", "is damaged: its digest differs"),
    ):
        with zipfile.ZipFile(file) as archive:
            entries = {name: archive.read(name) for name in archive.namelist()}
        facts = json.loads(entries["pcp.json"]) | {change: 0}
        made = io.BytesIO()
        with zipfile.ZipFile(made, "w") as archive:
            for name, content in (entries | {"pcp.json": json.dumps(facts)}).items():
                archive.writestr(name, content)
        other = tmp_path / f"{change}.vmfb"
        other.write_bytes(made.getvalue())
        with pytest.raises(InvalidArtifact, match=match):
            CompiledArtifact.load(other)


STORED = {"pcp.json": b"{}", "program.stablehlo": b"program", "module.vmfb": b"module"}


def archive_of(entries: list[tuple[str, bytes]], packing: int = zipfile.ZIP_STORED) -> bytes:
    made = io.BytesIO()
    with warnings.catch_warnings(), zipfile.ZipFile(made, "w", packing) as archive:
        warnings.simplefilter("ignore")  # of names that are there twice
        for name, content in entries:
            archive.writestr(name, content)
    return made.getvalue()


ODD_ARCHIVES = {
    "packed": (
        archive_of([*[*STORED.items()][:2], ("module.vmfb", bytes(100 << 20))], zipfile.ZIP_DEFLATED),
        r"its entry pcp.json is packed, \d+ bytes for 2; expected entries that are stored as they are",
    ),
    "one entry more": (
        archive_of([*STORED.items(), ("more", b"")]),
        r"it has 4 entries, 'pcp.json', 'program.stablehlo', 'module.vmfb', 'more'; expected pcp.json, program.stablehlo, ",
    ),
    "very many entries": (
        archive_of([*STORED.items()] + [(f"{number}", b"") for number in range(5000)]),
        r"it has 5003 entries, 'pcp.json', .*'0', ...; expected pcp.json",
    ),
    "an entry twice": (
        archive_of([*STORED.items(), ("module.vmfb", b"other")]),
        r"it has 4 entries, .*; expected pcp.json, program.stablehlo, module.vmfb",
    ),
    "a name that leads elsewhere": (
        archive_of([("../pcp.json", b"{}"), *[*STORED.items()][1:]]),
        r"it has 3 entries, '../pcp.json', ",
    ),
    "facts without end": (
        archive_of([("pcp.json", b"[" * 100_000), *[*STORED.items()][1:]]),
        r"its entry pcp.json has 100000 bytes; expected 65536 at most",
    ),
    "facts that nest": (
        archive_of([("pcp.json", b"[" * 60_000), *[*STORED.items()][1:]]),
        r"maximum recursion depth",
    ),
    "nothing": (archive_of([]), r"it has 0 entries, ; expected"),
}


@pytest.mark.parametrize("name", ODD_ARCHIVES)
def test_archives_that_no_artifact_is_are_refused_before_they_are_unpacked(name: str) -> None:
    content, says = ODD_ARCHIVES[name]
    with pytest.raises(InvalidArtifact, match=f"x.vmfb is no compiled program .*{says}"):
        CompiledArtifact.from_bytes(content, "x.vmfb")


def test_no_damage_of_an_artifact_is_anything_but_an_invalid_artifact() -> None:
    whole, random = CompiledArtifact(LAYER, "llvm-cpu:generic", b"module").to_bytes(), Random(1)
    for _ in range(1000):
        changed = bytearray(whole)
        for _ in range(random.choice((1, 1, 3))):
            place = random.choice((random.randrange(len(changed)), len(changed) - 1 - random.randrange(300)))
            changed[place] = random.choice((0, 1, 8, 127, 255, random.randrange(256)))
        del changed[random.choice((len(changed), len(changed), random.randrange(len(changed)))) :]
        with contextlib.suppress(InvalidArtifact):
            assert CompiledArtifact.from_bytes(bytes(changed), "x.vmfb").module == b"module"
