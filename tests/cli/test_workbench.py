"""`pcp kernels export`, what comes back by `add`, and `propose`: on real processes, with a model that is none."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from tests.planning.workbench.stub_endpoint import says, sends, stub

import pcp
from pcp.cli import main
from pcp.cli.kernels import confined
from pcp.distributed.sandbox import Protection, protection
from pcp.distributed.verification import ProgramRefused, admit
from pcp.kernels import replaced, sites_of
from pcp.kernels.candidate import read_candidate
from pcp.kernels.native import discard
from pcp.kernels.native.building import OUTSIDE, builds
from pcp.kernels.native.compiling import compiler
from pcp.planning.added import Store, lowering, register_added
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.profile.database import ProfileDatabase

ROWS, INNER, COLUMNS = 20000, 3, 8
SUMS = "sum(x[:, i, None] * y[i] for i in range(3))"  # where XLA calls a routine for large products
WRONG = f"def kernel(x, y):\n    return 1.01 * ({SUMS})"
SLOW = f"""\
import jax.numpy as jnp
from jax import lax

def kernel(x, y):
    again = lambda _, sums: {SUMS} + jnp.where(sums > 3e38, 1.0, 0.0)
    return lax.fori_loop(0, 40, again, {SUMS})
"""
RIGHT = f"def kernel(x, y):\n    return {SUMS}"


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Every test has a store of its own, works in a folder of its own, and leaves no kernel behind."""
    monkeypatch.setenv("PCP_DATA_DIR", str(tmp_path / "data"))
    monkeypatch.setenv("XLA_FLAGS", "")  # the processes that say what is faster compile for speed
    monkeypatch.chdir(tmp_path)
    yield
    register_added(Store(tmp_path / "nothing"))


@pytest.fixture(scope="module")
def program() -> pcp.Program:
    return pcp.trace(lambda x, y: x @ y, pcp.spec((ROWS, INNER), "f32"), pcp.spec((INNER, COLUMNS), "f32"))


@pytest.fixture(scope="module")
def exported(program: pcp.Program, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A task, exported once for all tests of this file; a test works on a copy."""
    folder = tmp_path_factory.mktemp("exported")
    program.save(folder / "product.pcp")
    words = ("--database", folder / "profile.sqlite", "--out", folder / "task")
    assert main(["kernels", "export", str(folder / "product.pcp"), *map(str, words)]) == 0
    return folder / "task"


@pytest.fixture
def task(exported: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(exported, tmp_path / "task"))


def test_a_task_says_what_to_compute_how_exactly_and_how_fast_it_is(
    exported: Path, program: pcp.Program
) -> None:
    found = sorted(path.relative_to(exported).as_posix() for path in exported.rglob("*"))
    assert found == [
        "README.md",
        "kernel.py",
        "kernel.toml",
        "pcp_task",
        *(f"pcp_task/{name}_{count}.npz" for name in ("expected", "inputs") for count in (0, 1)),
        "pcp_task/task.json",
        "region.mlir",
    ]
    told = json.loads((exported / "pcp_task" / "task.json").read_text())
    region = pcp.load(exported / "region.mlir")
    assert (told["family"], told["region"]) == ("product", region.digest)
    assert region.digest == program.digest
    assert told["tolerance"] == 1e-5
    assert 0 < told["plain_seconds"]["least"] <= told["plain_seconds"]["undisturbed"]
    assert told["target"]["devices"] == ["cpu:0"]
    with np.load(exported / "pcp_task" / "inputs_1.npz") as inputs:
        x, y = inputs["0"], inputs["1"]
    assert x.dtype == np.float32
    with np.load(exported / "pcp_task" / "expected_1.npz") as expected:
        [result] = expected.values()
    np.testing.assert_allclose(result, x.astype(np.float64) @ y.astype(np.float64), rtol=1e-12, atol=1e-12)
    text = (exported / "README.md").read_text()
    assert f"| takes | x0 f32[{ROWS},{INNER}], x1 f32[{INNER},{COLUMNS}] |" in text
    assert "pcp kernels add ." in text


def test_a_kernel_in_jax_comes_back_and_plans_know_it(
    task: Path,
    program: pcp.Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("--database", tmp_path / "profile.sqlite")
    code, said, _ = command(capsys, "kernels", "add", task, *words)  # the template
    assert code == 3
    assert "not lowered" in said
    assert "NotImplementedError: write the kernel: README.md shows how" in said
    (task / "kernel.py").write_text(RIGHT)
    code, said, noted = command(capsys, "kernels", "add", task, *words)
    assert code == 0, said
    assert f"kept in {tmp_path / 'profile.sqlite'}" in noted
    [added] = Store().all()
    assert (
        f"added {added.name}: plans with a tolerance may choose it for region {program.digest[:12]}" in said
    )
    assert not (added.candidate.folder / "pcp_task").exists()
    [kernel] = register_added()
    [site] = sites_of(program, "cpu")
    assert kernel.name in site.kernels
    rows = ProfileDatabase(tmp_path / "profile.sqlite").measurements(program.digest)
    assert {row.path for row in rows} == {f"{kernel.name}@1"}
    other = pcp.trace(lambda x, y: x @ y, pcp.spec((ROWS, 4), "f32"), pcp.spec((4, COLUMNS), "f32"))
    assert not any(kernel.name in each.kernels for each in sites_of(other, "cpu"))
    monkeypatch.setenv("PCP_NATIVE_KERNELS", "none")  # nothing is built for this
    plan = pcp.plan(program, "cpu:0", 1e-4, budget=10, database=tmp_path / "profile.sqlite")
    assert kernel.name in str(plan)
    x = np.random.default_rng().normal(size=(ROWS, INNER)).astype(np.float32)
    y = np.random.default_rng().normal(size=(INNER, COLUMNS)).astype(np.float32)
    np.testing.assert_allclose(np.asarray(plan.run(x, y)), x @ y, rtol=1e-4, atol=1e-5)
    code, said, _ = command(capsys, "kernels", "add", task, "--json", *words)
    assert json.loads(said)["added"] == added.digest  # from the verdict that was kept
    code, said, _ = command(capsys, "kernels", "list", "--family", "product")
    assert f"added {added.digest[:12]}, tolerance region " in said
    code, said, _ = command(capsys, "kernels", "remove", added.candidate.name)
    assert (code, said) == (0, f"removed {added.name}\n")


def in_cpp(task: Path, body: str) -> None:
    """A kernel in C++ in the place of the template."""
    arrays = "ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> y, ffi::ResultBuffer<ffi::F32> out"
    (task / "kernel.py").unlink()
    (task / "kernel.cc").write_text(
        f"""\
#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error kernel({arrays}) {{
  const float *a = x.typed_data(), *b = y.typed_data();
  float* c = out->typed_data();
  for (int64_t i = 0; i < {ROWS}; ++i)
    for (int64_t j = 0; j < 8; ++j) {body}
  return ffi::Error::Success();
}}

XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_thin, kernel,
                              ffi::Ffi::Bind()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Arg<ffi::Buffer<ffi::F32>>()
                                  .Ret<ffi::Buffer<ffi::F32>>());
"""
    )
    manifest = (task / "kernel.toml").read_text()
    (task / "kernel.toml").write_text(
        manifest.replace("kernel.py:kernel", "kernel.cc:thin").replace('"jax"', '"cpp"')
    )


IN_CPP = "c[8 * i + j] = a[3 * i] * b[j] + a[3 * i + 1] * b[8 + j] + a[3 * i + 2] * b[16 + j];"


def outside() -> set[str]:
    """The builds of kernels from outside; other processes may build PCP's own meanwhile."""
    return {build.digest for build in builds() if build.library.startswith(OUTSIDE)}


@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
def test_a_kernel_in_cpp_comes_back_where_the_user_allows_it(
    task: Path,
    program: pcp.Program,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    words = ("--database", tmp_path / "profile.sqlite")
    in_cpp(task, IN_CPP)
    for action in ("verify", "add"):
        code, _, noted = command(capsys, "kernels", action, task, *words)
        assert code == 2
        assert "is written in cpp for cpu (kernel.cc): it would be compiled here and run as you" in " ".join(
            noted.split()
        )
        assert "give --allow-native if you trust it" in noted
    before = outside()
    code, said, _ = command(capsys, "kernels", "add", task, "--allow-native", *words)
    assert code == 0, said
    [built] = [build for build in builds() if build.digest in outside() - before]
    try:
        [added] = Store().all()
        [kernel] = register_added()
        [site] = sites_of(program, "cpu")
        assert kernel.name in site.kernels
        assert kernel.needs == ("cpu",)
        changed = replaced(site.region, kernel)
        x = np.random.default_rng().normal(size=(ROWS, INNER)).astype(np.float32)
        y = np.random.default_rng().normal(size=(INNER, COLUMNS)).astype(np.float32)
        np.testing.assert_allclose(np.asarray(pcp.plan(changed).run(x, y)[0]), x @ y, rtol=1e-4, atol=1e-5)
        artifact = changed.artifact()
        with pytest.raises(
            ProgramRefused, match=r"holds stablehlo\.custom_call, which is refused: it would run native code"
        ):
            admit({"stranger": artifact}, "cpu:0", 4 << 30, 60.0)
        monkeypatch.setenv("PCP_NATIVE_KERNELS", "none")
        lowering._known.clear()
        with pytest.raises(
            KernelNotLowered, match="is native code, and PCP_NATIVE_KERNELS does not name outside_"
        ):
            lowering.lowered(added.candidate, added.digest)
    finally:
        discard(built)


@pytest.mark.long
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler here")
@pytest.mark.parametrize(
    ("body", "words"),
    [
        (IN_CPP.replace("b[16 + j]", "b[15 + j]"), "wrong: "),
        (
            f"{{ const_cast<float*>(b)[8] = 0; {IN_CPP} }}",
            "changes its operands: an operand, or the memory",
        ),
        (
            f"{{ const_cast<float*>(b)[24] = 0; {IN_CPP} }}",
            "changes its operands: an operand, or the memory",
        ),
        (IN_CPP.replace("c[8", "c[9", 1), "refused ("),  # whatever writing behind the array breaks
        ("*(volatile float*)8 = 1;", "crash: it ended with SIGSEGV"),
        ("for (;;) *(volatile float*)c = 1;", "timeout: it took more than 3 s and was killed"),
        ("missing = 1;", "does not build kernel.cc: kernel.cc:9:37: error: "),
    ],
)
def test_a_bad_kernel_in_cpp_is_refused_and_its_build_is_gone(
    task: Path, body: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    in_cpp(task, body)
    before = outside()
    given = ("--allow-native", "--seconds", 3, "--database", task.parent / "profile.sqlite")
    code, said, _ = command(capsys, "kernels", "add", task, *given)
    assert code == 3
    assert words in said
    assert outside() == before


PALLAS = """\
import jax
from jax.experimental import pallas as pl


def body(x, y, out):
    out[...] = sum(x[:, i][:, None] * y[i, :] for i in range(3))


def kernel(x, y, interpret):
    shape = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    return pl.pallas_call(body, out_shape=shape, interpret=interpret)(x, y)
"""


FOR_A_GPU = """\
import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton


def body(x, y, out):
    out[...] = jnp.full(out.shape, 1.0, out.dtype)


def kernel(x, y, interpret):
    shape = jax.ShapeDtypeStruct((x.shape[0], y.shape[1]), x.dtype)
    one, part = pl.BlockSpec((1, 1), lambda i: (0, 0)), pl.BlockSpec((32, y.shape[1]), lambda i: (i, 0))
    return pl.pallas_call(
        body,
        out_shape=shape,
        in_specs=[one, one],
        out_specs=part,
        grid=(x.shape[0] // 32,),
        compiler_params=triton.CompilerParams(),
        interpret=interpret,
    )(x, y)
"""  # wrong, but it lowers


@pytest.mark.long
def test_a_kernel_in_pallas_is_interpreted_on_a_processor_and_machine_code_on_a_gpu(
    task: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (task / "kernel.py").write_text(PALLAS)
    manifest = (task / "kernel.toml").read_text()
    (task / "kernel.toml").write_text(manifest.replace('"jax"', '"pallas"'))
    code, said, _ = command(
        capsys, "kernels", "verify", task, "--json", "--database", task / "profile.sqlite"
    )
    found = json.loads(said)
    assert found["error"] < 1e-6, said  # it is right; whether it is fast is its own affair
    assert found["fault"] in ("", "too slow")
    (task / "kernel.toml").write_text(manifest.replace('"jax"', '"pallas"\ndevice = "cuda"'))
    code, _, noted = command(capsys, "kernels", "verify", task)
    assert code == 2
    assert "is written in pallas for cuda (kernel.py): it would be compiled" in noted
    code, said, _ = command(capsys, "kernels", "verify", task, "--allow-native", "--device", "cpu:0")
    assert code == 3
    assert "it is for cuda, and this is cpu:0: name another --device" in said
    (task / "kernel.py").write_text(FOR_A_GPU)
    program = lowering.lowered(read_candidate(task), "0" * 64)
    assert "stablehlo.custom_call @__gpu$xla.gpu.triton" in program.text


@pytest.mark.long
@pytest.mark.parametrize(
    ("source", "words"),
    [
        (WRONG, "less accurate than it claims: the error of result 0 is 0.01; the tolerance is 1e-05"),
        (SLOW, "too slow: it takes "),
    ],
)
def test_a_kernel_that_is_wrong_or_slow_is_not_added(
    task: Path, source: str, words: str, capsys: pytest.CaptureFixture[str]
) -> None:
    (task / "kernel.py").write_text(source)
    code, said, _ = command(capsys, "kernels", "add", task, "--database", task.parent / "profile.sqlite")
    assert code == 3
    assert words in said
    assert Store().all() == []


def test_a_model_is_asked_until_its_kernel_is_right_and_faster(
    tmp_path: Path, program: pcp.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program.save(tmp_path / "product.pcp")
    steals = f"import pathlib\npathlib.Path({str(tmp_path / 'stolen')!r}).write_text('x')\n{RIGHT}"
    answers = [says(f"```python\n{code}\n```") for code in (steals, WRONG, SLOW, RIGHT)]
    with stub(sends(b"busy", 503), *answers) as server:
        words = ("--endpoint", server.url, "--rounds", "8", "--database", tmp_path / "profile.sqlite")
        code, said, _ = command(
            capsys, "kernels", "propose", "product.pcp", *words, "--out", "proposed", "--add", "--json"
        )
    assert code == 0, said
    *rounds, last = [json.loads(line) for line in said.splitlines()]
    assert [each["fault"] for each in rounds] == [
        "no answer",
        "not lowered",
        "less accurate than it claims",
        "too slow",
        "",
    ]
    assert "answered with status 503" in rounds[0]["detail"]
    if protection().is_full:
        assert "PermissionError" in rounds[1]["detail"]
        assert not (tmp_path / "stolen").exists()
    assert rounds[3]["time_ratio"] > 1
    assert rounds[4]["time_ratio"] < 0.98
    [added] = Store().all()
    assert last["added"] == added.digest
    assert added.candidate.file == "kernel.mlir"
    assert (tmp_path / "proposed" / "proposed.py").read_text() == f"{RIGHT}\n"
    assert len(server.asked) == 5


def test_nothing_is_written_where_nothing_is_admitted(
    tmp_path: Path, program: pcp.Program, capsys: pytest.CaptureFixture[str]
) -> None:
    program.save(tmp_path / "product.pcp")
    with stub(says("no")) as server:
        code, said, _ = command(
            capsys,
            "kernels",
            "propose",
            "product.pcp",
            "--endpoint",
            server.url,
            "--rounds",
            1,
            "--out",
            "proposed",
        )
    assert code == 3
    assert "1. product.for_" in said
    assert "no kernel: the answer holds no block of python that defines `kernel`" in said
    assert said.endswith("no kernel was admitted; nothing is written\n")
    assert not (tmp_path / "proposed").exists()


def test_answers_are_not_executed_where_nothing_confines_them(
    tmp_path: Path, program: pcp.Program, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    program.save(tmp_path / "product.pcp")
    monkeypatch.setattr(confined, "protection", lambda: Protection("", "seccomp"))
    words = ("kernels", "propose", "product.pcp", "--endpoint", "http://127.0.0.1:9/v1")
    code, _, noted = command(capsys, *words)
    assert code == 2
    assert "it would be kept back by seccomp, with limits only: it needs Landlock" in noted
    assert "give --allow-unconfined there" in noted
    assert confined.check_confined(True) == "seccomp, with limits"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (
            ("export",),
            "`pcp kernels export` needs a region: PROGRAM, PROGRAM:DIGITS or DIGITS; none was given",
        ),
        (("propose", "two.pcp"), "`pcp kernels propose` needs --endpoint URL"),
        (("propose", "two.pcp", "--endpoint", "no"), "the endpoint 'no' is no address; expected one such as"),
        (("propose", "x", "--rounds", "0"), "--rounds 0 was given; expected a number above 0"),
        (
            ("propose", "x", "--answer-seconds", "nan"),
            "--answer-seconds nan was given; expected a number above",
        ),
        (
            ("export", "x", "--tolerance", "inf"),
            "--tolerance inf was given; expected a number between 0 and 1",
        ),
        (
            ("export", "no.pcp"),
            "'no.pcp' names no region; expected the file of a program, PROGRAM:DIGITS, or",
        ),
        (("export", "two.pcp"), "has 2 regions; name one as PROGRAM:DIGITS, the costliest first: "),
        (("export", "two.pcp:ffffffff"), "has no region whose digest begins with 'ffffffff'; name one as"),
        (
            ("export", "0123abcd"),
            "knows no region whose digest begins with '0123abcd', and there is no such file",
        ),
        (("export", "none.pcp"), "has no region that kernels compute; expected one with products, softmax"),
        (
            ("export", "one.pcp", "--out", "."),
            ". is there already and holds something; give a folder that is new or",
        ),
        (("export", "one.pcp", "--out", "one.pcp"), "one.pcp is there already and holds something"),
    ],
)
def test_what_is_given_wrongly_is_said(
    words: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = pcp.spec((4, 6), "f32")
    pcp.trace(lambda x: pcp.softmax(x, 1), given).save(tmp_path / "one.pcp")
    pcp.trace(lambda x: (pcp.softmax(x, 1), pcp.softmax(x, 0)), given).save(tmp_path / "two.pcp")
    pcp.trace(lambda x: x + 1.0, given).save(tmp_path / "none.pcp")
    code, _, said = command(capsys, "kernels", *words, "--database", tmp_path / "profile.sqlite")
    assert code == 2
    assert message in said
