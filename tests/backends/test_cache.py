"""The cache of compiled programs: found again, bounded, and harmless whatever happens to its files."""

import logging
import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import pcp
from pcp.backends import xla
from pcp.backends.cache import CompileCache, cache_key, default_cache

KEY = "ab" * 32


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    return tmp_path / "xla"


@pytest.fixture
def compilations(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The programs that XLA was really asked to compile."""
    found: list[str] = []
    original = xla._compile

    def counted(program: pcp.Program, *arguments: Any) -> Any:
        found.append(program.digest)
        return original(program, *arguments)

    monkeypatch.setattr(xla, "_compile", counted)
    return found


def scaled(factor: float) -> pcp.Program:
    return pcp.trace(lambda x: x * factor, pcp.spec((3,), "f32"))


X = np.random.default_rng(0).standard_normal(3).astype(np.float32)


def test_the_second_plan_is_taken_from_disk(folder: Path, compilations: list[str]) -> None:
    for _ in range(2):
        np.testing.assert_array_equal(pcp.plan(scaled(2.0)).run(X), X * 2)
    assert compilations == [scaled(2.0).digest]
    assert len(list(folder.glob("*.xla"))) == 1
    assert folder.stat().st_mode & 0o077 == 0


@pytest.mark.usefixtures("folder")
def test_loaded_programs_tell_their_memory_and_donate() -> None:
    program = pcp.trace(lambda s: s + 1, pcp.spec((64,), "f32", "state"))
    first, second = pcp.plan(program), pcp.plan(program)
    assert first.memory == second.memory
    assert first.memory[str(first.device)].aliased == 256
    state = first.run(np.zeros(64, np.float32))
    second.run(state)
    assert state.is_deleted()


@pytest.mark.parametrize(
    "other",
    [
        lambda: pcp.plan(scaled(3.0)),
        lambda: pcp.plan(scaled(2.0), options={"xla_backend_optimization_level": 0}),
        lambda: pcp.plan(pcp.trace(lambda x: x * 2.0, pcp.spec((3,), "f32", "state"))),
    ],
    ids=["another constant", "another option", "donated"],
)
def test_what_compiles_otherwise_is_another_entry(folder: Path, compilations: list[str], other: Any) -> None:
    pcp.plan(scaled(2.0))
    other()
    assert len(compilations) == 2
    assert len(list(folder.glob("*.xla"))) == 2


@pytest.mark.usefixtures("folder")
def test_the_line_a_program_comes_from_does_not_matter(compilations: list[str]) -> None:
    pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec((3,), "f32")))
    pcp.plan(pcp.trace(lambda x: x + 1, pcp.spec((3,), "f32")))
    assert len(compilations) == 1


@pytest.mark.parametrize("damage", ["flipped", "cut", "empty", "foreign", "no executable"])
def test_a_damaged_entry_is_reported_and_written_again(
    folder: Path, compilations: list[str], caplog: pytest.LogCaptureFixture, damage: str
) -> None:
    pcp.plan(scaled(2.0))
    [path] = folder.glob("*.xla")
    sound = path.read_bytes()
    changed = bytearray(sound)
    changed[len(changed) // 2] ^= 1
    path.write_bytes(
        {
            "flipped": bytes(changed),
            "cut": sound[:-7],
            "empty": b"",
            "foreign": b"x" * 99,
            "no executable": b"",
        }[damage]
    )
    if damage == "no executable":
        CompileCache(folder).put(path.stem, b"sound, but no executable")
    with caplog.at_level(logging.WARNING, "pcp.backends"):
        np.testing.assert_array_equal(pcp.plan(scaled(2.0)).run(X), X * 2)
    assert len(compilations) == 2
    assert "is damaged; it is compiled and written again" in caplog.text or "does not load" in caplog.text
    caplog.clear()
    pcp.plan(scaled(2.0))
    assert len(compilations) == 2
    assert caplog.text == ""


def test_without_a_cache_nothing_is_written(folder: Path, compilations: list[str]) -> None:
    pcp.plan(scaled(2.0), cache=False)
    pcp.plan(scaled(2.0), cache=False)
    assert len(compilations) == 2
    kept = {each.name for each in folder.iterdir()} if folder.exists() else set()
    assert kept <= {"products"}  # what XLA has measured of products on a GPU


def test_a_folder_that_cannot_be_made_is_a_warning(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "file"))
    with caplog.at_level(logging.WARNING, "pcp.backends.cache"):
        np.testing.assert_array_equal(pcp.plan(scaled(2.0)).run(X), X * 2)
    assert "cannot keep the compiled program in" in caplog.text


def test_entries_used_longest_ago_are_removed(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path, limit=1000)
    for number in range(3):
        cache.put(f"entry{number}", bytes([number]) * 280)
        os.utime(tmp_path / f"entry{number}.xla", ns=(number, number))
    assert cache.get("entry0") == bytes(280)  # which makes it the one used last
    cache.put("entry3", b"3" * 280)
    assert sorted(path.stem for path in tmp_path.glob("*.xla")) == ["entry0", "entry2", "entry3"]
    cache.put("large", b"l" * 5000)
    assert [path.stem for path in tmp_path.glob("*.xla")] == ["large"]
    assert cache.get("large") == b"l" * 5000


def test_where_it_lies(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.delenv("PCP_CACHE_DIR", raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert default_cache().folder == tmp_path / "pcp" / "xla"
    monkeypatch.setenv("XDG_CACHE_HOME", "relative")
    assert default_cache().folder == Path.home() / ".cache" / "pcp" / "xla"
    monkeypatch.setenv("PCP_CACHE_LIMIT", "12345")
    assert default_cache().limit == 12345
    monkeypatch.setenv("PCP_CACHE_LIMIT", "much")
    assert default_cache().limit == 4 * 2**30
    assert "PCP_CACHE_LIMIT is 'much', which is not a number of bytes" in caplog.text


def test_keys_of_parts_that_join_to_the_same_text_differ() -> None:
    assert cache_key(["ab", "c"]) != cache_key(["a", "bc"])
    assert cache_key(["ab"]) == cache_key([b"ab"])


SCRIPT = """
import sys, logging, numpy as np, pcp
logging.basicConfig(level=logging.WARNING)
for factor in range(4):
    result = pcp.plan(pcp.trace(lambda x: x * factor, pcp.spec((3,), "f32"))).run(np.ones(3, np.float32))
    assert result.tolist() == [factor] * 3
"""


def test_processes_share_it(tmp_path: Path) -> None:
    environment = os.environ | {
        "PCP_CACHE_DIR": str(tmp_path),
        "PCP_CACHE_LIMIT": "12000",  # a few entries, so that each process removes what the other writes
        "PYTHONPATH": os.pathsep.join(path for path in sys.path if path),
    }
    processes = [
        subprocess.Popen([sys.executable, "-c", SCRIPT], env=environment, stderr=subprocess.PIPE, text=True)
        for _ in range(2)
    ]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        assert errors == ""
    assert sum(path.stat().st_size for path in tmp_path.rglob("*.xla")) <= 12000
    assert [path for path in tmp_path.rglob(".*") if path.is_file()] == []


def test_one_builds_an_entry_and_the_others_wait_for_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    cache, other = CompileCache(tmp_path), CompileCache(tmp_path)
    found: list[bytes | None] = []
    began = threading.Event()

    def second() -> None:
        began.set()
        with other.building(KEY):
            found.append(other.get(KEY))

    with cache.building(KEY):
        thread = threading.Thread(target=second)
        thread.start()
        assert began.wait(10.0)
        cache.put(KEY, b"machine code")
        assert found == []
    thread.join(10.0)
    assert found == [b"machine code"]
    assert [path.name for path in tmp_path.iterdir()] == [f"{KEY}.xla"]


def test_a_builder_that_died_or_failed_keeps_nobody_waiting(tmp_path: Path) -> None:
    cache = CompileCache(tmp_path)
    source = f"""
import os
from pathlib import Path
from pcp.backends.cache import CompileCache
with CompileCache(Path({str(tmp_path)!r})).building({KEY!r}):
    os._exit(9)
"""
    path = str(Path(__file__).parents[2] / "src")
    died = subprocess.run([sys.executable, "-c", source], env=os.environ | {"PYTHONPATH": path}, check=False)
    assert died.returncode == 9
    assert (tmp_path / f"{KEY}.lock").exists()
    with pytest.raises(ZeroDivisionError), cache.building(KEY):
        raise ZeroDivisionError
    with cache.building(KEY):
        pass
    assert list(tmp_path.iterdir()) == []


def test_a_builder_that_takes_too_long_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("pcp.backends.cache.LONGEST_WAIT_SECONDS", 0.1)
    with CompileCache(tmp_path).building(KEY), CompileCache(tmp_path).building(KEY):
        assert "was held for 0 s by another process; the program is compiled here too" in caplog.text


def test_without_a_folder_everyone_builds(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    (tmp_path / "file").write_text("no folder")
    with CompileCache(tmp_path / "file").building(KEY):
        assert "cannot keep other processes from compiling the same program" in caplog.text
