"""`pcp.load` of what other tools wrote: older artifacts, exports of JAX, open shapes, several functions, damage."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.execution import run
from tests.ir.bare_operations import BARE
from tests.ir.test_tuples import NESTED

import pcp
from pcp.errors import PCPError
from pcp.ir import InvalidProgram, NestedTooDeeply, Program, unchecked
from pcp.ir.program_file import NotAProgram
from pcp.ir.specializing import NoSuchFunction, UnknownShape
from pcp.ir.unchecked import CorruptProgram, reread

SAVED = Path(__file__).parent / "saved"
W = np.random.default_rng(0).normal(size=(3, 4)).astype(np.float32)
SEVERAL = """
func.func public @loss(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = func.call @main_0(%x) : (tensor<2xf32>) -> tensor<2xf32>
  return %y : tensor<2xf32>
}
func.func public @main_0(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = stablehlo.add %x, %x : tensor<2xf32>
  return %y : tensor<2xf32>
}
"""
MAIN = """
func.func private @main(%x: tensor<2xf32>) -> tensor<2xf32> {
  %y = stablehlo.multiply %x, %x : tensor<2xf32>
  return %y : tensor<2xf32>
}
"""
OPEN = """
func.func public @main(%x: tensor<?x3xf32>, %w: tensor<3x4xf32>) -> tensor<?x4xf32> {
  %0 = stablehlo.dot_general %x, %w, contracting_dims = [1] x [0] : (tensor<?x3xf32>, tensor<3x4xf32>) -> tensor<?x4xf32>
  %1 = stablehlo.add %0, %0 : tensor<?x4xf32>
  return %1 : tensor<?x4xf32>
}
"""


def written(path: Path, content: str | bytes) -> Path:
    path.write_bytes(content.encode() if isinstance(content, str) else content)
    return path


def network() -> Program:
    return pcp.trace(lambda w, x: pcp.tanh(x @ w["w"]), {"w": W}, pcp.spec((2, 3), "f32"))


@pytest.mark.parametrize("version", ["0.9.0", "1.0.0", "1.8.0"])
def test_older_artifacts_are_read(version: str, tmp_path: Path) -> None:
    artifact = network().to_stablehlo(version)
    assert f"StableHLO_v{version}".encode() in artifact[:40]
    assert pcp.load(written(tmp_path / "old", artifact)).digest == network().digest


def test_a_newer_artifact_names_both_versions(tmp_path: Path) -> None:
    artifact = network().to_stablehlo("1.0.0").replace(b"StableHLO_v1.0.0", b"StableHLO_v9.0.0")[:-40]
    with pytest.raises(InvalidProgram, match=r"new: .* up to version \d.* they are of version 9\.0\.0"):
        pcp.load(written(tmp_path / "new", artifact))


def test_an_export_of_jax_is_read() -> None:
    program = pcp.load(SAVED / "one.jax_export")
    x = np.random.default_rng(1).normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(run(program, W, x), np.tanh(x @ W), rtol=1e-5)


def test_an_export_made_here_is_read(tmp_path: Path) -> None:
    pytest.importorskip("flatbuffers")
    import jax
    from jax import export

    made = export.export(jax.jit(lambda x: x * 2))(jax.ShapeDtypeStruct((3,), "float32")).serialize()
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(run(pcp.load(written(tmp_path / "made", bytes(made))), x), x * 2)


@pytest.mark.parametrize("shapes", [[None, (5, 3)], [pcp.spec((3, 4), "f32"), pcp.spec((5, 3), "f32")]])
def test_open_shapes_of_an_export_are_given(shapes: Any) -> None:
    program = pcp.load(SAVED / "any_batch.jax_export", shapes=shapes)
    assert "shape_assertion" not in program.text
    x = np.random.default_rng(1).normal(size=(5, 3)).astype(np.float32)
    np.testing.assert_allclose(run(program, W, x), np.tanh(x @ W), rtol=1e-5)


def test_open_shapes_of_text_are_given(tmp_path: Path) -> None:
    path = written(tmp_path / "open.mlir", OPEN)
    assert [str(entry.spec) for entry in pcp.load(path, shapes=[(7, 3), None]).results] == ["f32[7,4]"]


@pytest.mark.parametrize(
    ("shapes", "message"),
    [
        (
            None,
            r"argument 1 is tensor<\?x3xf32>, whose sizes are not known; .*pcp.load\(path, shapes=\[\.\.\.\]\)",
        ),
        ([None, None], r"argument 1 is tensor<\?x3xf32>, whose sizes are not known"),
        ([None, (2, 5)], r"argument 1 is tensor<\?x3xf32>; the shape \(2, 5\) does not fit"),
        ([None, (2,)], r"the shape \(2,\) does not fit"),
        ([(2, 3)], r"1 shapes were given; the program takes 2 arguments"),
        ([None, (0, 3)], r"Input shapes do not match .* Expected value >= 1 for dimension variable 'b'"),
    ],
)
def test_open_shapes_need_shapes_that_fit(shapes: Any, message: str) -> None:
    with pytest.raises(UnknownShape, match=r"any_batch\.jax_export: .*" + message):
        pcp.load(SAVED / "any_batch.jax_export", shapes=shapes)


def test_an_export_for_several_platforms_is_refused() -> None:
    with pytest.raises(InvalidProgram, match=r"exported for several platforms; export it for one"):
        pcp.load(SAVED / "two_platforms.jax_export")


def test_of_several_functions_one_is_chosen(tmp_path: Path) -> None:
    path = written(tmp_path / "several.mlir", SEVERAL)
    with pytest.raises(
        InvalidProgram, match=r"this module has: loss, main_0; choose one: pcp\.load\(path, main="
    ):
        pcp.load(path)
    with pytest.raises(NoSuchFunction, match=r"no function called 'train'; it has: loss, main_0"):
        pcp.load(path, main="train")
    x = np.array([1, 3], np.float32)
    for name in ("loss", "main_0"):
        np.testing.assert_array_equal(run(pcp.load(path, main=name), x), 2 * x)
    both = written(tmp_path / "both.mlir", SEVERAL.replace("@main_0(%x)", "@main(%x)", 1) + MAIN)
    np.testing.assert_array_equal(run(pcp.load(both, main="loss"), x), x * x)
    np.testing.assert_array_equal(run(pcp.load(both, main="main"), x), x * x)


def test_a_module_without_a_function_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidProgram, match=r"this module has: none"):
        pcp.load(written(tmp_path / "empty.mlir", "module {\n}\n"))


def test_an_alias_that_is_no_number_is_refused(tmp_path: Path) -> None:
    text = """func.func public @main(%x: tensor<2xf32> {tf.aliasing_output = "x"}) -> tensor<2xf32> {
      return %x : tensor<2xf32>
    }"""
    with pytest.raises(InvalidProgram, match=r"donated to result 'x'; expected the number of a result"):
        pcp.load(written(tmp_path / "alias.mlir", text))


def damaged(content: bytes, seed: int) -> bytes:
    draw = random.Random(seed)
    raw = bytearray(content)
    for _ in range(draw.randint(1, 4)):
        raw[draw.randrange(len(raw))] ^= 1 << draw.randrange(8)
    return bytes(raw[: draw.choice([None, draw.randrange(len(raw))])])


def load_damaged(path: Path, seeds: range) -> dict[str, int]:
    """Load files with a few flipped bytes and some cut off; nothing but our own errors may come out."""
    forms = [network().artifact(), network().bytecode, (SAVED / "one.jax_export").read_bytes()]
    outcomes: dict[str, int] = {}
    for seed in seeds:
        written(path, damaged(forms[seed % len(forms)], seed))
        try:
            pcp.load(path)
            outcome = "read"
        except (InvalidProgram, CorruptProgram, NotAProgram) as error:
            outcome = type(error).__name__
        outcomes[outcome] = outcomes.get(outcome, 0) + 1
    return outcomes


def test_damaged_bytes_never_crash_this_process(tmp_path: Path) -> None:
    assert sum(load_damaged(tmp_path / "damaged", range(3)).values()) == 3  # each form once


def test_a_name_that_is_no_text_is_refused(tmp_path: Path) -> None:
    for content in (network().artifact(), network().bytecode):
        path = written(tmp_path / "model", content.replace(b"w.w", b"\xfe\\w"))
        with pytest.raises(
            InvalidProgram, match=r"model: the program is damaged: b'\\xfe\\\\w' in it is not UTF-8 text"
        ):
            pcp.load(path)
        assert pcp.load(written(path, content.replace(b"w.w", "é\\".encode()))).arguments[0].name == "é\\"


@pytest.mark.long
def test_many_damaged_bytes_never_crash_this_process(tmp_path: Path) -> None:
    outcomes = load_damaged(tmp_path / "damaged", range(300))
    assert outcomes["CorruptProgram"] > 3  # the child crashed, or an export is cut off
    assert outcomes["InvalidProgram"] > 100


def identity(argument: str = "", body: str = "", before: str = "") -> str:
    return f"""{before}
    func.func @main(%x: tensor<2xf32> {argument}) -> tensor<2xf32> {{
      {body}
      return %x : tensor<2xf32>
    }}"""


@pytest.mark.parametrize(
    ("text", "error", "message"),
    [
        (f"module {'(' * 99999}", NestedTooDeeply, r"brackets \( of the text are nested"),
        (f"module {'{' * 99999}", NestedTooDeeply, r"the regions of operations .* are nested"),
        (
            identity(f"{{a.b = {'[' * 9999}{']' * 9999}}}"),
            NestedTooDeeply,
            r"brackets \[ of the text are nested",
        ),
        (
            identity(before=f"!a = {'tuple<' * 9999}{'>' * 9999}"),
            NestedTooDeeply,
            "brackets < of the text are nested",
        ),
        (identity('{pcp.name = "\\FE"}'), InvalidProgram, r"b'\\xfe' in it is not UTF-8 text"),
        (
            identity(body='%y = stablehlo.add %x, %x {a.b = "\\FF"} : tensor<2xf32>'),
            InvalidProgram,
            r"b'\\xff' in it is not UTF-8 text",
        ),
        (
            identity(before="func.func private @f(tensor<2xf32>) -> tensor<2xf32>"),
            InvalidProgram,
            "the function f of the program is declared and has no body; write the body, or leave it out",
        ),
        (identity("{pcp.role = 3 : i32}"), InvalidProgram, "the role 3"),
    ],
)
def test_hostile_text_is_refused(text: str, error: type[Exception], message: str, tmp_path: Path) -> None:
    with pytest.raises(error, match=message):
        pcp.load(written(tmp_path / "hostile.mlir", text))


def test_a_module_beside_main_changes_nothing(tmp_path: Path) -> None:
    plain = pcp.load(written(tmp_path / "plain.mlir", identity()))
    assert pcp.load(written(tmp_path / "beside.mlir", identity(before="module {}"))).digest == plain.digest


def mutated(text: str, seed: int) -> str:
    """A text with a word put in place of another, or a line left out or repeated."""
    draw = random.Random(seed)
    words = list(re.finditer(r"[\w.@%]+", text))
    for _ in range(draw.randint(1, 2)):
        place, other = draw.choice(words), draw.choice(words)
        text = text[: place.start()] + other[0] + text[place.end() :]
        words = list(re.finditer(r"[\w.@%]+", text))
    lines = text.split("\n")
    if draw.random() < 0.3:
        lines.insert(draw.randrange(len(lines)), lines.pop(draw.randrange(len(lines))))
    return "\n".join(lines)


def test_mutated_text_is_a_program_or_refused(tmp_path: Path) -> None:
    texts = [network().text, SEVERAL.replace("loss", "main"), OPEN, NESTED, *BARE.values()]
    outcomes: dict[bool, int] = {True: 0, False: 0}
    for seed in range(400):
        path = written(tmp_path / "mutated.mlir", mutated(texts[seed % len(texts)], seed))
        try:
            program = pcp.load(path, shapes=[(2, 3), None] if texts[seed % len(texts)] == OPEN else None)
            assert program.digest == Program.parse(program.text).digest
            outcomes[True] += 1
        except PCPError:
            outcomes[False] += 1
    assert min(outcomes.values()) > 5


def test_what_happens_to_the_child_is_said(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(unchecked, "_CHILD", "import os, signal; os.kill(os.getpid(), signal.SIGSEGV)")
    with pytest.raises(
        CorruptProgram, match=r"model: the program is damaged: MLIR's reader ended with SIGSEGV"
    ):
        pcp.load(written(tmp_path / "model", network().bytecode))
    monkeypatch.setattr(unchecked, "_CHILD", "import sys; sys.exit(7)")
    with pytest.raises(CorruptProgram, match=r"MLIR's reader ended with code 7; copy it again"):
        reread(network().bytecode)
    monkeypatch.setattr(unchecked, "_CHILD", "while True: pass")
    with pytest.raises(CorruptProgram, match=r"MLIR's reader did not finish within 0\.2 s"):
        reread(network().bytecode, seconds=0.2)


def test_an_export_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    raw = (SAVED / "one.jax_export").read_bytes()
    with pytest.raises(
        CorruptProgram, match=r"cut: it is cut off: it has 700 bytes and announces \d+ or more"
    ):
        pcp.load(written(tmp_path / "cut", raw[:700]))
