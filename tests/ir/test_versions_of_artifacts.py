"""A portable artifact at a version: it is one that this version reads, or the message says which versions are."""

from typing import Any

import numpy as np
import pytest

import pcp
from pcp import nn
from pcp.ir import InvalidProgram
from pcp.ir.artifact import InvalidVersion

X = np.ones((2, 4, 8), np.float32)
PROGRAMS: dict[str, tuple[Any, str, str]] = {
    "tanh": (lambda x: pcp.tanh(x), "", "0.9.0"),
    "attention": (lambda x: nn.scaled_dot_product_attention(x[..., None, :], x[..., None, :], x[..., None, :]), "", "0.9.0"),
    "gelu": (lambda x: nn.gelu(x, approximate=False), "", "0.9.0"),
    "tan": (lambda x: pcp.tan(x), "stablehlo.tan", "1.4.0"),
    "rows of their own": (lambda x: pcp.take_along_axis(x, np.zeros((2, 4, 8), np.int32), 1), "stablehlo.gather", "1.1.0"),
    "the largest": (lambda x: pcp.top_k(x, 2), "stablehlo.gather", "1.1.0"),
    "eight bits": (lambda x: x.astype("f8E4M3").astype("f32"), "stablehlo.convert", "1.7.0"),
    "four bits": (lambda x: x.astype("f4E2M1FN").astype("f32"), "stablehlo.convert", "1.8.0"),
}  # fmt: skip
VERSIONS = ("0.9.0", "0.17.0", "1.0.0", "1.1.0", "1.4.0", "1.7.0", "1.8.0", "1.10.0", "1.10.3")


def numbers(version: str) -> list[int]:
    return [int(part) for part in version.split(".")]


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_version_holds_the_program_or_the_oldest_that_does_is_named(name: str, capfd: Any) -> None:
    function, operation, oldest = PROGRAMS[name]
    program = pcp.trace(function, X)
    for version in VERSIONS:
        if numbers(version) >= numbers(oldest):
            assert pcp.Program.from_artifact(program.to_stablehlo(version)).digest == program.digest, version
            continue
        lacks = f"at StableHLO version {version}, which does not have {operation} as it is used"
        message = rf"no portable form {lacks}; expected version {oldest} or a later one"
        with pytest.raises(InvalidProgram, match=message):
            program.to_stablehlo(version)
    assert capfd.readouterr().err == ""  # MLIR says nothing beside the message


@pytest.mark.parametrize(
    "version", ["banana", "99.0.0", "", "1.0", "1.0.0.0", "-1.0.0", " 1.0.0", "1.8.0\n", "0.0.0", "1.99.0", "1.x.0", 180, 1.8]
)  # fmt: skip
def test_what_is_no_version_is_refused(version: Any, capfd: Any) -> None:
    program = pcp.trace(lambda x: x + 1, X)
    with pytest.raises(
        InvalidVersion, match=r"expected one from 0\.9\.0 to \d+\.\d+\.\d+, of the form '1\.8\.0'"
    ):
        program.to_stablehlo(version)
    assert capfd.readouterr().err == ""
