"""Compiling a native library into a folder, with a description beside it.

`setup.py` loads this file alone to put builds into wheels, so it imports nothing but the standard library.
"""

import contextlib
import hashlib
import json
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

COMPILERS = ("c++", "g++", "clang++")
"""Where CXX names none; the first that is found is taken."""
SECONDS = 300.0
"""That a compiler may take."""
COMMON = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility-inlines-hidden",
    "-fno-math-errno",
    "-DNDEBUG",
)
VECTORS = (
    (
        ("avx512f", "avx512bw", "avx512vl", "avx512dq", "avx512_bf16", "fma"),
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mfma"),
    ),
    (
        ("avx512f", "avx512bw", "avx512vl", "avx512dq", "fma"),
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
    ),
    (("avx2", "fma"), ("-mavx2", "-mfma")),
    ((), ()),
)
"""Features of a processor, and the flags that use them; the first row whose features are all there counts."""
OWN_LIBRARY = ("-static-libstdc++", "-Wl,--gc-sections", "-Wl,--exclude-libs,ALL", "-s")
"""How a library gets a C++ standard library of its own, of which it keeps what it uses. Without it, what else is in the process
may lend it other functions of the same names: on machines with JAX's plug-in for CUDA, the first error that a handler put into
words ended the process. What it does not use would ask for a newer glibc."""
_WATCHED = 'exec 3<&0; (read _ <&3; kill -9 0) >/dev/null 2>&1 & exec "$@" </dev/null 3<&-'
"""Runs a command in a session of its own. When whoever holds the other end of its input lets go or dies, all that is left of
the session is killed: a compiler starts processes that would outlive it."""
_LONGEST_COMPLAINT = 300


class Refused(Exception):
    """What a compiler says of a source that it does not build."""


def compiler() -> str | None:
    """The command of the compiler: that which CXX names, else the first that is here; None if it is not."""
    named = os.environ.get("CXX", "")
    return next(filter(None, map(shutil.which, [named] if named else COMPILERS)), None)


def version_of(command: str) -> str:
    """What a compiler says it is.

    Raises:
        OSError, subprocess.SubprocessError: it does not run.
    """
    arguments = [command, "--version"]
    said = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=30).stdout
    return (said.splitlines() or ["it does not say its version"])[0]


def own_library(command: str) -> tuple[str, ...]:
    """The flags for a C++ standard library of its own; none where the compiler has none to put in.

    Raises:
        OSError, subprocess.SubprocessError: it does not run.
    """
    arguments = [command, "-print-file-name=libstdc++.a"]
    said = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=30).stdout
    return OWN_LIBRARY if Path(said.strip()).is_absolute() else ()


def digest_of_headers(include: Path) -> str:
    """The digest of XLA's headers in a folder."""
    hasher = hashlib.sha256()
    for file in sorted(include.glob("xla/ffi/api/*.h")):
        hasher.update(file.read_bytes())
    return hasher.hexdigest()


def digest_of_build(name: str, source: str, version: str, flags: Sequence[str], headers: str) -> str:
    """The digest of all that decides what comes out of a build.

    Arguments:
        name: of the library.
        source: digest of its source.
        version: of the compiler.
        flags: that it is given.
        headers: digest of XLA's headers.
    """
    parts = [name, source, version, *flags, *OWN_LIBRARY, headers, platform.machine()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def compile_library(
    file: Path, name: str, source: str, command: str, needs: Sequence[str], include: Path, folder: Path
) -> str:
    """Compile a library for processors with some features, into DIGEST.so and DIGEST.json of a folder.

    Both are made elsewhere and moved there, the description last.

    Arguments:
        file: its source.
        name, source: as of `digest_of_build`.
        command: the compiler.
        needs: features, a row of `VECTORS`.
        include: the folder of XLA's headers.

    Returns:
        The digest.

    Raises:
        Refused: the compiler refuses the source.
        OSError, subprocess.SubprocessError: it does not run, or the folder cannot be written.
    """
    version, headers = version_of(command), digest_of_headers(include)
    flags = (*COMMON, *dict(VECTORS)[tuple(needs)])
    digest = digest_of_build(name, source, version, flags, headers)
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".build-", dir=folder) as place:
        built, described = Path(place) / "library.so", Path(place) / "library.json"
        linked = own_library(command)
        arguments = [command, *flags, "-isystem", str(include), "-o", str(built), str(file), *linked]
        code, complaints = _run(arguments)
        if code or not built.exists():
            raise Refused(_complaint(complaints, code))
        facts = {
            "library": name,
            "content": hashlib.sha256(built.read_bytes()).hexdigest(),
            "source": source,
            "compiler": version,
            "flags": flags,
            "needs": list(needs),
            "headers": headers,
        }
        described.write_text(json.dumps(facts))
        with contextlib.suppress(OSError):
            built.chmod(0o500)
        os.replace(built, folder / f"{digest}.so")
        os.replace(described, folder / f"{digest}.json")
    return digest


def _run(arguments: Sequence[str]) -> tuple[int, str]:
    """The code that a compiler ends with, and its complaints.

    Raises:
        OSError, subprocess.SubprocessError: it does not run, or takes too long.
    """
    watched, held = os.pipe()
    with open(watched, "rb") as read, open(held, "wb") as lets_go:
        pipe, nothing = subprocess.PIPE, subprocess.DEVNULL
        command = ["sh", "-c", _WATCHED, "sh", *arguments]
        with subprocess.Popen(
            command, stdin=read, stdout=nothing, stderr=pipe, text=True, start_new_session=True
        ) as process:
            try:
                said = process.communicate(timeout=SECONDS)[1]
            finally:
                lets_go.close()
    return process.returncode, said


def _complaint(said: str, code: int) -> str:
    """The first error of a compiler."""
    lines = said.splitlines()
    first = next(
        (line for line in lines if "error" in line), lines[0] if lines else f"it ended with code {code}"
    )
    return first.strip()[:_LONGEST_COMPLAINT]
