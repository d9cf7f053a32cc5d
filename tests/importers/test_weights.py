"""Weights go from a file to the device by name, in one copy, or are refused by name."""

import json
import re
import tracemalloc
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest

import pcp
from pcp.backends.host_memory import is_read_only
from pcp.importers.weights import NoWeights, WeightsUnreadable
from pcp.ir.tree import map_tree
from pcp.models.names import WeightsMismatch
from pcp.training.data.safetensors_file import SafetensorsCorrupt, SafetensorsForeign, write_arrays

RANDOM = np.random.default_rng(0)
TENSORS = {
    "layers.0.w": RANDOM.normal(size=(3, 4)).astype(np.float32),
    "layers.1.w": RANDOM.normal(size=(4, 2)).astype(ml_dtypes.bfloat16),
    "odd": np.arange(3, dtype=np.int8),
    "scale": np.array(2.5, np.float64),
    "empty": np.zeros((0, 3), np.float32),
}
NESTED = {
    "layers": [{"w": TENSORS["layers.0.w"]}, {"w": TENSORS["layers.1.w"]}],
    **{name: TENSORS[name] for name in ("odd", "scale", "empty")},
}


def write(path: Path, tensors: dict[str, Any]) -> Path:
    with path.open("wb") as file:
        write_arrays(file, tensors)
    return path


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return write(tmp_path / "model.safetensors", TENSORS)


def assert_same(given: Any, expected: Any) -> None:
    map_tree(lambda a, b: np.testing.assert_array_equal(np.asarray(a), b), given, expected)


def test_every_type_arrives_as_it_was(path: Path) -> None:
    for place in (path, str(path), path.parent):
        loaded = pcp.load_weights(place, pcp.specs_of(NESTED))
        assert_same(loaded, NESTED)
        assert loaded["layers"][1]["w"].dtype == ml_dtypes.bfloat16


def test_mapped_weights_stay_in_their_file(path: Path) -> None:
    mapped = pcp.load_weights(path, pcp.specs_of(NESTED), mapped=True)
    assert_same(mapped, NESTED)
    for array in (mapped["layers"][0]["w"], mapped["odd"], mapped["scale"]):
        assert is_read_only(array)
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
    x, w = np.ones((2, 3), np.float32), mapped["layers"][0]["w"]
    program = pcp.trace(lambda w, x: x @ w, w, x)
    np.testing.assert_allclose(pcp.plan(program, "arena:cpu", mapped=["w"]).run(w, x), x @ w, rtol=1e-6)
    with pytest.raises(WeightsMismatch, match="missing"):
        pcp.load_weights(path, {"other": pcp.spec((2,), "f32")}, mapped=True)


def test_a_program_says_what_it_needs(path: Path) -> None:
    one = pcp.trace(lambda p, x: x @ p["layers"][0]["w"], NESTED, pcp.spec((2, 3), "f32"))
    weights = pcp.load_weights(path, one)
    assert_same(weights, NESTED)
    x = RANDOM.normal(size=(2, 3)).astype(np.float32)
    np.testing.assert_allclose(pcp.plan(one).bind(weights).run(x), x @ TENSORS["layers.0.w"], rtol=1e-5)
    two = pcp.trace(
        lambda w, x, odd: (x @ w, odd), TENSORS["layers.0.w"], pcp.spec((2, 3), "f32"), TENSORS["odd"]
    )
    w, odd = pcp.load_weights(path, two, rename={"w": "layers.0.w"}, allow_unused=True)
    assert_same((w, odd), (TENSORS["layers.0.w"], TENSORS["odd"]))
    with pytest.raises(NoWeights, match=r"the program has no argument that consists of weights only"):
        pcp.load_weights(path, pcp.trace(lambda x: x, pcp.spec((2,), "f32")))


def test_names_are_mapped(path: Path) -> None:
    like = {"first": pcp.spec((3, 4), "f32"), "odd": pcp.spec((3,), "i8")}
    for rename in ({"first": "layers.0.w"}, lambda name: name.replace("first", "layers.0.w")):
        loaded = pcp.load_weights(path, like, rename=rename, allow_unused=True)
        assert_same(loaded, {"first": TENSORS["layers.0.w"], "odd": TENSORS["odd"]})


def test_an_index_of_several_files(tmp_path: Path) -> None:
    parts = {"a.safetensors": list(TENSORS)[:2], "b.safetensors": list(TENSORS)[2:]}
    for file, names in parts.items():
        write(tmp_path / file, {name: TENSORS[name] for name in names})
    index = tmp_path / "model.safetensors.index.json"
    places = {name: file for file, names in parts.items() for name in names}
    index.write_text(json.dumps({"metadata": {}, "weight_map": places}))
    for place in (index, tmp_path):
        assert_same(pcp.load_weights(place, pcp.specs_of(NESTED)), NESTED)
    for changed, message in [
        ({"odd": "../b.safetensors"}, r"'../b.safetensors' is not the name of a file beside the index"),
        ({"odd": "a.safetensors"}, r"places 1 \(odd\) in files that do not hold them"),
        ({"odd": "c.safetensors"}, r"places tensors in .*c\.safetensors, which is not there; copy that file"),
    ]:
        index.write_text(json.dumps({"weight_map": places | changed}))
        with pytest.raises(WeightsUnreadable, match=message):
            pcp.load_weights(index, pcp.specs_of(NESTED))
    index.write_text("[]")
    with pytest.raises(
        WeightsUnreadable, match=r"is not an index of safetensors files; expected names mapped to files"
    ):
        pcp.load_weights(index, pcp.specs_of(NESTED))


def test_what_does_not_fit_is_listed_with_its_neighbours(path: Path) -> None:
    like = {
        "layer": [{"w": pcp.spec((3, 4), "f32")}],
        "odd": pcp.spec((3,), "i16"),
        "scale": pcp.spec((1,), "f64"),
    }
    with pytest.raises(WeightsMismatch) as caught:
        pcp.load_weights(path, like)
    assert re.sub(r".*model", "model", str(caught.value)).splitlines() == [
        "model.safetensors does not hold these weights; map names with rename=, or leave tensors out with "
        "allow_unused=True:",
        "  missing: 1 (layer.0.w (like layers.0.w?))",
        "  unexpected: 3 (empty, layers.0.w (like layer.0.w?), layers.1.w (like layer.0.w?))",
        "  wrong shape or element type: 2 (odd is int8[3], expected i16[3], "
        "scale is float64[], expected f64[1])",
    ]


def test_files_that_are_none_are_refused(tmp_path: Path, path: Path) -> None:
    with pytest.raises(
        WeightsUnreadable, match=r"there is no file .*absent\.safetensors; give a file of weights"
    ):
        pcp.load_weights(tmp_path / "absent.safetensors", {})
    (tmp_path / "text").write_text("hello, weights")
    with pytest.raises(SafetensorsForeign, match="is not a safetensors file"):
        pcp.load_weights(tmp_path / "text", {})
    path.write_bytes(path.read_bytes() + b"\0")
    with pytest.raises(SafetensorsCorrupt, match="1 bytes more than its header says"):
        pcp.load_weights(path, pcp.specs_of(NESTED))


def test_one_copy_and_no_other(tmp_path: Path) -> None:
    tensors = {"a": RANDOM.random((1 << 20,)), "b": RANDOM.random((1 << 20) + 1)}
    size = sum(array.nbytes for array in tensors.values())
    path = write(tmp_path / "large.safetensors", tensors)
    # A blank more in the header, so that the tensors lie at addresses that no element type likes.
    length, rest = int.from_bytes(path.read_bytes()[:8], "little"), path.read_bytes()[8:]
    path.write_bytes((length + 1).to_bytes(8, "little") + rest[:length] + b" " + rest[length:])
    like = pcp.specs_of(tensors)
    pcp.load_weights(path, like)  # whatever is made once
    tracemalloc.start()
    try:
        before = anonymous_bytes()
        loaded = pcp.load_weights(path, like)
        grown = anonymous_bytes() - before
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert peak < size / 50  # NumPy tells tracemalloc of what it allocates
    assert grown < size * 1.2
    written = path.read_bytes()
    path.write_bytes(bytes(len(written)))  # the device's arrays are not the file's
    assert_same(loaded, tensors)


def anonymous_bytes() -> int:
    status = Path("/proc/self/status").read_text(encoding="ascii")
    return int(re.findall(r"RssAnon:\s+(\d+) kB", status)[0]) * 1024


def test_weights_go_to_a_device_of_any_backend(path: Path) -> None:
    like = {name: pcp.spec(array.shape, array.dtype) for name, array in TENSORS.items()}
    placed = pcp.load_weights(path, like, "arena:cpu")
    assert {type(leaf).__name__ for leaf in placed.values()} == {"ArenaArray"}
    assert_same(placed, TENSORS)
