"""What a model answers is executed where it can harm nobody, each attack on a real confined process."""

from pathlib import Path

import pytest

import pcp
from pcp.cli.kernels.confined import confined
from pcp.distributed.sandbox import protection
from pcp.kernels.candidate import read_candidate
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import KernelNotLowered

MANIFEST = """
name = "softmax.hostile"
effect = "lowers precision"
about = "Hostile."
entry = "kernel.py:kernel"
region = "region.mlir"
"""
KERNEL = "def kernel(x):\n    return x"
ATTACKS = {
    "reads": ("import pathlib; pathlib.Path(HOME, 'key').read_text()", "PermissionError"),
    "writes": ("open(HOME + '/x', 'w')", "PermissionError"),
    "connects": ("import socket; socket.create_connection(('127.0.0.1', 9), 1)", "PermissionError"),
    "starts": ("import subprocess; subprocess.run(['/bin/true'])", "PermissionError"),
    "asks": ("import os; raise KeyError(os.environ.get('PCP_ENDPOINT_KEY', 'no key'))", "no key"),
    "never ends": (
        "while True: pass",
        "took more than 3 s while it was lowered for its region, and was killed",
    ),
    "fills memory": ("bytearray(12 << 30)", "MemoryError"),
    "fills the disk": (
        "import os\nfor i in range(99): open(os.environ['HOME'] + f'/{i}', 'wb').write(bytes(30 << 20))\nwhile True: pass",
        "wrote more than 128 MiB while it was lowered",
    ),
    "lies": ("import os; os._exit(0)", "the process ended with code 0"),
    "calls back": (
        "import jax\ndef kernel(x): return jax.pure_callback(lambda x: x, jax.ShapeDtypeStruct((4, 8), x.dtype), x)",
        "which is not part of its program",
    ),
}
IN_EVERY_RUN = ("reads", "connects", "fills memory")


@pytest.mark.skipif(not protection().is_full, reason="processes cannot be confined here")
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[] if name in IN_EVERY_RUN else pytest.mark.long) for name in ATTACKS]
)
def test_a_hostile_answer_harms_nobody(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    home, content = tmp_path / "home", tmp_path / "content"
    home.mkdir()
    content.mkdir()
    (home / "key").write_text("secret")
    monkeypatch.setenv("PCP_ENDPOINT_KEY", "sesame")
    code, words = ATTACKS[name]
    rest = "" if "def kernel" in code else f"\n{KERNEL}"
    (content / "kernel.py").write_text(f"HOME = {str(home)!r}\n{code}{rest}\n")
    (content / "kernel.toml").write_text(MANIFEST)
    region = pcp.trace(lambda x: pcp.softmax(x, 1), pcp.spec((4, 8), "f32"))
    (content / "region.mlir").write_text(region.text)
    candidate = read_candidate(content)
    with pytest.raises(KernelNotLowered) as refusal:
        lowered(candidate, f"hostile {tmp_path}", None, confined, 3.0 if name == "never ends" else 20.0)
    assert words in str(refusal.value)
    assert [path.name for path in home.iterdir()] == ["key"]
