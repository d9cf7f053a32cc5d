"""Constants whose elements stand in a table of blobs behind the program, as torch-mlir writes them."""

from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.ir import Program, bindings
from pcp.ir.resources import MissingConstant

ALIGNMENT = (64).to_bytes(4, "little")


def text_of(type_: str, blob: bytes | None, name: str = "torch_tensor_2_3") -> str:
    """A program that returns a constant whose elements are a blob."""
    table = (
        f'{{-# dialect_resources: {{ builtin: {{ {name}: "0x{(ALIGNMENT + (blob or b"")).hex()}" }} }} #-}}'
    )
    return f"""
    func.func @main(%x: tensor<f32>) -> {type_} {{
      %0 = stablehlo.constant dense_resource<{name}> : {type_}
      return %0 : {type_}
    }}
    {"" if blob is None else table}"""


RNG = np.random.default_rng(5)
ARRAYS: dict[str, Any] = {
    "i1": RNG.random(6) < 0.5,
    "i8": RNG.integers(-9, 9, 6).astype(np.int8),
    "ui16": RNG.integers(0, 9, 6).astype(np.uint16),
    "i64": RNG.integers(-9, 9, 6),
    "bf16": RNG.normal(size=6).astype(ml_dtypes.bfloat16),
    "f16": RNG.normal(size=6).astype(np.float16),
    "f32": RNG.normal(size=6).astype(np.float32),
    "f64": RNG.normal(size=6),
    "complex<f32>": RNG.normal(size=12).astype(np.float32).view(np.complex64),
}


@pytest.mark.parametrize("element", ARRAYS)
def test_elements_of_every_type_become_part_of_the_program(element: str) -> None:
    array = ARRAYS[element].reshape(2, 3)
    program = Program.parse(text_of(f"tensor<2x3x{element}>", array.tobytes()))
    assert "dense_resource" not in program.text
    np.testing.assert_array_equal(run(program, np.float32(0)), array)


@pytest.mark.parametrize(("element", "one"), [("i1", b"\1"), ("bf16", b"\x80\x3f"), ("f32", b"\0\0\x80\x3f")])
def test_equal_elements_are_one_number(element: str, one: bytes) -> None:
    blob = Program.parse(text_of(f"tensor<200x{element}>", one * 200))
    number = "true" if element == "i1" else "1.0"
    plain = Program.parse(
        text_of(f"tensor<200x{element}>", None).replace("_resource<torch_tensor_2_3>", f"<{number}>")
    )
    assert blob.digest == plain.digest


@pytest.mark.parametrize("element", ["f8E4M3FN", "f8E5M2", "i4", "ui4"])
def test_narrow_elements_within_a_program(element: str) -> None:
    text = text_of(f"tensor<3x{element}>", b"\1\2\3").replace("return %0 :", "return %1 :")
    text = text.replace(f"-> tensor<3x{element}>", "-> tensor<3xf32>").replace(
        f"return %1 : tensor<3x{element}>",
        f"%1 = stablehlo.convert %0 : (tensor<3x{element}>) -> tensor<3xf32>\nreturn %1 : tensor<3xf32>",
    )
    program = Program.parse(text)
    assert "dense_resource" not in program.text
    if element[-1] == "4":
        assert "dense<[1, 2, 3]>" in program.text


def test_the_elements_make_the_digest_and_the_name_does_not() -> None:
    array = ARRAYS["f32"]
    program = Program.parse(text_of("tensor<6xf32>", array.tobytes()))
    assert program.digest == Program.parse(text_of("tensor<6xf32>", array.tobytes(), '"an other"')).digest
    assert program.digest != Program.parse(text_of("tensor<6xf32>", array[::-1].tobytes())).digest
    assert program.digest == Program.from_artifact(program.artifact()).digest


def test_files_of_every_form_are_read(tmp_path: Path) -> None:
    array = ARRAYS["bf16"]
    text = text_of("tensor<6xbf16>", array.tobytes())
    module = bindings.parse_module(text)
    forms = {"text": text.encode(), "bytecode": bindings.bytecode_of(module)}
    for name, content in forms.items():
        (tmp_path / name).write_bytes(content)
        loaded = pcp.load(tmp_path / name)
        assert loaded.digest == Program.parse(text).digest
        np.testing.assert_array_equal(run(loaded, np.float32(0)), array)


@pytest.mark.parametrize("size", [0, 4096, 16384, 20000])
def test_bytecode_is_read_wherever_its_bytes_lie(size: int) -> None:
    module = bindings.parse_module(text_of("tensor<6xf32>", ARRAYS["f32"].tobytes()))
    bytecode = bindings.bytecode_of(module)
    name_ends = bytecode.index(b"\0", 4)
    longer = (size - len(bytecode)) // 64 * 64 if size else 0
    bytecode = bytecode[:name_ends] + b" " * longer + bytecode[name_ends:]
    copies = [bytes(bytearray(bytecode)) for _ in range(20)]
    digest = Program.from_module(module).digest
    assert {Program.from_module(bindings.parse_module(copy)).digest for copy in copies} == {digest}


def test_empty_constants_stay_empty() -> None:
    program = Program.parse(text_of("tensor<0x3xf32>", b""))
    assert np.asarray(run(program, np.float32(0))).shape == (0, 3)


@pytest.mark.parametrize(
    ("blob", "message"),
    [
        (
            b"\0" * 20,
            r"constant torch_tensor_2_3\w* of the program is tensor<6xf32>, which takes 24 bytes; its data has 20",
        ),
        (b"\0" * 4, r"which takes 24 bytes; its data has 4; export the program again with all its constants"),
        (
            None,
            r"constant torch_tensor_2_3\w* of the program, tensor<6xf32>, has no data in the file: it was left out",
        ),
    ],
)
def test_a_blob_that_is_absent_or_cut_off_is_refused(
    blob: bytes | None, message: str, tmp_path: Path
) -> None:
    (tmp_path / "model.mlir").write_text(text_of("tensor<6xf32>", blob))
    with pytest.raises(MissingConstant, match=message):
        pcp.load(tmp_path / "model.mlir")


def test_a_text_whose_constants_were_elided_is_refused() -> None:
    with pytest.raises(MissingConstant, match=r"constant __elided__\w* of the program"):
        Program.parse(text_of("tensor<6xf32>", None, "__elided__"))


def test_a_program_with_a_blob_is_differentiated() -> None:
    scale = ARRAYS["f32"]
    text = f"""
    func.func @main(%x: tensor<6xf32>) -> tensor<f32> {{
      %0 = stablehlo.constant dense_resource<scale> : tensor<6xf32>
      %1 = stablehlo.multiply %x, %0 : tensor<6xf32>
      %2 = stablehlo.constant dense<0.0> : tensor<f32>
      %3 = stablehlo.reduce(%1 init: %2) applies stablehlo.add across dimensions = [0]
        : (tensor<6xf32>, tensor<f32>) -> tensor<f32>
      return %3 : tensor<f32>
    }}
    {{-# dialect_resources: {{ builtin: {{ scale: "0x{(ALIGNMENT + scale.tobytes()).hex()}" }} }} #-}}"""
    np.testing.assert_array_equal(run(pcp.grad(Program.parse(text)), np.ones(6, np.float32)), scale)
