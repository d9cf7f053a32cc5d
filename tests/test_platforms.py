"""PCP needs Linux only where it has a reason: what other systems lack is hidden from it, and it traces, plans and trains.

That is no test on those systems; `docs/platforms.md` says what was tried where.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

import pcp
from pcp import systems
from pcp.backends import processors
from pcp.training.plan_record import differences, plan_record

CHILD = Path(__file__).with_name("platform_child.py")


COMMANDS = ("--help", "worker --help", "shepherd --help", "use")
HIDDEN = (
    ("exec('import fcntl', {'__package__': 'pcp.ir'})", "No module named 'fcntl'"),
    (
        "exec('import os; os.sched_getaffinity', {'__package__': 'pcp'})",
        "has no attribute 'sched_getaffinity'",
    ),
    ("exec('import os; os.memfd_create', {'__package__': 'pcp'})", "has no attribute 'memfd_create'"),
    ("exec('import select; select.epoll', {'__package__': 'pcp'})", "has no attribute 'epoll'"),
    ("open('/proc/cpuinfo')", "No such file or directory"),
)
"""What PCP's own modules cannot do on Windows, and what is said of each."""


@pytest.mark.parametrize("system", ["macos", "windows"])
def test_a_system_without_what_linux_has_explains_its_commands_traces_plans_and_trains(system: str) -> None:
    done = subprocess.run(
        [sys.executable, str(CHILD), system, *COMMANDS],
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    said = dict(part.split("\n", 1) for part in done.stdout.removeprefix("# ").split("\n# "))
    assert list(said) == list(COMMANDS)
    for command in COMMANDS[:-1]:
        assert f"usage: pcp {command.removesuffix('--help')}".strip() in said[command]
    losses = json.loads(said["use"].splitlines()[-1])
    assert losses.keys() == {"cpu:0", "arena:cpu"}
    assert losses["cpu:0"] == pytest.approx(losses["arena:cpu"], rel=1e-6)


def test_what_is_hidden_is_hidden() -> None:
    """The double itself: what PCP asks for there is not found, and its own modules are asked in the first place."""
    words = f"""
import json, sys
sys.path.insert(0, 'tests')
import platform_child
platform_child.become('windows')
said = []
for use in {[use for use, _ in HIDDEN]}:
    try:
        said.append(repr(eval(use)))
    except Exception as error:
        said.append(str(error))
print(json.dumps(said))
"""
    done = subprocess.run(
        [sys.executable, "-c", words],
        cwd=CHILD.parents[1],
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    for (use, error), said in zip(HIDDEN, json.loads(done.stdout), strict=True):
        assert error in said, use


def test_a_processor_that_proc_does_not_describe_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(processors, "Path", lambda _: Path("/nonexistent"))
    monkeypatch.setattr(processors.platform, "processor", lambda: "arm")
    processors.processor.cache_clear()
    try:
        name, _ = processors.processor_hardware()
    finally:
        processors.processor.cache_clear()
    assert name == f"arm, {processors.core_count()} cores"


def test_a_record_of_a_plan_names_the_processor(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two processors with the same instructions may round otherwise, as one with AVX-512 and one without."""
    plan = pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec((), "f32")), "arena:cpu")
    records = []
    for model in ("AMD EPYC 9B14", "Intel(R) Xeon(R) Platinum"):
        facts = f"x86_64\n2\nmodel name\t: {model}\nflags\t: avx2\n"
        monkeypatch.setattr(processors, "processor", lambda facts=facts: facts)
        records.append(plan_record(plan))
    assert differences(*records) == ["processor was AMD EPYC 9B14 and is Intel(R) Xeon(R) Platinum"]


def test_a_lock_is_held_by_one(tmp_path: Path) -> None:
    with (tmp_path / "lock").open("w") as first, (tmp_path / "lock").open("w") as second:
        systems.lock(first.fileno(), wait=False)
        with pytest.raises(OSError, match="unavailable"):
            systems.lock(second.fileno(), wait=False)


def test_memory_is_known_without_sysconf(monkeypatch: pytest.MonkeyPatch) -> None:
    assert systems.memory_bytes() > 1 << 28
    monkeypatch.delattr(systems.os, "sysconf")
    assert systems.memory_bytes() == 8 << 30
