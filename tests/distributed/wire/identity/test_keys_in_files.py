"""A private key is in no file of the folder for temporary files, whatever becomes of the process that uses it."""

import os
import signal
import ssl
import subprocess
import sys
from pathlib import Path

import pytest
from tests.distributed.wire.loopback import Run

from pcp.distributed.wire import Authority
from pcp.distributed.wire.identity.tls import client_context, server_context
from pcp.temporary import HOLDING_KEYS, TemporaryFolder

KILLED = """
import os, signal, ssl, sys
from pcp.distributed.wire import Credentials
from pcp.distributed.wire.identity import tls

load = ssl.SSLContext.load_cert_chain

def killed(context, path):
    load(context, path)
    os.kill(os.getpid(), signal.SIGKILL)

ssl.SSLContext.load_cert_chain = killed
if sys.argv[2] == "without":
    del os.memfd_create
tls.client_context(Credentials.load_bundle(sys.argv[1]), tls.CONTROL_PROTOCOL)
"""


@pytest.mark.parametrize("memory", ["with", "without"])
def test_a_process_that_is_killed_while_it_uses_its_key_leaves_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: str
) -> None:
    """Where there are no files in memory, the next folder for temporary files that anybody makes sweeps it."""
    Run(tmp_path).worker().save_bundle(tmp_path / "ada.pem")
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    environment = os.environ | {"TMPDIR": str(temporary), "PYTHONPATH": os.pathsep.join(sys.path)}
    ended = subprocess.run(
        [sys.executable, "-c", KILLED, str(tmp_path / "ada.pem"), memory],
        env=environment,
        capture_output=True,
        check=False,
    )
    assert ended.returncode == -signal.SIGKILL, ended.stderr
    left = [each for each in temporary.rglob("*") if each.is_file() and b"PRIVATE" in each.read_bytes()]
    if memory == "with":
        assert list(temporary.iterdir()) == []
        return
    assert [each.stat().st_mode & 0o077 for each in left] == [0]
    assert left[0].parent.name.startswith(HOLDING_KEYS)
    assert left[0].parent.stat().st_mode & 0o077 == 0
    monkeypatch.setenv("TMPDIR", str(temporary))
    TemporaryFolder().remove()
    assert list(temporary.iterdir()) == []


@pytest.mark.parametrize("memory", [True, False])
def test_a_context_is_made_with_and_without_files_in_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, memory: bool
) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    if not memory:
        monkeypatch.delattr(os, "memfd_create")
    credentials = Authority.create(tmp_path / "keys").issue("ada")
    for context in (server_context(credentials), client_context(credentials, "pcp-control/1")):
        assert context.verify_mode is ssl.CERT_REQUIRED
    assert not list(tmp_path.glob("pcp-*"))
