"""A manifest that says something else than is understood is refused, and the message says what would be."""

import os
from pathlib import Path

import pytest

from pcp.ir import DType
from pcp.kernels.candidate import read_candidate
from pcp.kernels.manifest import InvalidCandidate
from pcp.rewrite.row import Effect

MANIFEST = """
name = "softmax.mine"
effect = "lowers precision"
about = "Mine."
entry = "kernel.py:softmax"
"""


def folder(path: Path, manifest: str) -> Path:
    (path / "kernel.toml").write_text(manifest)
    (path / "kernel.py").write_text(
        "def softmax(x, axis):\n    raise SystemExit('this must not be executed')\n"
    )
    (path / "kernel.mlir").write_text("module {}")
    return path


def test_a_manifest_is_read_and_nothing_executed(tmp_path: Path) -> None:
    found = read_candidate(
        folder(
            tmp_path,
            MANIFEST
            + """version = 2
gradient = "kernel.py:gradient"
[tolerance]
f32 = 1e-2
[conditions]
dtypes = ["f32", "bf16"]
forms = ["last_axis"]
nonfinite = "nan"
sizes = { columns = { multiple_of = 32, at_least = 64, at_most = 600 } }
shapes = [{ rows = 3, columns = 96 }]
""",
        )
    )
    assert (found.family, found.file, found.function) == ("softmax", "kernel.py", "softmax")
    assert (found.effect, found.version, found.nonfinite) == (Effect.lowers_precision, 2, "nan")
    assert found.tolerance == {DType.f32: 1e-2}
    sizes = [dict(each.sizes) for each in found.problems]
    assert {each["columns"] % 32 for each in sizes} == {0}
    assert min(each["columns"] for each in sizes) == 64
    assert max(each["columns"] for each in sizes) == 576
    assert {"rows": 3, "columns": 96} in sizes
    assert {each.form for each in found.problems} == {"last_axis"}
    assert {each.dtype for each in found.problems} == {DType.f32, DType.bf16}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (("name =", "names ="), "unknown key 'names'; there are name, effect"),
        (('name = "softmax.mine"', ""), 'name is missing; expected name = "..."'),
        (("softmax.mine", "softmax"), "expected a family, a dot, and lower-case letters"),
        (("softmax.mine", "sorting.mine"), "does not begin with a known family; choose one of product, softmax"),
        (("softmax.mine", "softmax.reciprocal"), "is the name of one of PCP's own kernels"),
        (("lowers precision", "fast"), "effect = 'fast'; expected one of 'exact', 'reassociating', 'lowers precision'"),
        (('"Mine."', "3"), "about = 3; expected a text"),
        (("kernel.py:softmax", "kernel.py"), "entry = 'kernel.py'; expected 'FILE.py:FUNCTION' or 'FILE.mlir'"),
        (("kernel.py:softmax", "other.py:softmax"), "there is no file other.py in the folder"),
        (("kernel.py:softmax", "../kernel.py:softmax"), "lies outside of the folder"),
        (("about", 'gradient = "maybe"\nabout'), "gradient = 'maybe'; expected 'derived', 'reference'"),
        (("about", "version = 0\nabout"), "version = 0; expected a positive integer"),
        (("about", "tolerance = 3\nabout"), "tolerance = 3; expected a table"),
        (("about", "tolerance.f32 = 2\nabout"), "tolerance.f32 = 2; expected a number between 0 and 1"),
        (("about", "tolerance.i32 = 0.1\nabout"), "'i32' is not a floating-point element type"),
        (("about", "conditions.colour = 1\nabout"), "unknown condition 'colour'; there are dtypes, forms"),
        (("about", 'conditions.forms = ["middle"]\nabout'), "family 'softmax' does not have the form 'middle'"),
        (("about", "conditions.sizes.depth.at_least = 2\nabout"), "unknown size 'depth'; there are rows, columns"),
        (("about", "conditions.sizes.rows.below = 2\nabout"), "unknown limit of size 'rows' 'below'; there are multiple_of"),
        (("about", "conditions.sizes.rows.at_least = 0\nabout"), "rows.at_least = 0; expected a positive integer"),
        (("about", "conditions.sizes.rows = { at_least = 9, at_most = 5 }\nabout"), "does not allow any size"),
        (("about", "conditions.sizes.rows = 5\nabout"), "conditions.sizes.rows = 5; expected a table"),
        (("about", "conditions.shapes = [7]\nabout"), "conditions.shapes has 7; expected tables of sizes"),
        (("about", "conditions.shapes = 7\nabout"), "conditions.shapes = 7; expected a list of tables of sizes"),
        (("about", "conditions.shapes = [{ form = [] }]\nabout"), r"family 'softmax' does not have the form \[\]"),
        (("about", "conditions.dtypes = 5\nabout"), r"conditions.dtypes = 5; expected a list of texts, as \['f32'\]"),
        (("about", "conditions.dtypes = []\nabout"), r"conditions.dtypes = \[\]; expected one at least, as \['f32'\]"),
        (("about", "conditions.forms = [[]]\nabout"), r"conditions.forms = \[\[\]\]; expected a list of texts, as \['last"),
        (("about", "conditions.forms = []\nabout"), r"conditions.forms = \[\]; expected one at least"),
        (("about", "conditions.sizes.rows.at_least = 99999999999\nabout"), "elements, which would not fit in memory; expected"),
        (("about", "conditions.shapes = [{ columns = 99999999999 }]\nabout"), "has 6399999999936 elements"),
        (("about", "deterministic = 0\nabout"), "deterministic = 0; expected true or false"),
        (("kernel.py:softmax\"", "kernel.mlir\"\nproblem.sizes = 5"), "sizes = 5; expected a table"),
        (("kernel.py:softmax\"", "kernel.mlir\"\nproblem.form = []"), r"does not have the form \[\]"),
        (("about", "conditions.shapes = [{ rows = -1 }]\nabout"), "expected a positive integer for each of rows, columns"),
        (("about", 'conditions.nonfinite = "zero"\nabout'), "expected one of 'exact', 'nan', 'spreads'"),
        (("about", "problem.sizes = { rows = 1 }\nabout"), r"\[problem\] is for kernels in StableHLO"),
        (("kernel.py:softmax", "kernel.mlir"), r"expected a table \[problem\] with form, dtype and sizes"),
        (("name =", "name"), "is not TOML"),
        (("about", "x = " + "[" * 100_000 + "\nabout"), "is not TOML: maximum recursion depth"),
        (("about", "x = " + "9" * 5000 + "\nabout"), "is not TOML: Exceeds the limit"),
    ],
)  # fmt: skip
def test_what_is_not_understood_is_refused(tmp_path: Path, change: tuple[str, str], message: str) -> None:
    changed = MANIFEST.replace(*change, 1)
    assert changed != MANIFEST
    with pytest.raises(InvalidCandidate, match=message) as refusal:
        read_candidate(folder(tmp_path, changed))
    assert str(tmp_path / "kernel.toml") in str(refusal.value)


def test_a_folder_without_a_manifest_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidCandidate, match=r"has no file kernel\.toml; expected a folder with one"):
        read_candidate(tmp_path)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="there are no pipes with names here")
def test_a_manifest_that_never_ends_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "kernel.toml")
    with pytest.raises(InvalidCandidate, match=r"kernel\.toml is no plain file; expected one"):
        read_candidate(tmp_path)


def test_a_manifest_that_is_no_text_is_refused(tmp_path: Path) -> None:
    (tmp_path / "kernel.toml").write_bytes(b"\xff\xfe")
    with pytest.raises(InvalidCandidate, match="cannot be read"):
        read_candidate(tmp_path)
