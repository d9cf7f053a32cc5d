"""Kernels in Triton's own language: compiled wherever Triton is; `test_on_a_gpu.py` launches them."""

import importlib.util
import re
from pathlib import Path
from types import ModuleType

import pytest
from tests.planning.workbench.gpu_candidates import THIN_IN_TRITON, TRITON_MANIFEST, digest_of, folder

import pcp
from pcp.backends import Device
from pcp.ir import DType, TensorSpec
from pcp.kernels import features
from pcp.kernels.candidate import CAPABILITIES
from pcp.kernels.manifest import InvalidCandidate
from pcp.planning.added import lowering, triton_compiling
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.native_program import NativeNotAllowed, check_device, check_native
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.workbench.task import Task
from pcp.planning.workbench.teaching import readme, templates

needs_triton = pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="Triton is not here")
BEGINNING = "import triton\nimport triton.language as tl\n\n"
ADDED = f"""{BEGINNING}
@triton.jit
def kernel(x, y, out, SIZE: tl.constexpr, BLOCK: tl.constexpr = 256):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < SIZE
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)


grid = lambda meta: (triton.cdiv(meta["SIZE"], meta["BLOCK"]),)
config = triton.Config({{"SIZE": 1000}}, num_warps=8)
"""
DOT = f"""{BEGINNING}
@triton.jit
def kernel(x, y, out, BLOCK: tl.constexpr):
    i, k = tl.arange(0, BLOCK), tl.arange(0, 64)
    sums = tl.zeros((BLOCK, BLOCK), tl.float32)
    for first in range(0, 4096, 64):
        left = tl.load(x + i[:, None] * 4096 + first + k[None, :])
        sums = tl.dot(left, tl.load(y + (first + k)[:, None] * BLOCK + i[None, :]), sums)
    tl.store(out + i[:, None] * BLOCK + i[None, :], sums)


grid = 1
config = triton.Config({{"BLOCK": 128}}, num_stages=9)
"""


@needs_triton
@pytest.mark.parametrize(("capability", "target"), [(80, ".target sm_80"), (90, ".target sm_90a")])
def test_it_becomes_a_launch_of_ptx(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capability: int, target: str
) -> None:
    manifest = TRITON_MANIFEST.replace("capability = 80", f"capability = {capability}")
    candidate = folder(tmp_path, "kernel.py", THIN_IN_TRITON, manifest)
    assert (candidate.language, candidate.needs) == ("triton", ("cuda", f"sm_{capability}"))
    with pytest.raises(NativeNotAllowed, match=r"is written in triton for cuda \(kernel\.py\): it would be"):
        check_native(candidate, False)
    program = lowered(candidate, digest_of(tmp_path))
    for words in (
        "stablehlo.custom_call @__gpu$xla.gpu.ptx(%arg0, %arg1)",
        "grid_x = 625 : i32",
        "block_x = 128 : i32",
        'name = "thin"',
        "output_indices = [2 : i32, 3 : i32, 4 : i32]",  # what it computes, and two arrays of Triton's own
        ".visible .entry thin(",
        target,
    ):
        assert words in program.text
    assert str(tmp_path) not in program.text
    assert [entry.spec for entry in program.results] == [TensorSpec((20000, 8), DType.f32)]
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)  # it was compiled once
    lowering._known.clear()
    assert lowered(candidate, digest_of(tmp_path)).text == program.text


def test_without_triton_the_message_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(importlib.util, "find_spec", lambda _: None)
    candidate = folder(tmp_path, "kernel.py", THIN_IN_TRITON, TRITON_MANIFEST)
    with pytest.raises(KernelNotLowered, match=r"written in Triton, which is not here; .*pip install triton"):
        lowered(candidate, digest_of(tmp_path))


@pytest.mark.parametrize("kept", ["", "5", "{}", '{"grid": 1}', '{"grid": ["x"]}'])
def test_a_kernel_that_was_kept_and_is_damaged_is_said(tmp_path: Path, kept: str) -> None:
    candidate = folder(tmp_path, "kernel.py", THIN_IN_TRITON, TRITON_MANIFEST)
    (tmp_path / "lowered").mkdir()
    (tmp_path / "lowered" / f"{digest_of(tmp_path)}.json").write_text(kept)
    with pytest.raises(
        KernelNotLowered, match=r"cannot be read; `pcp kernels remove product\.thin_in_triton`, and"
    ):
        lowered(candidate, digest_of(tmp_path))


def test_another_gpu_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = TRITON_MANIFEST.replace("capability = 80", "capability = 90")
    candidate = folder(tmp_path, "kernel.py", THIN_IN_TRITON, manifest)
    monkeypatch.setattr(features, "_found", lambda _: frozenset({"cuda", "sm_80", "sm_86"}))
    with pytest.raises(KernelNotLowered, match="it needs sm_90, which cuda does not have here; write it for"):
        check_device(candidate, Device("cuda", 0, 1 << 30))
    with pytest.raises(KernelNotLowered, match="it is for cuda, and this is cpu:0: name another --device"):
        check_device(candidate, Device("cpu", 0, 1 << 30))
    monkeypatch.setattr(features, "_found", lambda _: frozenset({"cuda", "sm_80", "sm_90"}))
    check_device(candidate, Device("cuda", 0, 1 << 30))


@needs_triton
def test_what_the_child_is_told_wrongly_is_said(tmp_path: Path) -> None:
    source = THIN_IN_TRITON.replace("tl.program_id", "tl.number_of")
    candidate = folder(tmp_path, "kernel.py", source, TRITON_MANIFEST)
    words = r"CompilationError at line \d+ of the kernel, `i = tl\.number_of\(0\).*no attribute 'number_of'"
    with pytest.raises(KernelNotLowered, match=words):
        lowered(candidate, digest_of(tmp_path))


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        (
            "capability = 80",
            "capability = 75",
            "capability = 75; expected one of 80, 86, 89, 90, for a kernel",
        ),
        ("capability = 80", "capability = 80.0", r"capability = 80\.0; expected one of 80"),
        ('"triton"', '"pallas"', "capability = 80; expected one of .*, for a kernel in Triton only"),
        ('device = "cuda"', 'device = "cpu"', "device = 'cpu'; expected one of 'cuda'"),
        ("tolerance = 1e-5", "[launch]\ngrid = [1, 1, 1]", "a kernel in CUDA, and no other, has a table"),
    ],
)
def test_what_the_manifest_says_wrongly(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in TRITON_MANIFEST
    with pytest.raises(InvalidCandidate, match=message):
        folder(tmp_path, "kernel.py", THIN_IN_TRITON, TRITON_MANIFEST.replace(old, new))


def module_of(folder: Path, source: str) -> ModuleType:
    file = folder / "kernel.py"
    file.write_text(source)
    described = importlib.util.spec_from_file_location("kernel", file)
    assert described is not None
    assert described.loader is not None
    module = importlib.util.module_from_spec(described)
    described.loader.exec_module(module)
    return module


def compiled(folder: Path, source: str, dtype: str = "f32", capability: int = 80) -> dict[str, object]:
    specs = [TensorSpec((1000,), DType(dtype))] * 3
    module = module_of(folder, source)
    try:
        return triton_compiling.compiled_kernel(module, "kernel", specs[:2], specs[2:], capability, folder)
    except Exception as error:
        said = triton_compiling.said_by(error)
    raise KernelNotLowered(said)  # without the exception, whose frames hold objects of the compiler


@pytest.fixture
def own_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    """The child may set them as it likes; a test puts them back."""
    for name in ("TRITON_CACHE_DIR", "TRITON_DISABLE_LINE_INFO", "TRITON_INTERPRET"):
        monkeypatch.setenv(name, "0")


@needs_triton
@pytest.mark.usefixtures("own_variables")
@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("@triton.jit", "", "kernel is of the type function; expected a function below @triton.jit alone"),
        (
            "@triton.jit",
            "@triton.autotune([], [])\n@triton.jit",
            "kernel is of the type Autotuner; expected a function below @triton.jit alone",
        ),
        ("def kernel", "def other", "kernel is not there; expected a function"),
        ("config =", "config = 4\nother =", r"config is 4; expected as triton\.Config\("),
        ("num_warps=8", "num_ctas=2", "config has num_ctas or a pre_hook, which are not taken"),
        ('"SIZE"', '"size"', "config gives size a value, and the kernel takes x, y, out, SIZE, BLOCK"),
        ('"SIZE": 1000', "", "SIZE is a tl.constexpr without a value; give it one: config = triton"),
        ("x, y, out", "x, y, out, n", r"takes 4 pointers \(x, y, out, n\); expected 2 to the region's"),
        ("grid =", "other =", r"grid is None; expected one to three positive integers: grid = \(625,\)"),
        ("num_warps=8", "num_warps=3", "AssertionError: num_warps must be a power of 2"),
    ],
)
def test_what_the_file_says_wrongly(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in ADDED
    with pytest.raises(KernelNotLowered, match=message):
        compiled(tmp_path, ADDED.replace(old, new))


@needs_triton
@pytest.mark.usefixtures("own_variables")
def test_what_a_gpu_cannot_do_is_said(tmp_path: Path) -> None:
    with pytest.raises(KernelNotLowered, match="array of c64, which Triton has no pointers to; write it in"):
        compiled(tmp_path, ADDED, "c64")
    with pytest.raises(
        KernelNotLowered, match=r"share 524288 bytes, and a GPU of compute capability 8\.0 has 166912; choose"
    ):
        compiled(tmp_path, DOT, "f32")


@needs_triton
@pytest.mark.usefixtures("own_variables")
@pytest.mark.parametrize("dtype", triton_compiling._POINTERS)
def test_pointers_of_every_type_are_taken(tmp_path: Path, dtype: str) -> None:
    copied = ADDED.replace(" + tl.load(y + i, inside)", "")
    assert compiled(tmp_path, copied, dtype, 90)["block"] == [256, 1, 1]


def task() -> Task:
    region = pcp.trace(
        lambda x, y: x @ y, pcp.spec((400, 8), "f32"), pcp.spec((8, 400), "f32")
    )  # as many numbers as the example adds
    measured = Measurement("product", "plain", "here", "now", plain_seconds=(1.0,))
    return Task(region, "product", pcp.backends.Target.of("cpu:0"), 1e-5, measured, ())


@needs_triton
@pytest.mark.usefixtures("own_variables")
def test_the_example_on_the_page_of_the_workbench_compiles(tmp_path: Path) -> None:
    page = Path(__file__).parents[3] / "docs" / "outside" / "workbench.md"
    [shown] = re.findall(r"^```py\n(.*?)^```$", page.read_text(), re.DOTALL | re.MULTILINE)
    assert compiled(tmp_path, shown)["grid"] == [625, 1, 1]


@needs_triton
@pytest.mark.usefixtures("own_variables")
@pytest.mark.parametrize("capability", CAPABILITIES)
def test_the_example_that_a_task_shows_compiles(tmp_path: Path, capability: int) -> None:
    found = re.search(r"```python\n(.*?)```", readme(task(), "triton"), re.DOTALL)
    assert found is not None
    made = compiled(tmp_path, BEGINNING + found[1], capability=capability)
    assert (made["grid"], made["block"]) == ([625, 1, 1], [128, 1, 1])
    assert f".target sm_{capability}" in str(made["ptx"])


@needs_triton
@pytest.mark.usefixtures("own_variables")
def test_the_template_asks_to_be_written(tmp_path: Path) -> None:
    files = templates(task(), "triton")
    assert 'language = "triton"\ndevice = "cuda"\ncapability = 80\n' in files["kernel.toml"]
    with pytest.raises(KernelNotLowered, match=r"write the kernel: README\.md shows how"):
        compiled(tmp_path, files["kernel.py"])
