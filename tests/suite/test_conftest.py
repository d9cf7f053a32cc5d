"""The promises of conftest.py: a home directory of the tests' own, and the platform that was asked for."""

import os
import subprocess
import time
from pathlib import Path

import pytest
from hypothesis import settings
from tests.suite.kept_builds import LONGEST_KEPT_SECONDS, folder_of_builds, put_quick_compiler_first
from tests.suite.optional_packages import needs_optional


def test_home_and_every_cache_lie_in_the_sessions_own_folder(test_home: Path) -> None:
    assert Path.home() == test_home
    assert test_home.name.startswith("pcp-test-home-")
    for variable in ("XDG_CACHE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"):
        assert Path(os.environ[variable]).is_relative_to(test_home)


def test_native_builds_outlive_the_session(test_home: Path, pytestconfig: pytest.Config) -> None:
    builds = (test_home / ".cache/pcp/native").resolve()
    assert builds == Path(os.environ["PCP_TEST_BUILDS"]).resolve()
    assert builds == folder_of_builds(pytestconfig, test_home).resolve()
    assert not builds.is_relative_to(test_home)


def test_old_builds_are_forgotten(
    tmp_path: Path, pytestconfig: pytest.Config, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(pytestconfig.cache, "mkdir", lambda _name: tmp_path)
    folder = folder_of_builds(pytestconfig, tmp_path)
    for name in ("old.so", "old.json", ".build-old/library.so", "new.so"):
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).touch()
    for name in ("old.so", "old.json", ".build-old"):
        os.utime(folder / name, (0.0, time.time() - LONGEST_KEPT_SECONDS - 1))
    assert [entry.name for entry in folder_of_builds(pytestconfig, tmp_path).iterdir()] == ["new.so"]


@pytest.mark.parametrize(("optimised", "said"), [("", "before -O1"), ("1", "before")])
def test_libraries_are_built_quickly_but_where_all_is_compiled_for_speed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, optimised: str, said: str
) -> None:
    own = tmp_path / "own" / "c++"
    own.parent.mkdir()
    own.write_text('#!/bin/sh\necho "$@"\n')
    own.chmod(0o700)
    monkeypatch.setenv("PATH", f"{own.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("PCP_TEST_OPTIMISED", optimised)
    put_quick_compiler_first(tmp_path)
    assert subprocess.run(["c++", "before"], capture_output=True, text=True, check=True).stdout == f"{said}\n"


def _nothing() -> None: ...


@pytest.mark.parametrize(
    ("source", "needing"),
    [
        ("def test_a(): pytest.importorskip('torch')\ndef test_b(): ...", {"test_a"}),
        (
            "def test_a():\n    if True:\n        pytest.importorskip('iree.runtime')\ndef test_b(): ...",
            {"test_a"},
        ),
        ("pytest.importorskip('egglog')\ndef test_a(): ...\ndef test_b(): ...", {"test_a", "test_b"}),
        ("made = pytest.importorskip('torch')\ndef test_a(): ...\ndef test_b(): ...", {"test_a", "test_b"}),
        (
            "def helper(): pytest.importorskip('torch')\ndef test_a(): ...\ndef test_b(): helper()",
            {"test_a", "test_b"},
        ),
        ("def test_a(): pytest.importorskip('uvicorn')\ndef test_b(): ...", set()),
        ("def test_a(): pytest.importorskip(name)\ndef test_b(): ...", {"test_a"}),
    ],
)
def test_only_what_needs_optional_packages_runs_again(
    source: str, needing: set[str], tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    file = tmp_path / "test_file.py"
    file.write_text(source)
    names = ("test_a", "test_b")
    items = [pytest.Function.from_parent(request.node.parent, name=name, callobj=_nothing) for name in names]
    for item in items:
        item.path = file
    assert {item.name for item in items if needs_optional(item)} == needing
    items[0].path = Path(__file__).parents[1] / "peers" / "test_file.py"
    assert needs_optional(items[0])


def test_platform_is_cpu_unless_another_is_asked_for() -> None:
    platform = os.environ.get("PCP_TEST_PLATFORM", "cpu")
    assert os.environ["JAX_PLATFORMS"].split(",")[0] == platform
    assert os.environ["PCP_DEVICE"] == f"{platform}:0"


def test_property_tests_have_no_deadline() -> None:
    assert settings().deadline is None


def test_a_warning_is_an_error() -> None:
    import warnings

    with pytest.raises(UserWarning, match="unheeded"):
        warnings.warn("unheeded", stacklevel=1)
