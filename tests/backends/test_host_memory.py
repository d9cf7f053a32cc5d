"""What a process frees is kept for its next call, in processes of their own: malloc's settings are those of a whole process."""

import json
import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from pcp.backends import host_memory
from pcp.backends.host_memory import SETTINGS_OF_MALLOC, VARIABLE, keep_freed_memory
from pcp.kernels.native.building import missing

FAULTS = """
import json, os, resource
if hasattr(os, "sched_setaffinity"):  # every thread has a heap of its own, and XLA has one for each core
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:2])
import numpy as np
import pcp
from pcp.backends.host_memory import keep_freed_memory

def spread(x):  # temporaries of 16 MB at once, and little to compute
    wide, other = x @ x.T, (x * 2.0) @ (x + 1.0).T
    return pcp.sum((wide * pcp.sqrt(other * other)) @ x)

plan = pcp.plan(pcp.trace(spread, pcp.spec((2048, 2), "f32")), cache=False)
x = np.random.default_rng(0).normal(size=(2048, 2)).astype(np.float32)
for _ in range(3):
    plan.run(x)
faults = []
for _ in range(12):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    float(plan.run(x))
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps({"kept": keep_freed_memory(), "faults": faults}))
"""

LARGE_TEMPORARIES = """
import json, os, resource
import numpy as np
import pcp
from pcp.backends.host_memory import give_back_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

def run(size, calls):
    x = np.random.default_rng(size).random(size, np.float32)
    f = lambda x: pcp.sum(pcp.cumsum(x) * x)  # temporaries of more than the heap of a thread holds
    plan = pcp.plan(pcp.trace(f, pcp.spec((size,), "f32")), cache=False)
    faults, results = [], []
    for _ in range(calls):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        results.append(float(plan.run(x)))
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    right = total = 0.0
    for part in np.split(x, 200):  # NumPy takes little memory beside what is kept
        sums = total + np.cumsum(part, dtype=np.float64)
        right, total = right + (sums * part).sum(), sums[-1]
    return min(faults[1:]), max(abs(each / right - 1) for each in results), plan.memory["cpu:0"].temporaries

faults, error, temporaries = run(24_000_000, 4)
held = resident()
give_back_freed_memory()
found = {"faults": faults, "error": error, "temporaries": temporaries, "given_back": held - resident()}
for size in (16_000_000, 24_000_000):  # the second is too large for what the first left
    found["error"] = max(found["error"], run(size, 2)[1])
print(json.dumps({**found, "peak": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024}))
"""

LARGE_AND_BELOW_WHAT_IS_USED = """
import json
import numpy as np
from pcp import backends
from pcp.backends.host_memory import give_back_freed_memory

def resident():
    return int(open("/proc/self/statm").read().split()[1]) * 4096

backends.devices()
before = resident()
large = np.ones(1 << 29, np.uint8)
held = resident() - before
del large
after = resident() - before
give_back_freed_memory()
before = resident()
large = [np.ones(1 << 24, np.uint8) for _ in range(32)]
above = np.ones(1 << 24, np.uint8)
del large
kept = resident() - before
give_back_freed_memory()
print(json.dumps({"held": held, "after": after, "kept": kept, "left": resident() - before}))
"""


IN_THE_CALLING_THREAD = """
import json, resource
import numpy as np
import pcp
from pcp.backends.jax_dispatch import compute_in_calling_thread

compute_in_calling_thread()
plan = pcp.plan(pcp.trace(lambda x: x + 1.0, pcp.spec((20 << 20,), "f32")), cache=False)  # more than a thread's heap
x = np.zeros(20 << 20, np.float32)
for _ in range(2):
    plan.run(x)
faults = []
for _ in range(7):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    plan.run(x)
    faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
print(json.dumps({"faults": min(faults)}))  # a vector that is freed late costs a later call new pages
"""

IN_ANOTHER_THREAD = """
import ctypes, json, resource, threading
from pcp.backends.host_memory import take_one_heap

taken = take_one_heap()
library = ctypes.CDLL(None)
library.malloc.restype = library.memset.restype = ctypes.c_void_p
library.malloc.argtypes, library.free.argtypes = [ctypes.c_size_t], [ctypes.c_void_p]
library.memset.argtypes = [ctypes.c_void_p, ctypes.c_int, ctypes.c_size_t]
faults = []

def fill():
    for _ in range(5):
        before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
        block = library.malloc(80 << 20)
        library.memset(block, 1, 80 << 20)
        library.free(block)
        faults.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)

thread = threading.Thread(target=fill)
thread.start()
thread.join()
print(json.dumps({"taken": taken, "faults": faults[-1]}))
"""


only_with_glibc = pytest.mark.skipif(not host_memory.is_glibc(), reason="only glibc can be told")


def are_pages_huge() -> bool:
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return setting.exists() and "[always]" in setting.read_text()


def said_by(program: str, **variables: str) -> dict[str, Any]:
    environment = {
        name: value
        for name, value in os.environ.items()
        if name not in (VARIABLE, "GLIBC_TUNABLES", *SETTINGS_OF_MALLOC)
    }
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=environment | {"JAX_PLATFORMS": "cpu", "PCP_DEVICE": "cpu:0"} | variables,
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.fixture
def mallopt(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[tuple[int, int]]]:
    """What is asked of the C library, which says yes and does nothing."""
    asked: list[tuple[int, int]] = []

    class Library:
        def __init__(self, _name: None) -> None: ...

        def mallopt(self, parameter: int, value: int) -> int:
            asked.append((parameter, value))
            return 1

    for name in (VARIABLE, "GLIBC_TUNABLES", *SETTINGS_OF_MALLOC):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(host_memory.ctypes, "CDLL", Library)
    monkeypatch.setattr(host_memory.os, "confstr", lambda _name: "glibc 2.36")
    keep_freed_memory.cache_clear()
    yield asked
    keep_freed_memory.cache_clear()


@pytest.mark.cpu
@only_with_glibc
@pytest.mark.skipif(are_pages_huge(), reason="the system hands out memory in pages of megabytes")
def test_a_call_touches_no_new_pages() -> None:
    kept, given_back = said_by(FAULTS), said_by(FAULTS, **{VARIABLE: "0"})
    assert (kept["kept"], given_back["kept"]) == (True, False)
    assert max(given_back["faults"]) > 4000  # 16 MB in pages of 4 KiB
    assert (
        statistics.median(kept["faults"]) < 1000
    )  # a call whose thread has another heap than before touches new pages


@pytest.mark.cpu
@only_with_glibc
@pytest.mark.skipif(are_pages_huge(), reason="the system hands out memory in pages of megabytes")
def test_vectors_of_many_megabytes_touch_no_new_pages_in_the_calling_thread() -> None:
    assert said_by(IN_THE_CALLING_THREAD)["faults"] < 1000  # 80 MiB are 20,480 pages


@only_with_glibc
@pytest.mark.skipif(are_pages_huge(), reason="the system hands out memory in pages of megabytes")
def test_threads_keep_what_they_free_where_there_is_one_heap() -> None:
    found = said_by(IN_ANOTHER_THREAD)
    assert found["taken"]
    assert found["faults"] < 1000


@pytest.mark.cpu
@only_with_glibc
@pytest.mark.skipif(are_pages_huge(), reason="the system hands out memory in pages of megabytes")
@pytest.mark.skipif(bool(missing("temporaries")), reason="there is no C++ compiler")
def test_large_temporaries_are_kept_and_given_back_and_take_no_more_memory() -> None:
    kept, new = said_by(LARGE_TEMPORARIES), said_by(LARGE_TEMPORARIES, **{VARIABLE: "0"})
    assert kept["temporaries"] > 128 << 20
    assert kept["faults"] < 1000 < 10_000 < new["faults"]
    assert kept["given_back"] > 0.9 * kept["temporaries"]
    assert kept["peak"] < new["peak"] + kept["temporaries"]  # NumPy takes memory, too
    assert max(kept["error"], new["error"]) < 1e-4


@only_with_glibc
def test_freed_memory_is_given_back_where_it_is_far_more_than_a_call_needs_or_that_is_asked_for() -> None:
    """What is freed below memory that is still used goes back when it is asked for."""
    found = said_by(LARGE_AND_BELOW_WHAT_IS_USED)
    assert found["held"] >= 1 << 29 > host_memory.KEPT_BYTES + (64 << 20)
    assert found["after"] < host_memory.KEPT_BYTES + (64 << 20)
    assert found["kept"] >= 32 << 24
    assert found["left"] < 4 << 24


def test_it_is_asked_once(mallopt: list[tuple[int, int]]) -> None:
    assert keep_freed_memory()
    assert keep_freed_memory()
    assert mallopt == [(-4, 0), (-1, 256 << 20)]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        (VARIABLE, "0"),
        ("MALLOC_TRIM_THRESHOLD_", "131072"),
        ("GLIBC_TUNABLES", "glibc.malloc.hugetlb=1"),
    ],
)
def test_the_environment_has_the_say(
    name: str, value: str, mallopt: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    assert not keep_freed_memory()
    assert mallopt == []


@pytest.mark.usefixtures("mallopt")
def test_another_value_is_told_of(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    monkeypatch.setenv(VARIABLE, "no")
    assert keep_freed_memory()
    assert caplog.messages == ["PCP_KEEP_FREED_MEMORY is 'no'; expected 0 or 1; freed memory is kept"]


def test_other_libraries_are_left_alone(
    mallopt: list[tuple[int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    def unknown(_name: str) -> str:
        raise ValueError("unrecognized configuration name")

    monkeypatch.setattr(host_memory.os, "confstr", unknown)
    assert not keep_freed_memory()
    assert mallopt == []
