"""Arrays as blobs: what comes back, and every kind of blob that is refused."""

import io
import json
from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.distributed.tiny_run import assert_equal_arrays

from pcp.distributed.messages import Blob
from pcp.distributed.round_arithmetic.array_blobs import (
    SPARE_HEADER_BYTES,
    AmbiguousNames,
    ArraysRefused,
    load_arrays,
    store_arrays,
)
from pcp.distributed.wire import BlobMissing, BlobStore
from pcp.ir import TensorSpec, Tree
from pcp.ir.tree import flatten
from pcp.ir.types import dtype_of
from pcp.training.data.safetensors_file import write_arrays

GENERATOR = np.random.default_rng(0)
VALUE = {
    "params": {"w": GENERATOR.standard_normal((3, 4)).astype(np.float32), "b": np.float32(0.5)},
    "count": np.arange(5, dtype=np.int32),
    "short": [GENERATOR.standard_normal(6).astype(ml_dtypes.bfloat16)],
}


def layout_of(value: Any) -> tuple[Tree, list[TensorSpec]]:
    leaves, tree = flatten(value)
    return tree, [TensorSpec(np.shape(leaf), dtype_of(leaf.dtype)) for leaf in leaves]


def store_named(store: BlobStore, arrays: dict[str, Any]) -> Blob:
    file = io.BytesIO()
    write_arrays(file, arrays)
    return store.put(file.getvalue())


def named(value: Any) -> dict[str, Any]:
    leaves, tree = flatten(value)
    return {name: np.asarray(leaf) for name, leaf in zip(tree.names(), leaves, strict=True)}


def test_arrays_come_back_and_equal_arrays_are_one_blob(store: BlobStore) -> None:
    blob = store_arrays(store, VALUE)
    assert_equal_arrays(load_arrays(store, blob, *layout_of(VALUE), finite=True), VALUE)
    again = {key: VALUE[key] for key in reversed(VALUE)}
    assert store_arrays(store, again) == blob


def test_no_arrays_at_all_are_a_blob_too(store: BlobStore) -> None:
    assert load_arrays(store, store_arrays(store, {}), *layout_of({})) == {}


def test_two_arrays_of_one_name_are_refused(store: BlobStore) -> None:
    with pytest.raises(AmbiguousNames, match="2 arrays have only 1 names between them"):
        store_arrays(store, {"a.b": np.ones(2), "a": {"b": np.zeros(2)}})


def without(name: str) -> dict[str, Any]:
    return {key: array for key, array in named(VALUE).items() if key != name}


@pytest.mark.parametrize(
    ("arrays", "message"),
    [
        (lambda: without("count"), "other arrays than expected; the first is 'count'"),
        (lambda: named(VALUE) | {"zzz": np.ones(1)}, "other arrays than expected; the first is 'zzz'"),
        (
            lambda: named(VALUE) | {"count": np.arange(6, dtype=np.int32)},
            r"array 'count' of blob \w+ is int32\[6\]; expected i32\[5\]",
        ),
        (
            lambda: named(VALUE) | {"count": np.arange(5, dtype=np.uint32)},
            r"array 'count' of blob \w+ is uint32\[5\]; expected i32\[5\]",
        ),
        (
            lambda: named(VALUE) | {"params.w": np.full((3, 4), np.nan, np.float32)},
            r"array 'params.w' of blob \w+ holds infinities or NaN",
        ),
        (
            lambda: named(VALUE) | {"short.0": np.array([0, 1, 2, 3, 4, np.inf], ml_dtypes.bfloat16)},
            r"array 'short.0' of blob \w+ holds infinities or NaN",
        ),
    ],
)
def test_other_arrays_are_refused(
    store: BlobStore, arrays: Callable[[], dict[str, Any]], message: str
) -> None:
    with pytest.raises(ArraysRefused, match=message):
        load_arrays(store, store_named(store, arrays()), *layout_of(VALUE), finite=True)


def test_numbers_that_only_float64_can_hold_are_finite(store: BlobStore) -> None:
    value = {"wide": np.array([1e300])}
    assert_equal_arrays(load_arrays(store, store_arrays(store, value), *layout_of(value), finite=True), value)


def test_nan_is_let_through_where_nobody_asked(store: BlobStore) -> None:
    value = {"w": np.array([np.nan], np.float32)}
    assert np.isnan(load_arrays(store, store_arrays(store, value), *layout_of(value))["w"]).all()


@pytest.mark.parametrize("content", [b"", b"{}", b"\xff" * 64, b"\0" * 64])
def test_bytes_that_are_no_arrays_are_refused(store: BlobStore, content: bytes) -> None:
    with pytest.raises(ArraysRefused, match="is not a file of arrays"):
        load_arrays(store, store.put(content), *layout_of(VALUE))


@pytest.mark.parametrize(
    "header",
    [
        b'{"a":' + b"[" * 10_000 + b"]" * 10_000 + b"}",
        b'{"a":{"dtype":"F32","shape":[' + b",".join([b"1"] * 100) + b'],"data_offsets":[0,4]}}',
        b'{"a":{"dtype":"F32","shape":[0,1180591620717411303424],"data_offsets":[0,0]}}',
    ],
    ids=["nested", "many dimensions", "empty and too large"],
)
def test_a_header_that_no_array_has_is_refused_by_name(store: BlobStore, header: bytes) -> None:
    """Of a member's push; what is no PCPError would end the Shepherd."""
    blob = store.put(len(header).to_bytes(8, "little") + header + bytes(4))
    with pytest.raises(
        ArraysRefused, match=r"is not a file of arrays: .*(cannot be read|no array is like that)"
    ):
        load_arrays(store, blob, *layout_of({"a": np.float32(0)}))


def test_a_header_that_is_longer_than_that_of_what_is_expected_is_not_read(
    store: BlobStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A hundred million bytes of JSON become gigabytes of objects in a Shepherd."""
    blob = store_arrays(store, VALUE)
    whole = store.get(blob)
    start = 8 + int.from_bytes(whole[:8], "little")
    spaces = b" " * (SPARE_HEADER_BYTES + 1)
    length, most = start - 8 + len(spaces), start - 8 + SPARE_HEADER_BYTES
    longer = length.to_bytes(8, "little") + whole[8:start] + spaces + whole[start:]
    load_arrays(store, blob, *layout_of(VALUE))
    monkeypatch.setattr(json, "loads", lambda _: pytest.fail("the header was read"))
    refused = f"has a header of {length} bytes; that of the arrays that are expected has at most {most}"
    with pytest.raises(ArraysRefused, match=refused):
        load_arrays(store, store.put(longer), *layout_of(VALUE))


def test_a_truncated_file_is_refused(store: BlobStore) -> None:
    whole = store.get(store_arrays(store, VALUE))
    for length in (7, 8, 40, len(whole) // 2, len(whole) - 1):
        with pytest.raises(ArraysRefused, match="is not a file of arrays"):
            load_arrays(store, store.put(whole[:length]), *layout_of(VALUE))


def test_a_file_that_was_changed_on_disk_is_refused(store: BlobStore) -> None:
    blob = store_arrays(store, VALUE)
    path = store.path(blob.digest)
    content = bytearray(path.read_bytes())
    content[-1] ^= 1
    path.write_bytes(content)
    with pytest.raises(ArraysRefused, match=r"was changed on disk; its digest is \w{16}"):
        load_arrays(store, blob, *layout_of(VALUE))


def test_a_blob_that_is_not_there_is_missing(store: BlobStore) -> None:
    with pytest.raises(BlobMissing, match="is not in"):
        load_arrays(store, Blob(b"n" * 32, 10), *layout_of(VALUE))
