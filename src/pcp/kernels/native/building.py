"""Building native libraries: at first use, into the user's cache, under the digest of all that decides what comes out."""

import contextlib
import functools
import hashlib
import json
import logging
import os
import platform
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.ir.program_file import write_atomically
from pcp.kernels.features import VARIABLE, features_of, hidden
from pcp.kernels.native.libraries import LIBRARIES, Library
from pcp.kernels.native.permission import refusal

log = logging.getLogger("pcp.kernels.native")

COMPILERS = ("c++", "g++", "clang++")
"""Where CXX names none; the first that is found is taken."""
SECONDS = 300.0
"""That a compiler may take."""
_COMMON = (
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-shared",
    "-fvisibility-inlines-hidden",
    "-fno-math-errno",
    "-DNDEBUG",
)
_VECTORS = (
    (
        "avx512f avx512bw avx512vl avx512dq avx512_bf16 fma",
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mavx512bf16", "-mfma"),
    ),
    (
        "avx512f avx512bw avx512vl avx512dq fma",
        ("-mavx512f", "-mavx512bw", "-mavx512vl", "-mavx512dq", "-mfma"),
    ),
    ("avx2 fma", ("-mavx2", "-mfma")),
)
"""Features of a processor, and the flags that use them; the first row whose features are all there counts."""
_LONGEST_COMPLAINT = 300


class NativeUnavailable(PCPError):
    """A native library that this machine cannot be given."""


class NoCompiler(NativeUnavailable):
    """There is no C++ compiler here."""


class BuildFailed(NativeUnavailable):
    """The C++ compiler refuses the source of a library, or the result cannot be kept."""


@dataclass(frozen=True, slots=True)
class Build:
    """A library as it was built for a processor.

    Arguments:
        library: its name.
        digest: of its source, the compiler, the flags and XLA's headers.
        file: the shared library.
        content: the SHA-256 of that file.
        source: digest of the source.
        compiler: as it names itself.
        flags: that it was given.
        needs: features of the processor that the flags use.
    """

    library: str
    digest: str
    file: Path
    content: str
    source: str
    compiler: str
    flags: tuple[str, ...]
    needs: tuple[str, ...]


def folder() -> Path:
    """Where builds are kept."""
    return cache_folder() / "native"


def built(library: Library) -> Build:
    """The build of a library for this processor: that in the cache, or a new one.

    Without a compiler, a build that another compiler made here of the same source for the same features serves as well.

    Raises:
        NoCompiler: there is none, and no build.
        BuildFailed: the compiler refuses the source, or the folder of builds cannot be written.
    """
    return kept(library) or _build(library)


def kept(library: Library) -> Build | None:
    """The build of a library for this processor that is in the cache, if there is one.

    Raises:
        NoCompiler: there is neither a build nor a compiler.
    """
    _, flags = _flags()
    try:
        _, says = _compiler()
    except NoCompiler:
        wanted = library.name, library.source_digest, flags
        for build in builds():
            if (build.library, build.source, build.flags) == wanted:
                return build
        raise
    return build_of(_digest(library, says, flags))


def missing(name: str) -> str:
    """Why a library cannot be had here, for people; empty if it can. It is built if it is not yet.

    What was found is kept until the process ends, as long as environment and masked features stay.
    """
    if name not in LIBRARIES:
        return f"there is no native library {name!r}; there are {', '.join(LIBRARIES)}"
    reason = refusal(name)
    if reason:
        return reason
    found = _outcome(name, os.environ.get("CXX", ""), os.environ.get("PATH", ""), str(folder()), hidden())
    return found if isinstance(found, str) else ""


def build_here(name: str) -> Build:
    """The build of a library that kernels call here.

    Raises:
        NativeUnavailable: there is none; the message says why.
    """
    reason = missing(name)
    if reason:
        raise NativeUnavailable(f"the native library {name!r} is missing: {reason}")
    found = _outcome(name, os.environ.get("CXX", ""), os.environ.get("PATH", ""), str(folder()), hidden())
    assert isinstance(found, Build)
    return found


@functools.cache
def _outcome(name: str, *conditions: object) -> Build | str:  # noqa: ARG001  (what it depends on)
    try:
        return built(LIBRARIES[name])
    except NativeUnavailable as error:
        log.warning("the native library %s is missing: %s", name, error)
        return str(error)


def builds() -> Iterator[Build]:
    """Every build in the cache whose description can be read."""
    for file in sorted(folder().glob("*.json")):
        found = build_of(file.stem)
        if found is not None:
            yield found


def build_of(digest: str) -> Build | None:
    """The build of a digest, if it is in the cache."""
    try:
        facts = json.loads((folder() / f"{digest}.json").read_text())
        return Build(
            str(facts["library"]),
            digest,
            folder() / f"{digest}.so",
            str(facts["content"]),
            str(facts["source"]),
            str(facts["compiler"]),
            tuple(map(str, facts["flags"])),
            tuple(map(str, facts["needs"])),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Features of this processor that are used, and all flags of the compiler."""
    here = features_of("cpu")
    for names, flags in _VECTORS:
        if set(names.split()) <= here:
            return tuple(names.split()), (*_COMMON, *flags)
    return (), _COMMON


def _compiler() -> tuple[str, str]:
    """The command of the compiler, and what it says it is."""
    if "compiler" in hidden():
        raise NoCompiler(f"{VARIABLE} hides the C++ compiler")
    named = os.environ.get("CXX", "")
    found = next(filter(None, map(shutil.which, [named] if named else COMPILERS)), None)
    if found is None:
        tried = (
            f"CXX names {named!r}, which is not there"
            if named
            else f"none of {', '.join(COMPILERS)} is there"
        )
        raise NoCompiler(
            f"there is no C++ compiler ({tried}); install one (Debian, Ubuntu: apt install g++) and run "
            "`pcp kernels build`"
        )
    return found, _version(found)


@functools.cache
def _version(command: str) -> str:
    try:
        said = subprocess.run(
            [command, "--version"], capture_output=True, text=True, check=False, timeout=30
        ).stdout
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompiler(f"the C++ compiler {command} does not run: {error}; name another in CXX") from None
    return (said.splitlines() or ["it does not say its version"])[0]


@functools.cache
def _headers() -> tuple[str, str]:
    """The folder of XLA's headers, and a digest of them."""
    import jax.ffi  # which takes its time, and not everybody who imports this needs it

    place = Path(jax.ffi.include_dir())
    made = hashlib.sha256()
    for file in sorted(place.glob("xla/ffi/api/*.h")):
        made.update(file.read_bytes())
    return str(place), made.hexdigest()


def _digest(library: Library, compiler: str, flags: tuple[str, ...]) -> str:
    parts = [library.name, library.source_digest, compiler, *flags, _headers()[1], platform.machine()]
    return hashlib.sha256(json.dumps(parts).encode()).hexdigest()[:32]


def _build(library: Library) -> Build:
    """Compile into a folder of its own, and move what came out to its place, its description last."""
    command, compiler = _compiler()
    needs, flags = _flags()
    digest = _digest(library, compiler, flags)
    log.info("building the native library %s with %s", library.name, compiler)
    try:
        folder().mkdir(mode=0o700, parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix=".build-", dir=folder()) as place:
            made = Path(place) / "library.so"
            include = ("-isystem", _headers()[0])
            arguments = [command, *flags, *include, "-o", str(made), str(library.source)]
            said = subprocess.run(arguments, capture_output=True, text=True, check=False, timeout=SECONDS)
            if said.returncode or not made.exists():
                raise BuildFailed(
                    f"{compiler} does not build {library.source.name}: {_complaint(said.stderr, said.returncode)}; "
                    "name another compiler in CXX and run `pcp kernels build`"
                )
            content = hashlib.sha256(made.read_bytes()).hexdigest()
            with contextlib.suppress(OSError):
                made.chmod(0o500)
            os.replace(made, folder() / f"{digest}.so")
        facts = {
            "library": library.name,
            "content": content,
            "source": library.source_digest,
            "compiler": compiler,
            "flags": flags,
            "needs": needs,
        }
        write_atomically(folder() / f"{digest}.json", json.dumps(facts).encode())
    except OSError as error:
        raise BuildFailed(
            f"{library.source.name} cannot be built in {folder()}: {error.strerror or error}; make it writable, or name "
            "another folder in PCP_CACHE_DIR"
        ) from None
    except subprocess.TimeoutExpired:
        raise BuildFailed(f"{compiler} took more than {SECONDS:g} s for {library.source.name}") from None
    found = build_of(digest)
    assert found is not None
    return found


def _complaint(said: str, code: int) -> str:
    """The first error of a compiler."""
    lines = said.splitlines()
    first = next(
        (line for line in lines if "error" in line), lines[0] if lines else f"it ended with code {code}"
    )
    return first.strip()[:_LONGEST_COMPLAINT]
