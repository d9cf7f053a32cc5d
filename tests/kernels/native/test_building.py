"""Without a compiler, or where the build fails, everything works without native kernels, and what is missing is said."""

import json
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from logging import Logger
from pathlib import Path as FilePath

import pytest

import pcp
from pcp import kernels
from pcp.cli import doctor, main
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES, BuildFailed, Library, NoCompiler, building, built, compiling, kept
from pcp.kernels.native.libraries import included_by
from pcp.planning.paths.preparation import prepared
from tests.kernels.native.programs import LIBRARY, arguments_of, normed


@pytest.fixture
def empty_cache(tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch) -> FilePath:
    """A cache without builds."""
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))
    return tmp_path


def compiler(folder: FilePath, body: str) -> str:
    """A compiler of one's own."""
    file = folder / "broken-c++"
    file.write_text(f"#!/bin/sh\ncase $1 in --version) echo broken 1.0;; *) {body};; esac\n")
    file.chmod(0o755)
    return str(file)


def test_the_doctor_says_what_builds_which_library(empty_cache: FilePath) -> None:  # noqa: ARG001
    said = doctor.check_kernels().message
    assert "steps, for small programs in the arena, waits for `pcp kernels build`" in said
    assert re.search(r"normalisation, .* are built when a plan first looks for kernels", said)
    built(LIBRARIES["steps"])
    assert "steps is built" in doctor.check_kernels().message


def test_without_a_compiler_programs_are_planned_without_native_kernels(empty_cache: FilePath) -> None:
    program = normed()
    with masked("compiler"):
        with pytest.raises(NoCompiler, match="PCP_MASK_FEATURES hides the C\\+\\+ compiler"):
            built(LIBRARY)
        names = {name for site in kernels.sites_of(prepared(program), "cpu") for name in site.kernels}
        assert "normalisation.two_passes" in names
        assert not {name for name in names if name.endswith(".native")}
        missing = kernels.missing_kernels(kernels.sites_of(prepared(program), "cpu", bare=True))
        assert list(missing.values()) == [["normalisation.native", "normalisation_gradient.native"]]
        database = empty_cache / "profile.sqlite"
        plan = pcp.plan(program, tolerance=1e-3, budget=0.0, database=database)
        plan.run(*arguments_of(program))
        said = str(plan)
        assert (
            "note        normalisation.native, normalisation_gradient.native are missing here: PCP_MASK_FEATURES hides the C++ "
            in said
        )
        found = doctor.check_kernels()
        assert found.status == "note"
        assert (
            "normalisation.native, normalisation_gradient.native, residual_normalisation.native are missing: "
            in found.message
        )
        assert "adamw.native is missing: " in found.message
        assert "steps is missing: " in found.message
        assert "slower in places" in found.advice


@pytest.mark.cpu
def test_a_compiler_that_is_nowhere_is_named(empty_cache: FilePath, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(empty_cache))
    with pytest.raises(
        NoCompiler, match=r"\(none of c\+\+, g\+\+, clang\+\+ is there\); install one .*apt install g"
    ):
        built(LIBRARY)
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(NoCompiler, match=r"CXX names 'no-such-compiler', which is not there"):
        built(LIBRARY)


def test_a_build_that_is_here_serves_without_a_compiler() -> None:
    usual = built(LIBRARY)
    with masked("compiler"):
        assert kept(LIBRARY) == usual


def test_what_another_process_builds_meanwhile_is_not_built_again(
    empty_cache: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    counted = empty_cache / "counted"
    make = f'echo once >> {counted}; while [ "$1" != -o ]; do shift; done; echo made > "$2"'
    monkeypatch.setenv("CXX", compiler(empty_cache, f"case $1 in -std*) {make};; esac"))
    meanwhile, in_turn = [], building.turn

    @contextmanager
    def behind_another(file: FilePath, longest: float, log: Logger, **said: str) -> Iterator[None]:
        """The turn, once another process had it."""
        with in_turn(file, longest, log, **said):
            meanwhile.append(building._compiled(LIBRARY.source, LIBRARY.name, LIBRARY.source_digest, ""))
            yield

    monkeypatch.setattr(building, "turn", behind_another)
    assert [built(LIBRARY)] == meanwhile
    assert built(LIBRARY) == meanwhile[0]
    assert counted.read_text() == "once\n"


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_compiler_that_is_stopped_leaves_no_process(
    is_killed: bool, tmp_path: FilePath, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Because it took too long, or because the process that waits for it was killed."""
    started = tmp_path / "started"
    command = compiler(
        tmp_path, f"sleep 300 2>/dev/null & echo $! > {started}.new; mv {started}.new {started}; wait"
    )
    if is_killed:
        code = f"from pcp.kernels.native.compiling import _run; _run([{command!r}, '-c'])"
        with subprocess.Popen([sys.executable, "-c", code]) as waiting:
            wait_until(started.exists)
            waiting.kill()
    else:
        monkeypatch.setattr(compiling, "SECONDS", 1.0)
        with pytest.raises(subprocess.TimeoutExpired):
            compiling._run([command, "-c"])
    child = int(started.read_text())
    wait_until(lambda: not is_running(child))


def wait_until(true: Callable[[], bool]) -> None:
    for _ in range(600):
        if true():
            return
        time.sleep(0.05)
    raise AssertionError("it did not come")


def is_running(process: int) -> bool:
    state = FilePath(f"/proc/{process}/stat")
    with suppress(FileNotFoundError, ProcessLookupError):
        return state.read_text().rpartition(")")[2].split()[0] != "Z"  # a dead one may wait for its parent
    return False


@pytest.mark.cpu
def test_a_build_follows_every_file_that_its_source_includes(empty_cache: FilePath) -> None:
    folder = empty_cache / "mine"
    (folder / "beside").mkdir(parents=True)
    texts = {
        "mine.cc": '#include <vector>\n#include "first.h"\n// #include "comment.h"\nextern "C" int pcp_one() { return kOne + kTwo; }\n',
        "first.h": '#pragma once\n  #  include \\\n "beside/second.h" // which includes this one\nconstexpr int kOne = 1;\n',
        "beside/second.h": '#pragma once\n#include "../first.h"\n#ifdef XLA\n#include "xla/ffi/api/ffi.h"\n#endif\nconstexpr int kTwo = 2;\n',
        "comment.h": "",
    }
    for name, text in texts.items():
        (folder / name).write_text(text)
    library = Library("mine", folder)
    assert [file.relative_to(folder).as_posix() for file in included_by(library.source)] == [
        *("mine.cc", "first.h", "beside/second.h"),
    ]
    before = built(library)
    assert built(library) == before
    for name in ("mine.cc", "first.h", "beside/second.h"):
        (folder / name).write_text(f"{texts[name]}// touched\n")
        now = built(library)
        assert now.source == library.source_digest != before.source
        assert now.digest != before.digest
        before = now
    (folder / "comment.h").write_text("// touched\n")
    assert built(library) == before
    (folder / "third.h").write_text("")
    (folder / "first.h").write_text(f'{texts["first.h"]}#include "third.h"\n')
    assert {file.name for file in included_by(library.source)} == {
        "mine.cc",
        "first.h",
        "second.h",
        "third.h",
    }


@pytest.mark.cpu
def test_includes_are_found_however_they_are_written(tmp_path: FilePath) -> None:
    here = tmp_path.name
    included = [
        *(
            '#include "0.h"',
            '\t# include\t"1.h" // why',
            '#include"2.h"',
            '#include \\\r\n "3.h"',
            '#inc\\\nlude "4.h"',
        ),
        *(
            '/* a\n */ #include "5.h"',
            '#/* a */include/* b */"6.h"',
            f'#include "../{here}/7.h"',
            '#import "8.h"\r',
        ),
    ]
    others = [
        *(
            '// #include "9.h"',
            'auto s = "#include \\"9.h\\"";',
            "#include <9.h>",
            "#include NAME",
            '#includes "9.h"',
        ),
        *('int x; #include "9.h"', '#include "missing.h"', '#include "."'),
    ]
    source = tmp_path / "mine.cc"
    source.write_bytes(("\ufeff" + "\n".join((*included, *others))).encode())
    for number in range(10):
        (tmp_path / f"{number}.h").write_text('#include "mine.cc"\n')
    names = ["mine.cc", *(f"{number}.h" for number in range(len(included)))]
    assert [file.name for file in included_by(source)] == names


def test_a_library_has_a_standard_library_of_its_own(tmp_path: FilePath) -> None:
    command = compiling.compiler()
    assert command is not None
    source = tmp_path / "throws.cc"
    source.write_text(
        '#include <stdexcept>\nextern "C" int pcp_fails() { throw std::runtime_error("words"); }\n'
    )
    digest = compiling.compile_library(source, "throws", "digest", command, (), tmp_path, tmp_path)
    built_file = tmp_path / f"{digest}.so"
    assert (b"libstdc++.so" in built_file.read_bytes()) == (not compiling.own_library(command))
    silent = tmp_path / "c++"
    silent.write_text("#!/bin/sh\necho libstdc++.a\n")
    silent.chmod(0o755)
    assert compiling.own_library(str(silent)) == ()


def test_a_build_that_fails_says_what_the_compiler_said(
    empty_cache: FilePath, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("CXX", compiler(empty_cache, "echo 'x.cc:3: error: no such thing' >&2; exit 1"))
    with pytest.raises(BuildFailed) as raised:
        built(LIBRARY)
    assert str(raised.value) == (
        "broken 1.0 does not build normalisation.cc: x.cc:3: error: no such thing; name another compiler in CXX and run "
        "`pcp kernels build`"
    )
    assert main(["kernels", "build", "--json"]) == 3
    lines = map(json.loads, capsys.readouterr().out.splitlines())
    said = next(line for line in lines if line["library"] == "normalisation")
    assert said["kernels"] == [
        "normalisation.native",
        "normalisation_gradient.native",
        "residual_normalisation.native",
    ]
    assert "no such thing" in said["missing"]
    monkeypatch.setenv("CXX", compiler(empty_cache, "exit 0"))
    with pytest.raises(BuildFailed, match="it ended with code 0"):
        built(LIBRARY)


def test_a_folder_that_cannot_be_written_is_named(empty_cache: FilePath) -> None:
    (empty_cache / "native").write_text("a file")
    with pytest.raises(
        BuildFailed, match=r"cannot be built in .*native: File exists; make it writable, or name another"
    ):
        built(LIBRARY)


def test_the_command_builds_and_lists(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["kernels", "build"]) == 0
    assert f"normalisation@{built(LIBRARY).digest}: " in capsys.readouterr().out
    assert doctor.check_kernels().status == "ok"
    assert main(["kernels", "list", "--family", "normalisation"]) == 0
    assert "normalisation.native@2" in capsys.readouterr().out
    assert main(["kernels", "list", "--family", "gelu"]) == 0
    assert "gelu.native@2" in capsys.readouterr().out
    with masked("library:normalisation"):
        assert main(["kernels", "list", "--family", "normalisation"]) == 0
        assert "      PCP_MASK_FEATURES hides library:normalisation" in capsys.readouterr().out
    assert main(["kernels", "build", "what"]) == 2
    assert "`pcp kernels build` takes no 'what'; it builds all there are" in capsys.readouterr().err
