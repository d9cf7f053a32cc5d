"""The lock files hold what pyproject.toml asks for, with hashes, from no named index, and without PyTorch."""

import ast
import functools
import re
import sys
import tomllib
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parent.parent
LOCKS = ("lock.txt", "peers.txt", "docs.txt")
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]


@functools.cache
def locked(file: str) -> list[Requirement]:
    """Return the requirements of a lock file, without their hashes."""
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    return [Requirement(line.rstrip(" \\")) for line in text.splitlines() if re.match(r"\w", line)]


@functools.cache
def versions(file: str, python: str) -> dict[str, str]:
    """Return the versions that a lock file chooses on x86-64 Linux under a Python version."""
    environment = {"python_version": python, "python_full_version": f"{python}.9"}
    environment |= {"sys_platform": "linux", "platform_machine": "x86_64"}
    chosen: dict[str, str] = {}
    for requirement in locked(file):
        marker: Marker | None = requirement.marker
        if marker is None or marker.evaluate(environment):
            assert canonicalize_name(requirement.name) not in chosen, f"{requirement.name} is locked twice"
            chosen[canonicalize_name(requirement.name)] = str(requirement.specifier).removeprefix("==")
    return chosen


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize(
    ("file", "extra"),
    [
        ("lock.txt", "dev"),
        ("lock.txt", "web"),
        ("peers.txt", "peers"),
        ("peers.txt", "ray"),
        ("peers.txt", "iree"),
        ("docs.txt", "docs"),
    ],
)
def test_every_requirement_is_locked_at_a_version_it_admits(file: str, extra: str, python: str) -> None:
    chosen = versions(file, python)
    for line in PROJECT["dependencies"] + PROJECT["optional-dependencies"][extra]:
        requirement = Requirement(line)
        version = chosen.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in requirements/{file}: run `make lock`"
        assert requirement.specifier.contains(version), f"{line}, but {version} is locked: run `make lock`"


def imported_packages(folder: Path) -> set[str]:
    """Return the packages, outside the standard library, that the Python files in `folder` import."""
    found: set[str] = set()
    for path in folder.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    found |= {alias.name.split(".")[0] for alias in node.names}
                case ast.ImportFrom(level=0, module=str(module)):
                    found.add(module.split(".")[0])
    return found - sys.stdlib_module_names


def test_every_package_that_pcp_imports_is_declared() -> None:
    extras = [
        line for name, lines in PROJECT["optional-dependencies"].items() if name != "dev" for line in lines
    ]
    declared = {canonicalize_name(Requirement(line).name) for line in PROJECT["dependencies"] + extras} | {
        "torch",
        "triton",
        "iree",  # the folder that iree-base-compiler and iree-base-runtime share
    }
    distributions = packages_distributions()
    for package in imported_packages(ROOT / "src" / "pcp") - {"pcp"}:
        names = {canonicalize_name(name) for name in distributions.get(package, [package])}
        assert names & declared, (
            f"src imports {package}: declare it in pyproject.toml, say why in dependencies.md"
        )


def test_every_core_dependency_is_explained() -> None:
    explained = (ROOT / "docs" / "dependencies.md").read_text(encoding="utf-8")
    for line in (
        PROJECT["dependencies"]
        + PROJECT["optional-dependencies"]["dev"]
        + PROJECT["optional-dependencies"]["docs"]
    ):
        assert f"| {Requirement(line).name} |" in explained, f"docs/dependencies.md says nothing of {line}"


@pytest.mark.parametrize("python", ["3.11", "3.12", "3.13"])
@pytest.mark.parametrize("file", LOCKS[1:])
def test_the_locks_agree(file: str, python: str) -> None:
    core, other = versions("lock.txt", python), versions(file, python)
    assert {name: other[name] for name in core if name in other} == {
        name: core[name] for name in core if name in other
    }


def test_jax_on_python_311_is_the_last_release_that_supports_it() -> None:
    chosen = versions("lock.txt", "3.11")
    assert (chosen["jax"], chosen["jaxlib"]) == ("0.10.2", "0.10.2")


@pytest.mark.parametrize("file", LOCKS)
def test_every_locked_package_has_hashes_and_none_names_an_address(file: str) -> None:
    text = (ROOT / "requirements" / file).read_text(encoding="utf-8")
    assert "://" not in text
    assert "--index" not in text
    for entry in re.split(r"\n(?=\w)", text)[1:]:
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", entry), entry.splitlines()[0]


@pytest.mark.parametrize("file", LOCKS)
def test_no_lock_holds_torch_or_cuda(file: str) -> None:
    names = {requirement.name for requirement in locked(file)}
    assert {name for name in names if name.startswith(("torch", "nvidia-", "cuda-", "triton"))} == set()
