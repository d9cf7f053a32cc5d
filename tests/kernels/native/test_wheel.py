"""A wheel that is made where a compiler is has native kernels for where there is none."""

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from pcp.kernels.native import LIBRARIES
from pcp.kernels.native.compiling import VECTORS

pytest.importorskip("setuptools")
ROOT = Path(__file__).parents[3]
RUN = """
import json, numpy as np, pcp
from pcp import kernels, nn
from pcp.kernels.native import LIBRARIES, built
from pcp.cli.doctor import check_kernels
from pcp.planning.paths.path import Path
x = np.random.default_rng(0).normal(size=(40, 30)).astype(np.float32)
program = pcp.trace(lambda x, s: nn.rms_norm(x, s), pcp.spec((40, 30), "f32"), pcp.spec((30,), "f32"))
site = next(site for site in kernels.sites_of(pcp.plan(program).lowered, "cpu"))
path = Path.of(program, {site.key: kernels.kernel_named("normalisation.native")})
found = np.asarray(pcp.plan(program, path=path).run(x, np.ones(30, np.float32)))
print(json.dumps({
    "pcp": pcp.__file__, "missing": kernels.missing_here("cpu"), "doctor": check_kernels().message,
    "files": [str(built(each).file) for each in LIBRARIES.values()],
    "error": float(np.abs(found - x / np.sqrt((x**2).mean(1, keepdims=True) + 1e-6)).max()),
}))
"""


def copied(folder: Path) -> Path:
    """The sources, in a folder that may be written to."""
    shutil.copytree(ROOT / "src", folder / "src", ignore=shutil.ignore_patterns("__pycache__", "*.egg-info"))
    for name in ("pyproject.toml", "setup.py", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, folder)
    return folder


def command(*arguments: str | Path, folder: Path, **environment: str) -> str:
    said = subprocess.run(
        [sys.executable, *map(str, arguments)],
        env={**os.environ, **environment}, cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert said.returncode == 0, said.stdout[-2000:] + said.stderr[-2000:]
    return said.stdout


def wheel_of(folder: Path, **environment: str) -> Path:
    """The wheel of a copy of the sources."""
    sources = copied(folder / "sources")
    wheels = folder / "wheels"
    pip = (
        "-m",
        "pip",
        "wheel",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--wheel-dir",
        wheels,
        sources,
    )
    command(*pip, folder=folder, **environment)
    (wheel,) = wheels.iterdir()
    return wheel


@pytest.mark.long
@pytest.mark.timeout(600)
def test_a_wheel_brings_its_libraries(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    wheel = wheel_of(tmp_path)
    assert "-py3-none-linux" in wheel.name
    names = zipfile.ZipFile(wheel).namelist()
    built = [name for name in names if name.startswith("pcp/kernels/native/built/")]
    assert len([name for name in built if name.endswith(".so")]) == len(VECTORS) * len(LIBRARIES)
    assert len(built) == 2 * len(VECTORS) * len(LIBRARIES)
    site = tmp_path / "site"
    command("-m", "pip", "install", "--quiet", "--no-deps", "--target", site, wheel, folder=tmp_path)
    (tmp_path / "empty").mkdir()
    environment = {
        "PYTHONPATH": str(site), "PATH": str(tmp_path / "empty"), "CXX": "", "PCP_CACHE_DIR": str(tmp_path / "cache"),
    }  # fmt: skip
    import json

    facts = json.loads(command("-c", RUN, folder=tmp_path, **environment).splitlines()[-1])
    assert facts["pcp"].startswith(str(site))
    assert facts["missing"] == {}
    assert all(file.startswith(f"{site}/pcp/kernels/native/built") for file in facts["files"])
    assert facts["doctor"] == "; ".join(f"{name} came with PCP" for name in LIBRARIES)
    assert facts["error"] < 1e-5
    # What does not fit is not used: no compiler, then, means no native kernels.
    for description in (site / "pcp/kernels/native/built").glob("*.json"):
        description.write_text(description.read_text().replace('"source": "', '"source": "0'))
    text = 'from pcp import kernels; print(kernels.missing_here("cpu")["adamw.native"])'
    said = command("-c", text, folder=tmp_path, **environment)
    assert "there is no C++ compiler" in said


@pytest.mark.timeout(600)
def test_a_wheel_without_a_compiler_has_none(tmp_path: Path) -> None:
    (tmp_path / "sources").mkdir()
    wheel = wheel_of(tmp_path, CXX="no-such-compiler")
    assert wheel.name.endswith("-py3-none-any.whl")
    names = zipfile.ZipFile(wheel).namelist()
    assert not [name for name in names if name.endswith(".so")]
    assert "pcp/kernels/native/optimizers.cc" in names
