"""`pcp kernels` lists, verifies and measures kernels."""

import json
from pathlib import Path

import pytest

from pcp.cli import main
from pcp.kernels import FAMILIES, native
from pcp.planning.measuring.measurement import Failure
from pcp.planning.profile.database import ProfileDatabase

EXAMPLES = Path(__file__).parent.parent.parent / "examples" / "kernels"


def command(capsys: pytest.CaptureFixture[str], *words: object) -> tuple[int, str, str]:
    code = main([str(word) for word in words])
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_list(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "kernels", "list", "--family", "product")
    assert code == 0
    assert said.startswith("product: sums of products over pairs of axes\n  product.xla:bf16@1 ")
    assert "everywhere  by XLA, sums in float32; operands rounded to bfloat16" in said
    code, said, _ = command(capsys, "kernels", "list", "--family", "softmax_gradient", "--json")
    rows = [json.loads(line) for line in said.splitlines()]
    assert {row["family"] for row in rows} == {"softmax_gradient"}
    assert all(0 < row["applies_to"] <= row["problems"] for row in rows)


def test_list_of_a_family_builds_no_other_libraries(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(native, "missing", lambda name: asked.append(name) or "no")
    assert command(capsys, "kernels", "list", "--family", "cross_entropy")[0] == 0
    assert set(asked) == {"cross_entropy"}


def test_the_example_in_text_is_accepted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    words = ("--seed", "7", "--json", "--database", tmp_path / "profile.sqlite")
    code, said, noted = command(capsys, "kernels", "verify", EXAMPLES / "product_text", *words)
    assert f"kept in {tmp_path / 'profile.sqlite'}" in noted
    [row] = ProfileDatabase(tmp_path / "profile.sqlite").measurements()
    assert (row.path, row.failure) == ("product.bf16_text@1", None)
    assert 0 < row.ratio < 100
    assert row.error is not None
    assert 1e-4 < row.error < 5e-3
    found = json.loads(said)
    assert (code, found["accepted"], found["seed"], found["problems"]) == (0, True, 7, 1)
    assert found["tolerances"] == {"f32": 0.005}
    assert found["tried"]["sizes"] == {"b": [1, 1], "m": [64, 64], "k": [128, 128], "n": [96, 96]}
    assert found["tried"]["calls"] == 30
    assert row.detail.startswith(
        "tried on f32; forms plain; b 1 to 1, m 64 to 64, k 128 to 128, n 96 to 96, arrays of up to"
    )
    assert found["findings"] == []
    assert found["time_ratio"] > 0


@pytest.mark.long
def test_the_example_in_python_is_accepted(capsys: pytest.CaptureFixture[str]) -> None:
    code, said, _ = command(capsys, "kernels", "verify", EXAMPLES / "softmax_bf16")
    assert code == 0, said
    assert "softmax.bf16_exponentials: accepted (" in said
    assert "rows 1 to 12288, columns 1 to 1048577" in said
    assert "disposable and user's processes" in said
    assert "plans verify it at their sites before they use it" in said


@pytest.fixture
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PCP_DATA_DIR", str(tmp_path / "data"))
    return tmp_path / "data" / "kernels"


def test_one_is_added_listed_and_removed(
    own_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("--seed", "7", "--database", tmp_path / "profile.sqlite")
    code, said, _ = command(capsys, "kernels", "add", EXAMPLES / "product_text", *words)
    assert code == 0
    assert "product.bf16_text: accepted (1 problems" in said
    [place] = own_store.glob("*/verdict.json")
    assert f"added product.bf16_text#{place.parent.name[:32]}: plans with a tolerance may choose it" in said
    code, said, noted = command(capsys, "kernels", "add", EXAMPLES / "product_text", "--json")
    assert (code, noted) == (0, "")  # the same content was verified before
    assert json.loads(said)["verdict"]["accepted"]
    code, said, _ = command(capsys, "kernels", "list", "--family", "product")
    assert "  product.bf16_text@1 " in said
    assert f"added {place.parent.name[:12]}, tolerance f32 0.005; " in said
    code, said, _ = command(capsys, "kernels", "remove", "product.bf16_text")
    assert (code, said) == (0, f"removed product.bf16_text#{place.parent.name[:32]}\n")
    code, _, noted = command(capsys, "kernels", "remove", "product.bf16_text")
    assert code == 2
    assert "no kernel named 'product.bf16_text' was added; there are none at all" in noted
    assert not list(own_store.glob("*/content"))


def test_a_bad_one_is_not_added(own_store: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "product_text" / "kernel.mlir").read_text()
    folder = tmp_path / "kernel"
    folder.mkdir()
    (folder / "kernel.mlir").write_text(
        text.replace("return %2", "%3 = stablehlo.negate %2 : tensor<64x96xf32>\n  return %3")
    )
    (folder / "kernel.toml").write_text((EXAMPLES / "product_text" / "kernel.toml").read_text())
    code, said, _ = command(capsys, "kernels", "add", folder, "--database", tmp_path / "profile.sqlite")
    assert code == 3
    assert "product.bf16_text: refused (1 problems" in said
    (folder / "kernel.mlir").write_text(
        text.replace(
            "return %2",
            "%3 = stablehlo.custom_call @secret(%2) : (tensor<64x96xf32>) -> tensor<64x96xf32>\n  return %3",
        )
    )
    code, _, noted = command(capsys, "kernels", "add", folder)
    assert code == 2
    assert "calls secret, which is not part of its program, and PCP has no handler for" in noted
    assert not list(own_store.glob("*/content"))


def test_a_bad_one_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = (EXAMPLES / "product_text" / "kernel.mlir").read_text()
    (tmp_path / "kernel.mlir").write_text(
        text.replace("return %2", "%3 = stablehlo.negate %2 : tensor<64x96xf32>\n  return %3")
    )
    (tmp_path / "kernel.toml").write_text((EXAMPLES / "product_text" / "kernel.toml").read_text())
    file = tmp_path / "profile.sqlite"
    code, said, _ = command(capsys, "kernels", "verify", tmp_path, "--seed", "7", "--database", file)
    assert code == 3
    [row] = ProfileDatabase(file).measurements()
    assert (row.failure, row.seconds, row.error) == (Failure.inaccurate, (), None)
    assert row.detail.startswith("wrong: the error of result 0 is 2; the tolerance is 0.01")
    assert "product.bf16_text: refused (1 problems" in said
    assert (
        "wrong: the error of result 0 is 2; the tolerance is 0.01 [product (plain): x f32[64,128], y f32[128,96]]"
        in said
    )
    (tmp_path / "kernel.toml").write_text(
        (EXAMPLES / "product_text" / "kernel.toml").read_text().replace("m = 64", "m = 65")
    )
    file.write_bytes(b"this is no database" * 100)
    code, said, noted = command(capsys, "kernels", "verify", tmp_path, "--json", "--database", file)
    assert "what was measured is not kept: " in noted
    [finding] = json.loads(said)["findings"]
    assert finding["fault"] == "wrong shape"
    assert "it takes f32[64,128], f32[128,96]; expected f32[65,128], f32[128,96]" in finding["detail"]


def test_bench_keeps_what_it_measures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "profile.sqlite"
    code, said, _ = command(
        capsys, "kernels", "bench", "softmax", "--seconds", "0.05", "--database", file, "--json"
    )
    rows = [json.loads(line) for line in said.splitlines()]
    assert code == 0
    assert {"softmax.reciprocal"} <= {row["kernel"] for row in rows} <= set(FAMILIES["softmax"].kernels)
    assert all(row["failure"] is None and row["ratio"] > 0 for row in rows)
    kept = ProfileDatabase(file).measurements()
    assert {(each.subject, each.path) for each in kept} == {
        (row["subject"], f"{row['kernel']}@1") for row in rows
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (("verify",), "`pcp kernels verify` needs a folder with a kernel.toml; none was given"),
        (("bench",), "`pcp kernels bench` needs a family; none was given"),
        (("add",), "`pcp kernels add` needs a folder with a kernel.toml; none was given"),
        (("remove",), "`pcp kernels remove` needs the name of a kernel; none was given"),
        (("bench", "sorting"), "there is no family 'sorting'; choose one of attention"),
        (("list", "softmax"), "`pcp kernels list` takes no 'softmax'; name a family with --family"),
        (("list", "--family", "sorting"), "there is no family 'sorting'; choose one of attention"),
        (("verify", "no_such_folder"), "no_such_folder has no file kernel.toml"),
        (("verify", "x", "--memory", "0"), "argument --memory: '0' is not a size; give a number and a unit"),
        (("verify", "x", "--seconds", "-1"), "--seconds -1 was given; expected a number above 0"),
    ],
)
def test_what_is_given_wrongly_is_said(
    words: tuple[str, ...], message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = command(capsys, "kernels", *words)
    assert code == 2
    assert message in said
