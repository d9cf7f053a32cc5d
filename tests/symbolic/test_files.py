"""Symbolic programs in files, as bytes and pickled: equal in digest, and damaged ones refused."""

import hashlib
import json
import pickle
import random
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir.program_file import NewerProgram, NotAProgram
from pcp.ir.unchecked import CorruptProgram
from pcp.symbolic import SizesRefused, SymbolicProgram


def attention(x: pcp.Tensor, weights: Any) -> pcp.Tensor:
    q, k = x @ weights["q"], x @ weights["k"]
    scores = q @ pcp.transpose(k, 0, 2, 1) / 4.0
    return (pcp.nn.softmax(scores) @ x).mean()


@pytest.fixture(scope="module")
def program() -> Any:
    weights = {name: pcp.spec((16, 16), "f32", "weight") for name in "qk"}
    return pcp.trace(
        attention, pcp.spec(("batch", "length", 16), "f32"), weights, constraints=["length <= 512"]
    )


def test_it_is_saved_and_loaded(program: Any, tmp_path: Path) -> None:
    program.save(tmp_path / "attention.pcp")
    loaded: Any = pcp.load(tmp_path / "attention.pcp")
    assert isinstance(loaded, SymbolicProgram)
    assert loaded.digest == program.digest
    assert (loaded.symbols, loaded.constraints) == (program.symbols, program.constraints)
    assert str(loaded) == str(program)
    rng = np.random.default_rng()
    batch, length = (int(n) for n in rng.integers(1, 100, 2))
    assert loaded.at(batch=batch, length=length).digest == program.at(batch=batch, length=length).digest


def test_it_is_pickled_and_travels_as_bytes(program: Any) -> None:
    for other in (
        pickle.loads(pickle.dumps(program)),
        SymbolicProgram.from_artifact(program.artifact(named=True)),
    ):
        assert other.digest == program.digest
        assert other.at(batch=3, length=7).digest == program.at(batch=3, length=7).digest


def test_the_digest_knows_structure_and_not_names(program: Any) -> None:
    weights = {name: pcp.spec((16, 16), "f32", "weight") for name in "qk"}

    def of(shape: tuple[str | int, ...], *constraints: str, scale: float = 1.0) -> str:
        def scaled(x: pcp.Tensor, weights: Any) -> pcp.Tensor:
            return attention(x, weights) * scale if scale != 1.0 else attention(x, weights)

        return pcp.trace(scaled, pcp.spec(shape, "f32"), weights, constraints=constraints).digest

    assert of(("b", "n", 16), "n <= 512") == program.digest
    assert (
        len(
            {
                program.digest,
                of(("b", "n", 16)),
                of(("n", "n", 16)),
                of(("b", "n", 16), "n <= 512", scale=2.0),
            }
        )
        == 4
    )


def test_damaged_bytes_are_refused(program: Any, tmp_path: Path) -> None:
    raw = program.artifact()
    rng = random.Random()
    for _ in range(60):
        damaged = bytearray(raw)
        if rng.random() < 0.5:
            damaged[rng.randrange(len(raw))] ^= 1 << rng.randrange(8)
        else:
            damaged = damaged[: rng.randrange(len(raw))]
        with pytest.raises((CorruptProgram, NewerProgram)):
            SymbolicProgram.from_artifact(bytes(damaged))
    (tmp_path / "cut.pcp").write_bytes(raw[:-9])
    with pytest.raises(
        CorruptProgram, match=r"cut.pcp has changed since it was written or is cut off.*copy it again"
    ):
        pcp.load(tmp_path / "cut.pcp")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h: h.update(symbols=[]), "its symbols are"),
        (lambda h: h.update(symbols=["a b", "c"]), "its symbols are"),
        (lambda h: h.update(constraints=[["length", ""]]), "is no constraint; expected one comparison"),
        (
            lambda h: h.update(constraints=[["length <= 40", ""]]),
            r"the sizes \(37, 46\).*not among those that it takes|not among",
        ),
        (lambda h: h.pop("programs"), "programs"),
        (lambda h: h["programs"].pop(), "programs have .* bytes or more, where"),
        (lambda h: h["programs"][0].update(bytes=1 << 40), "its bytes are"),
        (lambda h: h["programs"][0].update(sha256=""), "the digest of a program differs"),
        (lambda h: h["programs"][0].update(sizes=[1]), "not among those"),
        (lambda h: h.update(constraints=7), "no symbolic program says"),
        (lambda h: h.update(spans=[[1, 2]]), "its spans are"),
        (lambda h: h.update(spans=7), "no symbolic program says"),
        (lambda h: h.update(compared=[[1]]), "the sizes that were compared are"),
        (lambda h: h.update(compared=[[1, "a"]]), "no symbolic program says"),
        (lambda h: h.pop("unseen"), "no symbolic program says"),
    ],
)
def test_a_header_that_no_symbolic_program_has(program: Any, change: Any, message: str) -> None:
    raw = program.artifact()
    magic, format_, header_size, body_size = struct.unpack_from("<8sIIQ", raw)
    header = json.loads(raw[24 : 24 + header_size])
    change(header)
    text = json.dumps(header).encode()
    content = struct.pack("<8sIIQ", magic, format_, len(text), body_size) + text + raw[24 + header_size : -32]
    with pytest.raises(CorruptProgram, match=message):
        SymbolicProgram.from_artifact(content + hashlib.sha256(content).digest())


@pytest.mark.parametrize("format_", [1, 2])
def test_a_file_of_an_earlier_format_holds_at_the_sizes_of_its_programs(program: Any, format_: int) -> None:
    raw = program.artifact()
    magic, _, header_size, body_size = struct.unpack_from("<8sIIQ", raw)
    header = json.loads(raw[24 : 24 + header_size])
    del header["unseen"], header["compared"]
    text = json.dumps(header).encode()
    content = struct.pack("<8sIIQ", magic, format_, len(text), body_size) + text + raw[24 + header_size : -32]
    old: Any = SymbolicProgram.from_artifact(content + hashlib.sha256(content).digest())
    assert old.digest == program.digest
    for (batch, length), made in old.programs:
        assert old.at(batch=batch, length=length).digest == made.digest
    with pytest.raises(SizesRefused, match="an earlier version of PCP wrote the file, which did not say"):
        old.at(batch=50, length=50)


def test_later_formats_and_other_wishes(program: Any, tmp_path: Path) -> None:
    raw = bytearray(program.artifact()[:-32])
    raw[8] = 9
    with pytest.raises(NewerProgram, match="has format 9, this version of PCP reads up to 3; update"):
        SymbolicProgram.from_artifact(bytes(raw) + hashlib.sha256(raw).digest())
    program.save(tmp_path / "p.pcp")
    with pytest.raises(
        NotAProgram, match="is a symbolic program, which takes neither main nor shapes; expected sizes"
    ):
        pcp.load(tmp_path / "p.pcp", main="main")


def test_a_packed_body_that_grows_is_not_unpacked_whole(program: Any) -> None:
    raw = program.artifact()
    magic, format_, header_size, _ = struct.unpack_from("<8sIIQ", raw)
    body = zlib.compress(bytes(1 << 26))
    content = (
        struct.pack("<8sIIQ", magic, format_, header_size, len(body)) + raw[24 : 24 + header_size] + body
    )
    with pytest.raises(CorruptProgram, match="bytes or more, where"):
        SymbolicProgram.from_artifact(content + hashlib.sha256(content).digest())


def test_its_text_has_expressions(program: Any) -> None:
    assert "tensor<{batch}x{length}x{length}xf32>" in program.text
    assert "loc(" not in program.text
