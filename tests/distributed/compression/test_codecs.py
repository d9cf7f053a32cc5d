"""What every codec promises."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.distributed.compression import CODECS, NoVector, PayloadMismatch, codec
from pcp.distributed.round_arithmetic.array_blobs import load_arrays, store_arrays
from pcp.distributed.verification import check
from pcp.distributed.wire.blobs import BlobStore
from pcp.ir.tree import flatten
from tests.distributed.compression.running import (
    decoded,
    decoder,
    encoded,
    encoder,
    normal,
    pushed,
    round_trip,
)

LENGTHS = (1, 300, 4101)
EXACT = ("f32", "bf16", "int8", "int4")
ERROR = {"f32": 0.0, "bf16": 2**-8, "int8": 0.008, "int4": 0.14, "top-k": 0.96}


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", CODECS)
def test_a_vector_comes_back_to_the_precision_of_its_codec(name: str, n: int) -> None:
    x = normal(n)
    back = round_trip(name, x)
    assert (back.shape, back.dtype) == ((n,), np.float32)
    assert np.linalg.norm(back - x) <= ERROR[name] * np.linalg.norm(x)


@pytest.mark.parametrize("n", LENGTHS)
@pytest.mark.parametrize("name", [*CODECS, "int8:64", "int4:256", "top-k:8"])
def test_the_payload_has_the_size_that_is_told_before(name: str, n: int, store: BlobStore) -> None:
    chosen, x = codec(name), normal(n)
    payload = encoded(name, x)
    assert sum(array.nbytes for array in payload.values()) == chosen.payload_bytes(n)
    blob = store_arrays(store, payload)
    assert blob.size == chosen.stored_bytes(n)
    leaves, tree = flatten(payload)
    specs = chosen.payload_specs(n)
    stored = load_arrays(store, blob, tree, [specs[key] for key in sorted(specs)])
    np.testing.assert_array_equal(decoded(name, stored, n), round_trip(name, x))
    assert len(leaves) == len(specs)


@pytest.mark.parametrize("n", [300, 4101])
@pytest.mark.parametrize("name", CODECS)
@pytest.mark.parametrize("size", [1.0, 1e-30, 3e38])
def test_what_is_decoded_and_the_residual_are_the_vector(name: str, n: int, size: float) -> None:
    uniform = np.random.default_rng(n).uniform(-1, 1, n)
    x = (uniform * size).astype(np.float32)
    values, residual = pushed(name, x)
    np.testing.assert_array_equal(values, round_trip(name, x))  # one Program or two
    np.testing.assert_array_equal(residual, x - values)
    if name in EXACT:
        np.testing.assert_array_equal(values + residual, x)
    else:
        np.testing.assert_array_less(
            abs(values.astype(np.float64) + residual - x),
            np.spacing(np.maximum(abs(x), abs(values))) * 0.51,
        )


def test_a_residual_that_is_fed_back_loses_nothing_over_many_rounds() -> None:
    n = 4101
    for name in CODECS:
        given, sent, residual = np.zeros(n), np.zeros(n), np.zeros(n, np.float32)
        for round in range(10):
            x = normal(n, round)
            values, residual = pushed(name, x + residual)
            given, sent = given + x, sent + values
        np.testing.assert_allclose(sent + residual, given, atol=1e-5)


@pytest.mark.parametrize("name", CODECS)
def test_zeros_stay_zeros(name: str) -> None:
    for n in LENGTHS:
        np.testing.assert_array_equal(round_trip(name, np.zeros(n, np.float32)), 0.0)


@pytest.mark.parametrize("name", CODECS)
def test_a_block_of_zeros_does_not_suffer_from_its_neighbours(name: str) -> None:
    x = normal(4101)
    x[128:256] = 0
    np.testing.assert_array_equal(round_trip(name, x)[128:256], 0.0)


@pytest.mark.parametrize("name", CODECS)
def test_numbers_below_the_normal_range_become_themselves_or_zero(name: str) -> None:
    x = (normal(300) * 1e-40).astype(np.float32)
    assert np.count_nonzero(x) == 300
    smallest = np.full(300, np.finfo(np.float32).tiny)
    assert np.isin(round_trip(name, smallest), [0.0, smallest[0]]).all()
    if name == "f32":
        np.testing.assert_array_equal(round_trip(name, x), x)
    elif name == "bf16":
        np.testing.assert_allclose(round_trip(name, x), x, rtol=2**-8, atol=2.0**-133)
    else:
        np.testing.assert_array_equal(round_trip(name, x), 0.0)


@pytest.mark.parametrize("name", CODECS)
def test_the_largest_numbers_stay_finite(name: str) -> None:
    largest = np.finfo(np.float32).max
    for x in (np.full(300, -largest), np.linspace(-1, 1, 4101) * largest):
        x = x.astype(np.float32)
        values, residual = pushed(name, x)
        assert np.isfinite(values).all()
        assert np.isfinite(residual).all()
        assert (
            np.linalg.norm(values / largest - x / largest) <= ERROR[name] * np.linalg.norm(x / largest) * 1.2
        )


@pytest.mark.parametrize("bad", [np.nan, -np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("name", CODECS)
def test_what_is_not_finite_is_never_lost_from_sight(name: str, bad: float) -> None:
    for place in (0, 299):
        x = normal(300)
        x[place] = bad
        back = round_trip(name, x)
        assert not np.isfinite(back[place])
        if name in ("f32", "bf16"):
            np.testing.assert_array_equal(back[place], bad)
            assert np.isfinite(np.delete(back, place)).all()
        else:
            assert np.isnan(back[place])
    many = np.full(4101, bad, np.float32)
    assert not np.isfinite(round_trip(name, many)).all()


@pytest.mark.parametrize("name", CODECS)
def test_a_payload_of_any_bytes_decodes_to_numbers_of_the_right_shape(name: str) -> None:
    chosen, n, rng = codec(name), 4101, np.random.default_rng(5)
    payload = {
        key: np.frombuffer(rng.bytes(spec.size * spec.dtype.itemsize), spec.dtype.numpy).reshape(spec.shape)
        for key, spec in chosen.payload_specs(n).items()
    }
    assert decoded(name, payload, n).shape == (n,)


def test_a_payload_of_another_codec_or_length_is_refused() -> None:
    specs = codec("int8").payload_specs(300)
    with pytest.raises(
        PayloadMismatch,
        match=r"codec 'int8:64': a payload of scales bf16\[3\], values i8\[3,128\] was given for 300 elements; "
        r"expected scales bf16\[5\], values i8\[5,64\]; decode with the codec and the length",
    ):
        pcp.trace(lambda p: codec("int8:64").decode(p, 300), specs)
    with pytest.raises(
        PayloadMismatch, match="a payload of nothing was given for 3 elements; expected values f32"
    ):
        codec("f32").decode({}, 3)


@pytest.mark.parametrize("spec", [pcp.spec((2, 3), "f32"), pcp.spec((3,), "f64"), pcp.spec((0,), "f32")])
def test_only_a_vector_of_f32_is_encoded(spec: Any) -> None:
    with pytest.raises(
        NoVector,
        match=r"codec 'int4': f(32|64)\[.*\] was given; expected a vector of f32 with at least one element",
    ):
        pcp.trace(codec("int4").encode, spec)


DIGESTS = """
import hashlib, sys
from pcp.distributed.compression import CODECS
from tests.distributed.compression.running import encoded, normal
for name in CODECS:
    payload = encoded(name, normal(300, 3))
    print(name, hashlib.sha256(b"".join(payload[key].tobytes() for key in sorted(payload))).hexdigest())
"""


def test_another_process_makes_the_same_bits() -> None:
    root = Path(__file__).parents[3]
    found = subprocess.run(
        [sys.executable, "-c", DIGESTS],
        cwd=root,
        env=os.environ | {"PYTHONPATH": f"{root / 'src'}{os.pathsep}{root}"},
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout
    expected = []
    for name in CODECS:
        for _ in range(2):
            payload = encoded(name, normal(300, 3))
            digest = hashlib.sha256(b"".join(payload[key].tobytes() for key in sorted(payload))).hexdigest()
        expected.append(f"{name} {digest}\n")
    assert found == "".join(expected)


@pytest.mark.parametrize("name", CODECS)
def test_programs_of_codecs_travel(name: str) -> None:
    for program in (encoder(codec(name), 300), decoder(codec(name), 300)):
        check(program)
        assert pcp.Program(program.bytecode).digest == program.digest
