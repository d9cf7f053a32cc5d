"""A program file is read whole and sound, or refused with a reason, whatever happened to its bytes."""

import base64
import hashlib
import json
import math
import os
import re
import struct
import zlib
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.ir import InvalidProgram, Program, program_file
from pcp.ir.beginnings import Beginning
from pcp.ir.program_file import (
    MAGIC,
    CorruptProgram,
    NewerProgram,
    NotAProgram,
    UnreadableFile,
    UnwritableFile,
    write_atomically,
)

SPECS = (pcp.spec((3,), "f32", "state"), {"w": pcp.spec((3,), "f32", "weight")})


@pytest.fixture(scope="module")
def program() -> Program:
    return pcp.trace(lambda s, p: s * p["w"] + 1, *SPECS)


@pytest.fixture
def path(tmp_path: Path, program: Program) -> Path:
    made = tmp_path / "step.pcp"
    program.save(made)
    return made


def test_saved_and_loaded_it_is_the_same(program: Program, path: Path) -> None:
    for loaded in (Program.load(path), pcp.load(str(path))):
        assert loaded.digest == program.digest
        assert (loaded.arguments, loaded.results) == (program.arguments, program.results)
        assert (loaded.argument_tree, loaded.result_tree) == (program.argument_tree, program.result_tree)
    x = np.arange(3, dtype=np.float32)
    np.testing.assert_array_equal(pcp.plan(pcp.load(path)).run(x, {"w": x}), x * x + 1)


def test_the_header_is_for_people(program: Program, path: Path) -> None:
    raw = path.read_bytes()
    magic, format_, header_size, artifact_size = struct.unpack_from("<8sIIQ", raw)
    assert (magic, format_) == (MAGIC, 1)
    header = json.loads(raw[24 : 24 + header_size])
    assert header["digest"] == program.digest
    assert header["arguments"] == [["s", "f32[3]", "state"], ["p.w", "f32[3]", "weight"]]
    artifact = raw[24 + header_size :][:artifact_size]
    assert artifact == program.artifact()
    assert header["artifact_sha256"] == hashlib.sha256(artifact).hexdigest()


KEPT = Beginning.of(np.array([1.0, -2.0, 0.5], np.float32))
assert KEPT is not None
BEGINS = {"s": KEPT, "p.w": Beginning(0.25, 0.5)}


def test_what_arguments_begin_with_is_kept(program: Program, path: Path) -> None:
    assert dict(pcp.load(path).begins) == {}
    replace(program, begins=BEGINS).save(path)
    loaded = pcp.load(path)
    assert loaded.digest == program.digest
    assert dict(loaded.begins) == BEGINS


@pytest.mark.parametrize(
    ("entries", "said"),
    [
        ({"s": [0.0, -1.0, ""]}, "deviation -1.0; expected finite numbers"),
        ({"s": [math.inf, 1.0, ""]}, "mean inf"),
        (
            {"s": [0.0, 0.0, base64.b64encode(zlib.compress(bytes(1 << 20))).decode()]},
            "has not the 12 bytes of f32",
        ),
        ({"s": [0.0, 0.0, base64.b64encode(zlib.compress(bytes(12))[:-3]).decode()]}, "has not the 12 bytes"),
        ({"s": [0.0, 0.0, "AAAA"]}, "cannot be read"),
        ({"s": [0.0]}, "cannot be read"),
        ({"t": [0.0, 0.0, ""]}, "'t'"),
        ([1, 2], "expected an object by their names"),
    ],
)
def test_what_arguments_cannot_begin_with_is_refused(
    entries: Any, said: str, program: Program, path: Path
) -> None:
    program_file.write(path, program.artifact(), {"begins": entries})
    with pytest.raises(CorruptProgram, match=re.escape(said)) as caught:
        pcp.load(path)
    assert str(path) in str(caught.value)


def test_a_header_that_is_no_object_is_refused(program: Program, path: Path) -> None:
    artifact = program.artifact()
    for text in (b"[1]", b"{", b"[" * 100_000):
        content = struct.pack("<8sIIQ", MAGIC, 1, len(text), len(artifact)) + text + artifact
        path.write_bytes(content + hashlib.sha256(content).digest())
        with pytest.raises(CorruptProgram, match="a header that is no JSON object"):
            pcp.load(path)


def test_every_flipped_byte_is_noticed(path: Path) -> None:
    sound = path.read_bytes()
    for place in range(0, len(sound), 3):
        changed = bytearray(sound)
        changed[place] ^= 1 << (place % 8)
        path.write_bytes(changed)
        with pytest.raises((CorruptProgram, NotAProgram)) as caught:
            pcp.load(path)
        assert isinstance(caught.value, CorruptProgram) or place < len(MAGIC)


def test_every_truncation_is_noticed(path: Path) -> None:
    sound = path.read_bytes()
    for length in [*range(60), *range(60, len(sound), 17), len(sound) - 1]:
        path.write_bytes(sound[:length])
        with pytest.raises((CorruptProgram, NotAProgram)):
            pcp.load(path)
    path.write_bytes(sound + b"\0")
    with pytest.raises(CorruptProgram, match=r"has \d+ bytes where \d+ are announced"):
        pcp.load(path)
    path.write_bytes(sound)
    pcp.load(path)


def test_the_messages_say_what_to_do(path: Path) -> None:
    sound = path.read_bytes()
    path.write_bytes(sound[:40])
    with pytest.raises(
        CorruptProgram, match=r"step\.pcp is cut off: it has 40 bytes, .*; copy it again, or save"
    ):
        pcp.load(path)
    path.write_bytes(sound[:-9])
    with pytest.raises(
        CorruptProgram, match=r"step\.pcp has \d+ bytes where \d+ are announced; copy it again"
    ):
        pcp.load(path)
    path.write_bytes(sound[:60] + b"~" + sound[61:])
    with pytest.raises(
        CorruptProgram, match=r"step\.pcp has changed since it was written: its checksum differs"
    ):
        pcp.load(path)


def test_a_newer_format_is_named(path: Path) -> None:
    sound = path.read_bytes()
    newer = sound[:8] + (7).to_bytes(4, "little") + sound[12:-32]
    path.write_bytes(newer + hashlib.sha256(newer).digest())
    with pytest.raises(
        NewerProgram, match=r"step\.pcp has format 7, this version of PCP reads up to 1; update"
    ):
        pcp.load(path)


def test_other_forms_are_known_by_their_content(program: Program, tmp_path: Path) -> None:
    forms = {
        "model.mlir": program.text.encode(),
        "model.mlirbc": program.bytecode,
        "model": program.artifact(),
    }
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        assert pcp.load(tmp_path / name).digest == program.digest, name


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"\x89PNG\r\n\x1a\n" + b"\0" * 20,
        b"hello, world\n",
        b"\xff\xfe\xfd",
        b"\0" * 100,
        b"PK\x03\x04module",
    ],
)
def test_what_is_no_program_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "photo").write_bytes(content)
    with pytest.raises(
        (NotAProgram, CorruptProgram), match=r"photo is (not a program: it begins with|cut off)"
    ):
        pcp.load(tmp_path / "photo")


def test_text_that_does_not_parse_says_where(tmp_path: Path) -> None:
    (tmp_path / "model.mlir").write_text("module {\n  func.func @main(\n}")
    with pytest.raises(InvalidProgram, match=r"model\.mlir: the program does not parse:\n.*:2:19"):
        pcp.load(tmp_path / "model.mlir")


def test_a_file_that_cannot_be_read_or_written(tmp_path: Path, program: Program) -> None:
    with pytest.raises(
        UnreadableFile, match=r"cannot read the program .*absent: there is no such file or folder"
    ):
        pcp.load(tmp_path / "absent")
    with pytest.raises(UnreadableFile, match=r"cannot read the program .*: it is a folder; expected a file"):
        pcp.load(tmp_path)
    with pytest.raises(
        UnwritableFile, match=r"cannot write .*gone/step.pcp: there is no such file or folder"
    ):
        program.save(tmp_path / "gone" / "step.pcp")


def test_a_failed_write_leaves_the_old_file(
    path: Path, program: Program, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = path.read_bytes()

    def full(_: Any) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(OSError, match="No space left"):
        pcp.trace(lambda x: x, pcp.spec((9,), "f64")).save(path)
    assert path.read_bytes() == before
    assert [entry.name for entry in path.parent.iterdir()] == ["step.pcp"]
    assert pcp.load(path).digest == program.digest


def test_files_have_the_users_permissions(tmp_path: Path) -> None:
    (tmp_path / "ordinary").touch()
    write_atomically(tmp_path / "written", b"x")
    assert (tmp_path / "written").stat().st_mode == (tmp_path / "ordinary").stat().st_mode
