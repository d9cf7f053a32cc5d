"""The last step of `make wheel`: a wheel of libraries is named by the oldest glibc that they run on."""

import base64
import hashlib
import os
import re
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

pytest.importorskip("auditwheel")
MAKEFILE = Path(__file__).parents[1] / "Makefile"
SOURCES = {
    "old": "int twice(int x) { return 2 * x; }",
    "new": "#include <pthread.h>\nint key(pthread_key_t* k) { return pthread_key_create(k, 0); }",
}


def wheel_of(folder: Path, library: Path) -> Path:
    """A wheel that holds one library, as setuptools tags those for one platform and every Python."""
    info = "small-1.0.dist-info"
    files = {
        "small/one.so": library.read_bytes(),
        f"{info}/METADATA": b"Metadata-Version: 2.1\nName: small\nVersion: 1.0\n",
        f"{info}/WHEEL": b"Wheel-Version: 1.0\nGenerator: a test\nRoot-Is-Purelib: false\nTag: py3-none-linux_x86_64\n",
    }
    rows = []
    for name, content in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        rows.append(f"{name},sha256={digest},{len(content)}\n")
    wheel = folder / "small-1.0-py3-none-linux_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as made:
        for name, content in files.items():
            made.writestr(name, content)
        made.writestr(f"{info}/RECORD", "".join([*rows, f"{info}/RECORD,,\n"]))
    return wheel


@pytest.mark.skipif(shutil.which("gcc") is None, reason="there is no gcc")
@pytest.mark.parametrize("kind", SOURCES)
def test_a_wheel_is_named_by_the_oldest_glibc_that_its_libraries_run_on(kind: str, tmp_path: Path) -> None:
    (tmp_path / "one.c").write_text(SOURCES[kind])
    library = tmp_path / "one.so"
    subprocess.run(
        ["gcc", "-shared", "-fPIC", "-O1", "-o", library, tmp_path / "one.c"], check=True, timeout=60
    )
    wheel_of(tmp_path, library)
    needed = max((int(found) for found in re.findall(rb"GLIBC_2\.(\d+)", library.read_bytes())), default=5)
    (line,) = [each for each in MAKEFILE.read_text().splitlines() if "auditwheel repair" in each]
    words = line.split("$(BIN)/auditwheel ")[1].replace("dist build/wheel", f"{tmp_path}/dist {tmp_path}")
    tools = os.pathsep.join(
        [*(f"{each}/bin" for each in sys.path), str(Path(sys.executable).parent), os.environ["PATH"]]
    )
    command = f"{sys.executable} -m auditwheel {words}"
    done = subprocess.run(
        ["sh", "-c", command],
        env={**os.environ, "PATH": tools},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    (named,) = (tmp_path / "dist").iterdir()
    oldest = min(int(found) for found in re.findall(r"manylinux_2_(\d+)_x86_64", named.name))
    assert named.name.startswith("small-1.0-py3-none-manylinux")
    assert oldest >= needed
    assert (oldest == 5) == (kind == "old")
