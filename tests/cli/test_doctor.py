"""`pcp doctor`: every check, on a machine that has everything and on one that lacks something."""

import json
import stat
import tomllib
from importlib import metadata
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from pcp import backends, nvidia
from pcp.backends import Device
from pcp.cli import doctor, main
from pcp.cli.doctor import Finding
from pcp.distributed.sandbox import protection
from pcp.distributed.wire import CannotListen
from pcp.kernels import native
from pcp.kernels.features import VARIABLE

ROOT = Path(__file__).parents[2]


def as_versions(monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None]) -> None:
    monkeypatch.setattr(doctor, "_version", lambda name: versions.get(name, "1.0"))


def command(folder: Path, name: str, content: str) -> Path:
    path = folder / name
    path.write_text(content)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
    return path


def test_every_check_says_something_here(capsys: pytest.CaptureFixture[str]) -> None:
    code = main(["doctor", "--json"])
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["check"] for each in found] == list(doctor.CHECKS)
    assert all(set(each) == {"check", "status", "message", "advice"} for each in found)
    assert all(each["message"] for each in found)
    assert code == int(any(each["status"] == "problem" for each in found))
    by_name = {each["check"]: each for each in found}
    assert "cpu:0 with" in by_name["devices"]["message"]
    assert by_name["network"]["status"] == "ok"


def test_problems_are_told_with_advice_and_an_exit_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    checks = {"one": lambda: Finding("ok", "fine"), "two": lambda: Finding("problem", "not fine", "mend it")}
    monkeypatch.setattr(doctor, "CHECKS", checks)
    assert main(["doctor"]) == 1
    assert capsys.readouterr().out.splitlines() == [
        "ok      one         fine",
        "problem two         not fine",
        "                    mend it",
    ]


@pytest.mark.parametrize(
    ("versions", "status", "text"),
    [
        ({"jax": "0.10.2", "jaxlib": "0.10.2"}, "ok", ""),
        ({"jax": "0.11.2", "jaxlib": "0.11.2.dev1+local"}, "ok", ""),
        ({"jax": "0.11.2", "jaxlib": "0.10.2"}, "note", "install the same version of both"),
        ({"jax": "0.9.0", "jaxlib": "0.9.0"}, "problem", "from 0.10.2 on and before 0.12"),
        ({"jax": "0.12.0", "jaxlib": "0.12.0"}, "problem", "from 0.10.2 on and before 0.12"),
        ({"jax": "0.10.2", "jaxlib": None}, "problem", "install PCP with its dependencies"),
    ],
)
def test_versions_of_jax(
    monkeypatch: pytest.MonkeyPatch, versions: dict[str, str | None], status: str, text: str
) -> None:
    as_versions(monkeypatch, versions)
    found = doctor.check_jax()
    assert found.status == status
    assert text in found.advice


def test_an_old_python_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "OLDEST_PYTHON", (9, 9))
    assert doctor.check_python().advice == "PCP needs Python 3.11 or newer"


def test_a_missing_library_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    as_versions(monkeypatch, {"pycapnp": None})
    found = doctor.check_libraries()
    assert (found.status, found.advice) == ("problem", "install pycapnp")


def test_extras_are_listed_whether_they_are_here_or_not(monkeypatch: pytest.MonkeyPatch) -> None:
    required = ["numpy>=2", 'egglog<14,>=13.2; extra == "equality"', 'ruff>=0.12; extra == "dev"']
    required += ['uvicorn>=0.34; extra == "web"', 'starlette>=0.45; extra == "web"']
    monkeypatch.setattr(doctor.metadata, "requires", lambda _: required)
    as_versions(monkeypatch, {"egglog": "13.2.0", "uvicorn": "0.34", "starlette": None})
    assert doctor.check_extras().message == "equality; not installed: web"
    as_versions(monkeypatch, {"egglog": None, "uvicorn": "0.34", "starlette": None})
    assert doctor.check_extras() == doctor.Finding("ok", "none; not installed: equality, web")


def test_devices_and_their_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def devices(name: str = "xla") -> list[Device]:
        if name == "torch":
            raise backends.UnknownBackend("torch is not installed")
        cpu = Device("cpu", 0, 1 << 34)
        return [Device("cuda", 0, 80 << 30), cpu] if name == "xla" else [cpu]

    monkeypatch.setattr(backends, "devices", devices)
    monkeypatch.setattr(backends, "backend_names", lambda: ["xla", "arena", "torch"])
    found = "cuda:0 with 80.0 GiB, cpu:0 with 16.0 GiB"
    assert doctor.check_devices().message == f"{found}; by other backends: arena:cpu:0"
    monkeypatch.setattr(backends, "backend_names", lambda: ["xla", "torch"])
    assert doctor.check_devices().message == found


def a_driver(folder: Path, version: str, *models: str) -> Path:
    (folder / "gpus").mkdir()
    (folder / "version").write_text(
        f"NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  {version}  Release\nGCC 12\n"
    )
    for number, model in enumerate(models):
        (folder / "gpus" / str(number)).mkdir()
        (folder / "gpus" / str(number) / "information").write_text(f"Model: \t\t {model}\nIRQ:   5\n")
    return folder


@pytest.mark.parametrize(
    ("version", "plugins", "status", "text"),
    [
        ("580.95.05", ("jax-cuda13-plugin",), "ok", ""),
        ("570.10", ("jax-cuda12-plugin",), "ok", ""),
        ("580.95.05", (), "problem", "pip install 'planetary-compute-protocol[cuda]', which brings CUDA 13"),
        ("570.10", (), "problem", "[cuda12]', which brings CUDA 12"),
        ("570.10", ("jax-cuda13-plugin",), "problem", "CUDA 12; the plug-in for CUDA 13 needs a newer driver"),
        ("470.1", ("jax-cuda12-plugin",), "problem", "update the driver: it is 470.1, and CUDA 13 needs 580 or newer"),
    ],
)  # fmt: skip
def test_gpus_of_nvidia(
    version: str,
    plugins: tuple[str, ...],
    status: str,
    text: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    driver = a_driver(tmp_path, version, "NVIDIA H100 80GB HBM3", "NVIDIA L4")
    monkeypatch.setattr(nvidia, "_is_installed", lambda name: name in plugins)
    found = nvidia.nvidia(driver)
    assert (found.gpus, found.driver) == (("NVIDIA H100 80GB HBM3", "NVIDIA L4"), version)
    monkeypatch.setattr(doctor, "nvidia", lambda: found)
    said = doctor.check_gpu()
    assert (said.status, text in said.advice, bool(said.advice)) == (status, True, bool(text))
    assert said.message.startswith(f"NVIDIA H100 80GB HBM3, NVIDIA L4; driver {version}; JAX")


def test_no_driver_is_no_problem(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "nvidia", lambda: nvidia.nvidia(tmp_path / "nothing"))
    assert doctor.check_gpu() == Finding("ok", "the driver of NVIDIA sees none, or there is no driver")


def test_a_driver_that_fails_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken() -> Any:
        raise RuntimeError("driver too old")

    monkeypatch.setattr(backends, "devices", broken)
    found = doctor.check_devices()
    assert (found.status, found.message) == ("problem", "no device can be used: driver too old")


@pytest.mark.parametrize(
    ("text", "status", "message"),
    [
        (
            "model name\t: Xeon\nflags\t\t: fpu avx2 avx512f amx_tile\n",
            "ok",
            "Xeon, 2 cores for this process, with AMX, AVX-512, AVX2",
        ),
        ("model name\t: Old\nflags\t\t: fpu avx2\n", "note", "Old, 2 cores for this process, with AVX2"),
        ("Features\t: fp asimd\n", "ok", ", 2 cores for this process, with NEON"),
        ("nothing known\n", "ok", ", 2 cores for this process"),
    ],
)
def test_processors(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, text: str, status: str, message: str
) -> None:
    path = tmp_path / "cpuinfo"
    path.write_text(text)
    read = doctor._processor
    monkeypatch.setattr(doctor, "_processor", lambda _: read(path))
    monkeypatch.setattr(doctor, "core_count", lambda: 2)
    found = doctor.check_processor()
    assert found.status == status
    assert found.message.endswith(message)


def test_a_compiler_and_none(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    found = doctor.check_compiler()
    assert found.status == "note"
    assert "native kernels are not built" in found.message
    assert "apt install g++" in found.advice
    path = command(tmp_path, "g++", "#!/bin/sh\necho g++ 12.2.0\necho more\n")
    assert doctor.check_compiler() == Finding("ok", f"{path}: g++ 12.2.0")


def test_the_compiler_is_the_one_that_builds(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    command(tmp_path, "g++", "#!/bin/sh\necho g++ 12.2.0\n")
    named = command(tmp_path, "mine", "#!/bin/sh\necho mine 7\n")
    monkeypatch.setenv("CXX", "mine")
    assert doctor.check_compiler() == Finding("ok", f"{named}, which CXX names: mine 7")
    assert native.compiler_here() == (str(named), "mine 7")
    monkeypatch.setenv("CXX", "not-there")
    found = doctor.check_compiler()
    assert (found.status, "CXX names 'not-there', which is not there" in found.message) == ("note", True)
    monkeypatch.setenv("CXX", str(command(tmp_path, "broken", "#!/no/such/interpreter\n")))
    assert "broken does not run" in doctor.check_compiler().message
    monkeypatch.setenv(VARIABLE, "compiler")
    assert f"{VARIABLE} hides the C++ compiler" in doctor.check_compiler().message


def test_a_cache_that_can_be_written_and_one_that_cannot(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "cache"))
    (tmp_path / "cache" / "xla").mkdir(parents=True)
    (tmp_path / "cache" / "xla" / "a.xla").write_bytes(b"x" * 2048)
    found = doctor.check_cache()
    assert found.message.startswith(f"{tmp_path / 'cache' / 'xla'}: 1 programs, 2.0 KiB of 4.0 GiB")
    (tmp_path / "file").write_text("no folder")
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path / "file"))
    found = doctor.check_cache()
    assert found.status == "note"
    assert "cannot be written (Not a directory), so every program is compiled anew" in found.message
    assert "PCP_CACHE_DIR" in found.advice


def test_it_changes_nothing(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HOME", "XDG_CACHE_HOME", "PCP_CACHE_DIR", "PCP_DATA_DIR"):
        monkeypatch.setenv(name, str(tmp_path / name))
    protection.cache_clear()
    main(["doctor"])
    assert list(tmp_path.iterdir()) == []
    assert f"{tmp_path / 'PCP_CACHE_DIR' / 'xla'}: 0 programs" in capsys.readouterr().out


def test_the_command_on_the_path(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"pcp": [doctor.DISTRIBUTION]})
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor.check_command().message == "no `pcp` is on PATH"
    path = command(tmp_path, "pcp", "#!/bin/sh\n. $PCP_DIR/etc/pcp.env\n")
    found = doctor.check_command()
    assert (found.status, "most likely Performance Co-Pilot" in found.message) == ("note", True)
    assert "-m pcp" in found.advice
    entry = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["scripts"]["pcp"]
    module, _, function = entry.partition(":")
    for script in (  # of pip, of an interpreter with a long path, and of one's own
        f"#!/v/bin/python\nimport sys\nfrom {module} import {function}\nsys.exit({function}())\n",
        f"#!/bin/sh\n'exec' /v/bin/python $0 $@\nimport sys\nfrom {module} import {function}\n",
        f"#!/usr/bin/python\nimport {module}\n",
        '#!/bin/sh\nexec python -m pcp.cli "$@"\n',
    ):
        command(tmp_path, "pcp", script)
        assert doctor.check_command() == Finding("ok", f"`pcp` is {path}")
    for script in ("#!/usr/bin/python\nfrom pcp.pmapi import start\n", "#!/bin/sh\nexec pcp-summary\n", ""):
        command(tmp_path, "pcp", script)
        assert f"`pcp` is {path}, which is not this PCP" in doctor.check_command().message


def test_the_command_that_was_installed_is_right_whatever_it_is(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As on Windows, where it is a program of the machine."""
    path = command(tmp_path, "pcp", "MZ")
    recorded = SimpleNamespace(stem="pcp", locate=lambda: path)
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"pcp": [doctor.DISTRIBUTION]})
    monkeypatch.setattr(metadata, "files", lambda _: [recorded])
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "pcp").symlink_to(path)
    monkeypatch.setenv("PATH", str(tmp_path / "other"))
    assert doctor.check_command().status == "ok"


def test_another_distribution_with_a_module_of_that_name_is_a_problem(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(metadata, "packages_distributions", lambda: {"pcp": [doctor.DISTRIBUTION, "pcp"]})
    found = doctor.check_command()
    assert (found.status, found.message) == ("problem", "the module `pcp` is also installed by pcp")
    assert "separate virtual environments" in found.advice


def test_a_machine_on_which_nobody_may_listen(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(_host: str, _port: int) -> Any:
        raise CannotListen("cannot listen on 127.0.0.1:0: Permission denied")

    monkeypatch.setattr(doctor, "listen", refused)
    found = doctor.check_network()
    assert (found.status, found.advice) == ("problem", "allow programs to listen on 127.0.0.1")


def test_a_python_without_tls_is_a_problem(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.ssl, "HAS_TLSv1_3", False)
    assert "has no TLS 1.3" in doctor.check_network().message
