"""What confines processes where the kernel offers less, and that it is said."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from pcp.cli import doctor
from pcp.distributed.sandbox import Policy, Protection, protection

# A kernel without Landlock, as old ones are: every call of it fails with ENOSYS.
WITHOUT_LANDLOCK = """
import ctypes, errno, struct
from pcp.distributed.sandbox import kernel, seccomp
rows = [(0x20, 0, 0, 0), (0x15, 0, 1, 444), (0x06, 0, 0, 0x00050000 | errno.ENOSYS), (0x06, 0, 0, 0x7FFF0000)]
packed = ctypes.create_string_buffer(b"".join(struct.pack("<HBBI", *each) for each in rows))
header = ctypes.create_string_buffer(struct.pack("@HP", len(rows), ctypes.addressof(packed)))
kernel.prctl(kernel.SET_NO_NEW_PRIVILEGES, 1)
kernel.call(317, 1, 1, ctypes.byref(header))

from pcp.distributed.sandbox import protection
from pcp.distributed.verification import admit
from pcp.ir import Program
text = "module { func.func @main(%a: tensor<4xf32>) -> tensor<4xf32> { return %a : tensor<4xf32> } }"
print(protection())
print(list(admit({"step": Program.parse(text).artifact()}, "cpu:0", 8 << 30, 60.0)))
"""


@pytest.mark.skipif(protection().calls == "" or sys.platform != "linux", reason="there is no seccomp here")
def test_a_kernel_without_landlock_confines_less_and_says_so() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_LANDLOCK], capture_output=True, text=True, check=False, timeout=100
    )
    assert done.stdout.splitlines() == ["seccomp, with limits", "['step']"], done.stderr


@pytest.mark.parametrize(("device", "drivers"), [("arena:cpu", False), ("iree:vulkan", True)])
def test_only_a_gpu_brings_the_use_of_drivers(tmp_path: Path, device: str, drivers: bool) -> None:
    assert json.loads(Policy(tmp_path, device).command(None)[-1])["drivers"] is drivers


def test_packages_that_were_not_imported_yet_may_be_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    package = tmp_path / "beside" / "opt_einsum"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(package.parent))
    monkeypatch.delitem(sys.modules, "opt_einsum", raising=False)
    assert str(package) in json.loads(Policy(tmp_path, "cpu:0").command(None)[-1])["readable"]


# What CUDA does when it begins, and what nobody may.
AS_A_DRIVER = """
import json, os, socket, threading
found = {}
def attempt(name, attack):
    try:
        found[name] = attack() or "done"
    except OSError as error:
        found[name] = type(error).__name__
def name_a_thread():
    with open(f"/proc/self/task/{threading.get_native_id()}/comm", "w") as file:
        file.write("cuda")
def name_another(process):
    with open(f"/proc/{process}/comm", "w") as file:
        file.write("cuda")
def listen():
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as one:
        one.bind("\\0pcp-test-%d" % os.getpid()); one.listen(1)
def connect():
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as one:
        one.connect("/run/dbus/system_bus_socket")
attempt("own", name_a_thread)
thread = threading.Thread(target=lambda: attempt("thread", name_a_thread)); thread.start(); thread.join()
attempt("pipe", lambda: os.pipe2(os.O_CLOEXEC) and None)
attempt("listen", listen)
attempt("connect", connect)
attempt("network", lambda: socket.socket(socket.AF_INET) and None)
attempt("parent", lambda: name_another(os.getppid()))
attempt("system", lambda: open("/proc/sys/kernel/core_pattern", "r+").close())
print(json.dumps(found))
"""


@pytest.mark.skipif(not protection().is_full, reason=f"this kernel offers less: {protection()}")
@pytest.mark.parametrize(("device", "begins"), [("iree:vulkan", "done"), ("cpu:0", "PermissionError")])
def test_a_driver_may_begin_and_speaks_to_nobody(tmp_path: Path, device: str, begins: str) -> None:
    (tmp_path / "as_a_driver.py").write_text(AS_A_DRIVER, encoding="utf-8")
    policy = Policy(tmp_path / "confined", device, readable=(tmp_path,))
    policy.prepare()
    *command, words = policy.command("as_a_driver")
    words = json.dumps(json.loads(words) | {"path": [*json.loads(words)["path"], str(tmp_path)]})
    done = subprocess.run(
        [*command, words], env=policy.environment(), capture_output=True, text=True, check=False, timeout=60
    )
    found = json.loads(done.stdout or "{}")
    refused = dict.fromkeys(("connect", "network", "parent", "system"), "PermissionError")
    assert found == dict.fromkeys(("own", "thread", "pipe", "listen"), begins) | refused, done.stderr


@pytest.mark.parametrize(
    ("found", "status", "words", "advice"),
    [
        (Protection("Landlock 7", "seccomp"), "ok", "Landlock 7 and seccomp, with limits", ""),
        (Protection("", "seccomp"), "note", "under seccomp, with limits", "it lacks Landlock (Linux 5.13"),
        (Protection("Landlock 1", ""), "note", "under Landlock 1, with limits", "it lacks seccomp"),
        (Protection("", ""), "note", "under limits of memory and time only", "it lacks Landlock"),
    ],
)
def test_doctor_says_what_protects(
    monkeypatch: pytest.MonkeyPatch, found: Protection, status: str, words: str, advice: str
) -> None:
    monkeypatch.setattr(doctor, "protection", lambda: found)
    finding = doctor.check_sandbox()
    assert finding.status == status
    assert words in finding.message
    assert finding.advice.startswith(advice)
