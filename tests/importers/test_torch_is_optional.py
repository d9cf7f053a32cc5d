"""PCP without PyTorch: it imports, and `from_torch` says what is missing."""

import subprocess
import sys

import pytest

import pcp
from pcp.importers.torch.exporting import TorchMissing


def test_importing_pcp_does_not_import_torch() -> None:
    code = "import sys, pcp; pcp.from_torch; assert 'torch' not in sys.modules"
    environment = {"PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


def test_without_torch_the_error_says_how_to_get_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(
        TorchMissing, match=r"needs PyTorch, which is not installed; install it as https://pytorch.org"
    ):
        pcp.from_torch(lambda x: x, pcp.spec((2,), "f32"))
