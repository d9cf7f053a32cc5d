"""A verifying child that was taken over: what its attacker tries fails, and its parent goes on."""

import os
import socket
import tempfile
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcp.distributed import verification
from pcp.distributed.job import Job
from pcp.distributed.sandbox import protection
from pcp.distributed.verification import ProgramRefused, admit
from pcp.distributed.wire.blobs import BlobStore
from pcp.distributed.worker.offer import EVERYTHING, Offer
from pcp.distributed.worker.programs import training_process
from pcp.distributed.worker.programs.training_process import TrainingProcess
from pcp.folders import cache_folder
from tests.distributed.sandbox import planted, planted_training

SECONDS = 60.0
MEMORY = 8 << 30

needs_everything = pytest.mark.skipif(
    not protection().is_full, reason=f"this kernel offers less: {protection()}"
)

ATTACKS = """
import ctypes, resource, socket, subprocess
libc, parent = ctypes.CDLL(None, use_errno=True), os.getppid()
def call(number, *arguments):
    if libc.syscall(ctypes.c_long(number), *map(ctypes.c_long, arguments)) < 0:
        raise OSError(ctypes.get_errno(), "")
def read(path):
    with open(path, "rb") as file:
        return file.read(20).hex()
def write(path):
    with open(path, "ab") as file:
        file.write(b"x")
def ask(kind, address):
    with socket.socket(*kind) as one:
        one.settimeout(2); one.connect(address); one.send(b"x")
def trace():
    if libc.ptrace(16, parent, 0, 0) < 0:
        raise OSError(ctypes.get_errno(), "")
def key_descriptors():
    for number in range(3, 1024):
        try:
            facts = os.fstat(number)
        except OSError:
            continue
        if (facts.st_dev, facts.st_ino) == KEY_FILE:
            return "found"
    raise PermissionError(1, "")
def secret():
    return {**os.environ}["SECRET_TOKEN"]
attempt("ssh_key", lambda: read(HOME + "/.ssh/id_ed25519"))
attempt("run_key", lambda: read(KEYS + "/authority.key"))
attempt("list_keys", lambda: os.listdir(KEYS))
attempt("password", lambda: read("/etc/passwd"))
attempt("chmod_key", lambda: os.chmod(KEYS + "/authority.key", 0o666))
attempt("link_key", lambda: os.symlink(KEYS + "/authority.key", os.environ["TMPDIR"] + "/a"))
attempt("hard_link_key", lambda: os.link(KEYS + "/authority.key", os.environ["TMPDIR"] + "/b"))
attempt("remove_key", lambda: os.unlink(KEYS + "/authority.key"))
attempt("rename_key", lambda: os.rename(KEYS + "/authority.key", os.environ["TMPDIR"] + "/c"))
attempt("cut_key", lambda: os.truncate(KEYS + "/authority.key", 0))
attempt("remove_keys", lambda: os.rmdir(KEYS))
attempt("descriptors", key_descriptors)
attempt("environment", secret)
attempt("parents_environment", lambda: read(f"/proc/{parent}/environ"))
attempt("parents_memory", lambda: read(f"/proc/{parent}/mem"))
attempt("parents_maps", lambda: read(f"/proc/{parent}/maps"))
attempt("parents_key_through_proc", lambda: read(f"/proc/{parent}/root{KEYS}/authority.key"))
attempt("tcp", lambda: ask((socket.AF_INET, socket.SOCK_STREAM), ("127.0.0.1", PORT)))
attempt("udp", lambda: ask((socket.AF_INET, socket.SOCK_DGRAM), ("127.0.0.1", PORT)))
attempt("unix", lambda: ask((socket.AF_UNIX, socket.SOCK_STREAM), UNIX))
attempt("abstract", lambda: ask((socket.AF_UNIX, socket.SOCK_STREAM), "\\0" + UNIX))
attempt("netlink", lambda: socket.socket(16, socket.SOCK_RAW))
attempt("io_uring", lambda: call(425, 8, 0))
attempt("fork", lambda: os.fork() or os._exit(0))
attempt("exec", lambda: os.execv("/bin/sh", ["sh", "-c", "exit 9"]))
attempt("spawn", lambda: subprocess.run(["/bin/true"]))
attempt("trace", trace)
attempt("kill", lambda: os.kill(parent, 0))
attempt("kill_group", lambda: os.killpg(os.getpgid(parent), 0))
attempt("queue_signal", lambda: call(129, parent, 0, 0))
attempt("pidfd", lambda: call(434, parent, 0))
attempt("read_memory", lambda: call(310, parent, 0, 0, 0, 0, 0))
attempt("affinity", lambda: os.sched_setaffinity(parent, {0}))
attempt("limits_of_parent", lambda: resource.prlimit(parent, resource.RLIMIT_CORE, (0, 0)))
attempt("higher_limit", lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (1 << 19, 1 << 19)))
attempt("namespace", lambda: call(272, 0x10000000))
attempt("mount", lambda: call(165, 0, 0, 0, 0, 0))
attempt("bpf", lambda: call(321, 0, 0, 0))
attempt("keyring", lambda: call(250, 0, -3, 0))
attempt("shared_memory", lambda: call(29, 0, 1 << 20, 0o1600))
attempt("memory_file", lambda: os.memfd_create("hidden"))
attempt("memory_folder", lambda: write("/dev/shm/hidden"))
attempt("fifo", lambda: os.mkfifo(os.environ["TMPDIR"] + "/fifo"))
attempt("device", lambda: os.mknod(os.environ["TMPDIR"] + "/device", 0o60600, 0x100))
attempt("terminal", lambda: read("/dev/tty"))
attempt("type_for_the_user", lambda: call(16, 0, 0x5412, id(b"x") + 32))
attempt("priority", lambda: os.setpriority(os.PRIO_PROCESS, 0, -5))
attempt("realtime", lambda: os.sched_setscheduler(0, os.SCHED_FIFO, os.sched_param(1)))
attempt("watch_all", lambda: call(298, 0, 0, -1, -1, 0))
attempt("page_faults", lambda: call(323, 0))
attempt("users_cache", lambda: write(CACHE + "/planted.xla"))
attempt("home", lambda: write(HOME + "/.bashrc"))
attempt("package", lambda: write(os.path.dirname(os.__file__) + "/planted.py"))
attempt("temporary", lambda: write(OUTSIDE + "/planted"))
attempt("own_folder", lambda: write(os.environ["TMPDIR"] + "/mine"))
"""

FAILED = {"EACCES", "EPERM", "PermissionError"}


@pytest.fixture(autouse=True)
def plant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "_CHILD", planted.__name__)
    monkeypatch.setattr(training_process, "_CHILD", planted_training.__name__)
    monkeypatch.setattr(verification, "_LONGEST_REASON", 100_000)
    monkeypatch.setattr(verification, "MAXIMUM_ARTIFACT_BYTES", 1 << 20)


def said(attack: str, seconds: float = SECONDS) -> dict[str, str]:
    """What came of each attempt."""
    with pytest.raises(ProgramRefused) as refused:
        admit({"step": attack.encode()}, "cpu:0", MEMORY, seconds)
    words = str(refused.value).removeprefix("the program 'step' is refused: ")
    assert words != str(refused.value), words
    return dict(each.split("=", 1) for each in words.split(" ") if "=" in each)


@pytest.fixture
def listening() -> Iterator[tuple[int, str]]:
    """A TCP port and the name of a Unix socket, a file and an abstract one, that would take whoever comes."""
    with tempfile.TemporaryDirectory() as short, socket.socket() as tcp:
        name = f"{short}/socket"
        with socket.socket(socket.AF_UNIX) as unix, socket.socket(socket.AF_UNIX) as abstract:
            for one, address in ((tcp, ("127.0.0.1", 0)), (unix, name), (abstract, "\0" + name)):
                one.bind(address)
                one.listen()
            yield tcp.getsockname()[1], name


def in_training(
    folder: Path, attack: str, device: str = "cpu:0", offer: Offer = EVERYTHING
) -> dict[str, str]:
    """What came of each attempt in the process that runs programs."""
    store = BlobStore(folder / "blobs", shared=True)
    job = Job({"step": store.put(b"step")}, store.put(attack.encode()), 1, 1, 1, 1)
    with pytest.raises(ProgramRefused) as refused:
        TrainingProcess(job, store, device, offer=offer, cache=folder / "compiled")
    return dict(each.split("=", 1) for each in str(refused.value).split(" ") if "=" in each)


@needs_everything
@pytest.mark.parametrize("where", ["verification", "training", "artifacts"])
def test_whatever_code_in_the_child_tries_fails(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, listening: tuple[int, str], where: str
) -> None:
    keys = tmp_path / "run" / "keys"
    for path in (tmp_path / ".ssh" / "id_ed25519", keys / "authority.key"):
        path.parent.mkdir(parents=True)
        path.write_text("the key")
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("SECRET_TOKEN", "the token")
    cache_folder().mkdir(parents=True, exist_ok=True)
    with (keys / "authority.key").open("rb") as held:
        os.set_inheritable(held.fileno(), True)
        facts = os.fstat(held.fileno())
        names = {
            "HOME": str(tmp_path),
            "KEYS": str(keys),
            "KEY_FILE": (facts.st_dev, facts.st_ino),
            "PORT": listening[0],
            "UNIX": listening[1],
            "CACHE": str(cache_folder()),
            "OUTSIDE": tempfile.gettempdir(),
        }
        attack = "".join(f"{name} = {value!r}\n" for name, value in names.items()) + ATTACKS
        if where == "verification":
            found = said(attack)
        elif where == "training":
            found = in_training(tmp_path / "worker", attack)
        else:  # nothing is compiled there, so nothing is started
            found = in_training(tmp_path / "worker", attack, "iree:llvm-cpu", Offer(artifacts=""))
    assert len(found) == ATTACKS.count("\nattempt("), found
    assert found.pop("own_folder") == "done"
    assert found.pop("environment") == "KeyError"
    if (
        where == "training"
    ):  # it starts Python again to measure, and nothing else; signals stay within what it started
        assert found.pop("fork") != "0"
        if int(protection().files.partition(" ")[2]) < 6:
            del found["kill"], found["kill_group"]
    assert {name: outcome for name, outcome in found.items() if outcome not in FAILED | {"ValueError"}} == {}
    assert found["higher_limit"] in FAILED | {"ValueError"}
    assert (keys / "authority.key").stat().st_mode & 0o777 != 0o666


def test_memory_is_not_taken_without_end() -> None:
    attack = """
import mmap
held = []
def take():
    try:
        while True:
            held.append(mmap.mmap(-1, 1 << 30))
    except OSError:
        return len(held)
attempt("taken", take)
"""
    assert 0 < int(said(attack)["taken"]) <= MEMORY >> 30


def test_a_disk_is_not_filled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither by files with names, nor by open ones without."""
    monkeypatch.setattr(verification, "MAXIMUM_COMPILED_BYTES", 8 << 20)
    for forget in ("", "os.unlink(name);"):
        attack = f"""
import time
held = []
while True:
    name = os.environ["TMPDIR"] + "/" + str(len(held))
    file = open(name, "wb"); held.append(file); {forget}
    file.write(b"x" * (1 << 20)); file.flush(); time.sleep(0.01)
"""
        with pytest.raises(ProgramRefused, match="the program 'step' wrote more than 8388608 bytes"):
            admit({"step": attack.encode()}, "cpu:0", MEMORY, SECONDS)


def test_one_file_has_a_largest_size(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(verification, "MAXIMUM_COMPILED_BYTES", 1 << 20)
    attack = """
def fill():
    with open(os.environ["TMPDIR"] + "/large", "wb", buffering=0) as file:
        file.truncate(1 << 20)
        file.seek(1 << 20)
        file.write(b"x")
attempt("large", fill)
"""
    assert said(attack) == {"large": "EFBIG"}


def test_a_poisoned_cache_reaches_nobody() -> None:
    """What the child calls compiled is taken by no process that has a key, nor by what the user runs later."""
    attack = """
folder = os.environ["PCP_CACHE_DIR"] + "/xla"
os.makedirs(folder, exist_ok=True)
open(folder + "/" + "0" * 64 + ".xla", "wb").write(b"machine code")
attempt("told", lambda: 1)
"""
    before = {path for path in cache_folder().rglob("*.xla")}
    assert said(attack) == {"told": "1"}
    assert {path for path in cache_folder().rglob("*.xla")} == before


def test_no_thread_and_no_folder_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TMPDIR", str(tmp_path))  # where no other process makes folders meanwhile
    threads = threading.active_count()
    said("attempt('told', lambda: 1)")
    assert threading.active_count() == threads
    assert not list(tmp_path.glob("pcp-confined-*"))
