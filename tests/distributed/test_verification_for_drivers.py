"""A Worker on a GPU has programs verified where no driver begins, and compiles them itself."""

import pytest

import pcp
from pcp.distributed import verification
from pcp.distributed.verification import ProgramRefused, admit
from pcp.ir import Program

MEMORY, SECONDS = 8 << 30, 60.0


def _program() -> pcp.Program:
    return pcp.trace(lambda x: (x * 2.0).sum(), pcp.spec((4,), "f32"))


EVIL = Program.parse("""func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> {
  %0 = stablehlo.custom_call @evil(%a) : (tensor<4xf32>) -> tensor<4xf32>
  return %0 : tensor<4xf32>
}""")


def test_a_process_that_is_not_confined_has_them_compiled_on_the_device() -> None:
    with pytest.raises(ProgramRefused, match="'cuda:7' is not a device of this machine"):
        admit({"step": _program().artifact()}, "cuda:7", MEMORY, SECONDS)


def test_a_confined_process_has_them_verified_only(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "is_confined", lambda: True)  # what it starts would find no driver
    assert list(admit({"step": _program().artifact()}, "cuda:7", MEMORY, SECONDS)) == ["step"]
    with pytest.raises(ProgramRefused, match=r"holds stablehlo\.custom_call, which is refused"):
        admit({"step": EVIL.artifact()}, "cuda:7", MEMORY, SECONDS)
