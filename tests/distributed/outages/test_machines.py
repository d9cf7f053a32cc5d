"""Emulated machines: lines that take time and count, cuts, clocks that are wrong for one process."""

import datetime
import json
import os
import shutil
import struct
import subprocess
import sys
from pathlib import Path

import pytest
from benchmarks.distributed.machines import isolation
from benchmarks.distributed.machines.network import Count

from tests.distributed.outages import two_machines

CLOCKS = "import datetime, time; print(time.time(), time.monotonic(), datetime.datetime.now().timestamp())"


@pytest.mark.parametrize("wrong", [-500.25, 86400.5])
def test_the_wall_clock_of_one_process_is_wrong(wrong: float, tmp_path: Path) -> None:
    library = isolation.built("clock.c", tmp_path, "-shared", "-fPIC")
    clock = tmp_path / "clock"
    clock.write_bytes(struct.pack("d", wrong))
    own = os.environ | {"LD_PRELOAD": str(library), "BENCHMARK_CLOCK": str(clock)}
    before = datetime.datetime.now().timestamp()
    said = subprocess.run(
        [sys.executable, "-I", "-S", "-c", CLOCKS], env=own, capture_output=True, text=True, check=True
    )
    wall, monotonic, date = map(float, said.stdout.split())
    after = datetime.datetime.now().timestamp()
    assert before + wrong - 1e-3 <= wall <= date <= after + wrong + 1e-3
    assert monotonic < 1e8 < wall


def test_a_line_delays_counts_and_can_be_cut(tmp_path: Path) -> None:
    words = [*isolation.WORDS, sys.executable, two_machines.__file__, str(tmp_path)]
    if shutil.which("unshare") is None or subprocess.run([*isolation.WORDS, "true"], check=False).returncode:
        pytest.skip("this system gives users no namespaces of their own")
    root = Path(isolation.__file__).parents[3]
    own = os.environ | {"PYTHONPATH": os.pathsep.join([str(root), *sys.path])}
    done = subprocess.run(words, env=own, capture_output=True, text=True, check=False, timeout=60)
    if "/dev/net/tun" in done.stderr or "cannot make the device" in done.stderr:
        pytest.skip("this system gives users no TUN devices of their own")
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout)
    size = two_machines.BYTES
    assert seen["got"] == size
    assert seen["meeting"] >= 2 * two_machines.ROUND_TRIP - 1e-3, "a handshake, then the first byte"
    assert seen["sending"] >= 8 * size / two_machines.BITS, "no faster than the line"
    (near_sent, near_received), (far_sent, far_received) = seen["counts"]["near"], seen["counts"]["far"]
    assert 1.02 * size < near_sent < 1.2 * size, "each segment has a header of TCP and of IP"
    assert 0 <= near_sent - far_received < 200, "the last acknowledgement may be on its way"
    assert 0 <= far_sent - near_received < 200
    assert 0 < far_sent < 0.1 * size, "acknowledgements"
    assert seen["knocks"] == ["refused", "nothing", "refused"]
    assert seen["lost"] >= 1


def test_counts_are_subtracted() -> None:
    assert Count(9, 8, 7, 6, 5, 4) - Count(1, 2, 3, 4, 5, 0) == Count(8, 6, 4, 2, 0, 4)


def test_who_has_no_namespaces_is_told_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(shutil, "which", lambda name: None if name == "ip" else f"/bin/{name}")
    with pytest.raises(SystemExit, match="this benchmark needs ip "):
        isolation.isolate()
    monkeypatch.setattr(shutil, "which", lambda name: f"/bin/{name}")
    monkeypatch.setattr(isolation, "WORDS", ["sh", "-c", "echo not permitted >&2; exit 1"])
    with pytest.raises(
        SystemExit, match=r"gives users no namespaces and TUN devices of their own \(not permitted\)"
    ):
        isolation.isolate()
