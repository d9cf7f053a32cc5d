"""Which programs a backend starts to compile: a confined process may execute these, and no others."""

import os
import sys
from pathlib import Path

import pytest

from pcp.backends import compiler_programs, registry


def _program(path: Path) -> str:
    path.parent.mkdir(parents=True)
    path.touch()
    return str(path)


def test_xla_starts_the_assembler_and_the_linker_of_cuda(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    of_wheel = _program(tmp_path / "nvidia" / "cu13" / "bin" / "ptxas")
    of_system = _program(tmp_path / "cuda" / "bin" / "nvlink")
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "nvidia", raising=False)
    monkeypatch.setattr(registry, "_FOLDERS_OF_CUDA", (os.path.dirname(of_system), str(tmp_path / "absent")))
    assert compiler_programs("cuda:0") == compiler_programs("xla:cuda:0") == (of_wheel, of_system)
    assert of_system not in compiler_programs("iree:cuda")  # IREE brings its own


@pytest.mark.parametrize("device", ["cpu:0", "xla:cpu:0", "arena:cpu", ""])
def test_what_compiles_by_itself_starts_none(device: str) -> None:
    assert compiler_programs(device) == ()
