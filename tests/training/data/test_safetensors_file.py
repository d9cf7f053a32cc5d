"""Safetensors files: equal to what the package `safetensors` writes and reads, and refused when damaged."""

import hashlib
import io
import json
import struct
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import safetensors.numpy
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from pcp.training.data.safetensors_file import (
    SafetensorsCorrupt,
    SafetensorsForeign,
    SafetensorsTruncated,
    UnsupportedArray,
    map_arrays,
    read_arrays,
    view_arrays,
    write_arrays,
)

DTYPES = [
    *(np.dtype(name) for name in ["f2", "f4", "f8", "i1", "i2", "i4", "i8", "u1", "u2", "u4", "u8", "?"]),
    np.dtype(ml_dtypes.bfloat16),
    np.dtype(ml_dtypes.float8_e4m3fn),
    np.dtype(ml_dtypes.float8_e5m2),
]


@st.composite
def any_array(draw: st.DrawFn) -> Any:
    dtype = draw(st.sampled_from(DTYPES))
    shape = draw(hnp.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=5))
    raw = draw(st.integers(0, 2**32 - 1))
    size = int(np.prod(shape, dtype=int))
    data = np.random.default_rng(raw).integers(
        0, 2 if dtype == np.bool_ else 256, size * dtype.itemsize, np.uint8
    )
    array = data.view(dtype).reshape(shape)
    return draw(
        st.sampled_from([array, np.asfortranarray(array), array[..., ::-1] if array.ndim else array, array.T])
    )


def written(arrays: dict[str, Any], path: Path) -> str:
    with path.open("wb") as file:
        return write_arrays(file, arrays)


@given(
    st.dictionaries(st.text(min_size=1, max_size=8).filter(lambda name: name != "__metadata__"), any_array())
)
def test_there_and_back_bit_for_bit(tmp_path_factory: pytest.TempPathFactory, arrays: dict[str, Any]) -> None:
    path = tmp_path_factory.mktemp("arrays") / "a.safetensors"
    digest = written(arrays, path)
    assert digest == hashlib.sha256(path.read_bytes()).hexdigest()
    read, read_digest = read_arrays(path)
    assert read_digest == digest
    assert read.keys() == arrays.keys()
    for name, array in arrays.items():
        assert read[name].dtype == array.dtype
        assert read[name].shape == array.shape
        assert read[name].tobytes() == array.tobytes()
        assert read[name].flags.writeable
        assert read[name].flags.c_contiguous


def test_the_package_reads_what_is_written_and_the_other_way_round(tmp_path: Path) -> None:
    generator = np.random.default_rng(3)
    arrays = {
        "weight": generator.normal(size=(3, 5)),
        "scale": generator.normal(size=7).astype(np.float32),
        "half": generator.normal(size=(2, 2)).astype(ml_dtypes.bfloat16),
        "count": np.array(12, np.int64),
        "mask": np.array([True, False, True]),
    }
    written(arrays, tmp_path / "ours")
    theirs = safetensors.numpy.load_file(tmp_path / "ours")
    safetensors.numpy.save_file(arrays, tmp_path / "theirs", metadata={"format": "np"})
    ours, _ = read_arrays(tmp_path / "theirs")
    for name, array in arrays.items():
        for read in (theirs[name], ours[name]):
            assert read.shape == array.shape
            assert read.dtype == array.dtype
            assert read.tobytes() == array.tobytes()


def test_big_endian_arrays_keep_their_values(tmp_path: Path) -> None:
    array = np.arange(5, dtype=">f8")
    written({"a": array}, tmp_path / "a")
    assert read_arrays(tmp_path / "a")[0]["a"].tolist() == array.tolist()


@pytest.mark.parametrize("dtype", [np.complex64, object, "U3", ml_dtypes.int4])
def test_unsupported_dtypes_are_named(dtype: Any) -> None:
    file = io.BytesIO()
    with pytest.raises(
        UnsupportedArray, match=f"Array 'x' has dtype {np.dtype(dtype)}; a safetensors file holds"
    ):
        write_arrays(file, {"x": np.zeros(3, dtype)})
    assert file.getvalue() == b""


def test_foreign_files(tmp_path: Path) -> None:
    for content in (b"", b"PK\3\4 a zip archive", b"\x80\0\0\0\0\0\0\0[1, 2]"):
        (tmp_path / "f").write_bytes(content)
        with pytest.raises(SafetensorsForeign, match="is not a safetensors file: it begins with"):
            read_arrays(tmp_path / "f")


def test_truncated_at_every_length(tmp_path: Path) -> None:
    written({"a": np.arange(4.0), "b": np.arange(3, dtype=np.int8)}, tmp_path / "f")
    content = (tmp_path / "f").read_bytes()
    for length in range(len(content)):
        (tmp_path / "f").write_bytes(content[:length])
        kind = SafetensorsForeign if length < 8 else SafetensorsTruncated
        with pytest.raises(kind, match=r"is not a safetensors file|is incomplete"):
            read_arrays(tmp_path / "f")


def header_file(path: Path, header: object, data: bytes = b"12345678") -> Path:
    text = json.dumps(header).encode()
    path.write_bytes(struct.pack("<Q", len(text)) + text + data)
    return path


@pytest.mark.parametrize(
    ("header", "message"),
    [
        (
            {"a": {"dtype": "F32", "shape": [2], "data_offsets": [4, 12]}},
            r"array 'a' of shape \(2,\) and dtype float32",
        ),
        ({"a": {"dtype": "F32", "shape": [3], "data_offsets": [0, 8]}}, "which does not fit"),
        ({"a": {"dtype": "F32", "shape": [1 << 62, 4], "data_offsets": [0, 8]}}, "no array is like that"),
        (
            {"a": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}},
            "has 4 bytes more than its header says",
        ),
        ({"a": {"dtype": "F99", "shape": [2], "data_offsets": [0, 8]}}, "header cannot be read: KeyError"),
        ({"a": {"dtype": "F32", "shape": [-2], "data_offsets": [0, 8]}}, "not a whole number"),
        ({"a": {"dtype": "F32", "shape": [2.0], "data_offsets": [0, 8]}}, "not a whole number"),
        ({"a": {"dtype": "F32", "shape": [2]}}, "header cannot be read: KeyError"),
        ({"a": 3}, "header cannot be read: TypeError"),
        ({"a": {"dtype": "F32", "shape": [1] * 100, "data_offsets": [0, 4]}}, "has 100 dimensions"),
        (
            {"a": {"dtype": "F32", "shape": [0, 1 << 70], "data_offsets": [0, 0]}},
            "not a whole number below 2",
        ),
        ({"a": {"dtype": "F32", "shape": [0] * 10**6, "data_offsets": [0, 0]}}, "has 1000000 dimensions"),
        ({"a": {"dtype": "F32", "shape": {}, "data_offsets": [0, 4]}}, "has a shape that is no list"),
        ({"a": {"dtype": "F32", "shape": "", "data_offsets": [0, 4]}}, "has a shape that is no list"),
        ({"a": {"dtype": "F32", "shape": [0, 1 << 62, 8], "data_offsets": [0, 0]}}, "no array is like that"),
    ],
)
def test_inconsistent_headers(header: object, message: str, tmp_path: Path) -> None:
    with pytest.raises(SafetensorsCorrupt, match=message):
        read_arrays(header_file(tmp_path / "f", header))


def test_a_header_of_nested_brackets(tmp_path: Path) -> None:
    text = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}"
    (file := tmp_path / "f").write_bytes(len(text).to_bytes(8, "little") + text)
    for read in (read_arrays, map_arrays):
        with pytest.raises(SafetensorsCorrupt, match="the header cannot be read: RecursionError"):
            read(file)


def test_a_header_that_promises_more_than_the_file_has(tmp_path: Path) -> None:
    header = {"a": {"dtype": "F32", "shape": [1 << 40], "data_offsets": [0, 1 << 42]}}
    with pytest.raises(SafetensorsTruncated, match="places array 'a' up to byte"):
        read_arrays(header_file(tmp_path / "f", header))


def test_arrays_in_memory_and_in_a_mapped_file_are_views(tmp_path: Path) -> None:
    arrays = {
        "a": np.arange(6, dtype=np.float32).reshape(2, 3),
        "b": np.arange(5, dtype=np.int8),
        "c": np.float64(2.5),
    }
    path = tmp_path / "file"
    with path.open("wb") as file:
        write_arrays(file, {name: np.asarray(array) for name, array in arrays.items()})
    content = np.frombuffer(path.read_bytes(), np.uint8)
    for found in (view_arrays(path, content), map_arrays(path)):
        assert set(found) == set(arrays)
        for name, array in found.items():
            np.testing.assert_array_equal(array, arrays[name])
            assert not array.flags.writeable
    assert all(np.shares_memory(array, content) for array in view_arrays(path, content).values())


@pytest.mark.parametrize(
    ("content", "error"),
    [
        (b"", SafetensorsForeign),
        (b"\xff" * 40, SafetensorsForeign),
        (struct.pack("<Q", 90) + b"{}", SafetensorsTruncated),
    ],
)
def test_views_of_what_is_damaged_are_refused(tmp_path: Path, content: bytes, error: type[Exception]) -> None:
    path = tmp_path / "file"
    path.write_bytes(content)
    with pytest.raises(error):
        view_arrays(path, np.frombuffer(content, np.uint8))
    with pytest.raises(error):
        map_arrays(path)
