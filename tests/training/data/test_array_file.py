"""Files of arrays that somebody made up: what they unpack to is bounded, and nothing but UnreadableFile comes of them."""

import contextlib
import io
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from random import Random

import numpy as np
import pytest

from pcp.training.data import array_file
from pcp.training.data.array_file import UnreadableFile, map_array_file, read_array_file


def npy(shape: str, dtype: str = "<f4", data: bytes = b"") -> bytes:
    """An array's file whose header says this."""
    header = f"{{'descr': {dtype!r}, 'fortran_order': False, 'shape': {shape}, }}".ljust(117).encode() + b"\n"
    return b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + data


def npz(path: Path, *entries: tuple[str, bytes]) -> Path:
    with warnings.catch_warnings(), zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        warnings.simplefilter("ignore")
        for name, content in entries:
            archive.writestr(name, content)
    return path


def test_what_unpacks_to_more_than_the_memory_is_refused_first(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = npz(tmp_path / "x.npz", ("a.npy", npy("(1000000,)", data=bytes(4_000_000))))
    assert path.stat().st_size < 10_000
    assert read_array_file(path)["a"].shape == (1_000_000,)
    monkeypatch.setattr(array_file, "memory_bytes", lambda: 1_000_000)
    with pytest.raises(
        UnreadableFile,
        match=r"x.npz: it unpacks to 4000128 bytes, and this machine has 1000000 bytes of memory; expected",
    ):
        read_array_file(path)


def test_a_name_that_is_there_twice_is_refused(tmp_path: Path) -> None:
    path = npz(tmp_path / "x.npz", ("a.npy", npy("(0,)")), ("a.npy", npy("(0,)")))
    with pytest.raises(UnreadableFile, match=r"'a.npy' is in it 2 times; expected what np.savez writes"):
        read_array_file(path)


@pytest.mark.parametrize(
    "content",
    [
        npy("(10**15,)"),
        npy("(1000000000000000,)"),
        npy("(9223372036854775807, 9223372036854775807)"),
        npy("(18446744073709551616,)"),
        npy("(-1,)"),
        npy("(2.5,)"),
        npy("[3]"),
        npy("(1,)", dtype="|O", data=bytes(8)),
        npy("(1,)", dtype="<f99", data=bytes(99)),
        npy("(" * 50 + ")" * 50),
        npy("(1,)", data=bytes(2)),
        b"\x93NUMPY\x01\x00\xff\xff" + b"(" * 65535,
        b"\x93NUMPY\x09\x00",
        b"no array",
        b"",
    ],
    ids=lambda content: repr(content[10:70]),
)
def test_arrays_that_are_none_are_refused(content: bytes, tmp_path: Path) -> None:
    with pytest.raises(
        UnreadableFile, match=r"cannot read arrays from .*x.npz: .*; expected what np.savez writes"
    ):
        read_array_file(npz(tmp_path / "x.npz", ("a.npy", content)))


def damaged(content: bytes, random: Random) -> bytes:
    changed = bytearray(content)
    for _ in range(random.choice((1, 2, 8))):
        changed[random.randrange(len(changed))] = random.choice((0, 1, 8, 127, 255, random.randrange(256)))
    del changed[random.choice((len(changed), len(changed), random.randrange(len(changed)))) :]
    return bytes(changed)


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_no_damage_is_anything_but_an_unreadable_file(save: Callable[..., None], tmp_path: Path) -> None:
    made, random, path = io.BytesIO(), Random(1), tmp_path / "x.npz"
    save(made, a=np.arange(9.0), b=np.zeros((2, 3), np.int8))
    for _ in range(600):
        path.write_bytes(damaged(made.getvalue(), random))
        with contextlib.suppress(UnreadableFile), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            read_array_file(path)


def test_arrays_are_mapped_where_they_lie_as_they_are(tmp_path: Path) -> None:
    random = np.random.default_rng()
    arrays = {
        "a": random.normal(size=(5000, 7)),
        "fortran": np.asfortranarray(random.normal(size=(3, 4))),
        "one": np.float32(3),
        "none": np.zeros((0, 3)),
        "whole": random.integers(0, 9, 6).astype(">i4"),
    }
    np.savez(tmp_path / "stored.npz", **arrays)
    np.savez_compressed(tmp_path / "packed.npz", **arrays)
    for name, mapped in (("stored.npz", {"a", "fortran", "whole"}), ("packed.npz", set())):
        found = map_array_file(tmp_path / name)
        assert found.keys() == arrays.keys()
        for key, array in arrays.items():
            np.testing.assert_array_equal(found[key], array)
            assert found[key].dtype == array.dtype
        assert {key for key, array in found.items() if isinstance(array, np.memmap)} == mapped
    content = bytearray((tmp_path / "stored.npz").read_bytes())
    place = content.find(arrays["a"].tobytes())
    content[place + arrays["a"].nbytes - 1] ^= 1
    (tmp_path / "stored.npz").write_bytes(content)
    with pytest.raises(UnreadableFile, match=r"Bad CRC-32 for file 'a\.npy'"):
        map_array_file(tmp_path / "stored.npz")
