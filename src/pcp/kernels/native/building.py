"""Native libraries as they are built: those that came with PCP, and those built at first use into the user's cache."""

import functools
import json
import logging
import os
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from pcp.errors import PCPError
from pcp.folders import cache_folder
from pcp.kernels.features import VARIABLE, features_of, hidden
from pcp.kernels.native.compiling import (
    COMMON,
    COMPILERS,
    SECONDS,
    VECTORS,
    Refused,
    compile_library,
    compiler,
    digest_of_build,
    digest_of_headers,
    version_of,
)
from pcp.kernels.native.libraries import LIBRARIES, Library
from pcp.kernels.native.permission import refusal
from pcp.turn import turn

log = logging.getLogger("pcp.kernels.native")

OUTSIDE = "outside_"
"""How the names of libraries begin that are built from somebody else's files."""
SHIPPED = Path(__file__).parent / "built"
"""Builds that came with this installation: a wheel that was made where a compiler is has some."""


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
        headers: digest of XLA's headers.
    """

    library: str
    digest: str
    file: Path
    content: str
    source: str
    compiler: str
    flags: tuple[str, ...]
    needs: tuple[str, ...]
    headers: str

    @property
    def is_shipped(self) -> bool:
        """Whether it came with this installation."""
        return self.file.parent == SHIPPED


def folder() -> Path:
    """Where builds are kept that are made here."""
    return cache_folder() / "native"


def built(library: Library) -> Build:
    """The build of a library for this processor: one that came with PCP, that in the cache, or a new one.

    Raises:
        NoCompiler: there is none, and no build.
        BuildFailed: the compiler refuses the source, or the folder of builds cannot be written.
    """
    build = kept(library)
    if build is not None:
        return build
    # Processes that start together want the same libraries, and the largest takes half a minute to build.
    with turn(
        folder() / f"{library.name}.lock",
        SECONDS,
        log,
        unavailable=f"cannot keep other processes from building the native library {library.name}",
        waiting=f"another process builds the native library {library.name}; waiting for it",
        gave_up="it is built here too",
    ):
        advice = "name another compiler in CXX and run `pcp kernels build`"
        return kept(library) or _compiled(library.source, library.name, library.source_digest, advice)


def kept(library: Library) -> Build | None:
    """The build of a library for this processor that is here, if there is one.

    A build that another compiler made of the same source, for the same features and with the same headers serves as well where
    it came with PCP, or where there is no compiler.

    Raises:
        NoCompiler: there is neither a build nor a compiler.
    """
    fitting = _fitting(library.name, library.source_digest)
    shipped = [build for build in fitting if build.is_shipped]
    if shipped:
        return shipped[0]
    try:
        version = compiler_here()[1]
    except NoCompiler:
        if fitting:
            return fitting[0]
        raise
    headers = digest_of_headers(_include())
    return build_of(digest_of_build(library.name, library.source_digest, version, _flags()[1], headers))


def _fitting(name: str, source: str) -> list[Build]:
    """The builds here of a library and its source, for this processor and by XLA's headers, of whatever compiler."""
    wanted = name, source, _flags()[1], digest_of_headers(_include())
    return [each for each in builds() if (each.library, each.source, each.flags, each.headers) == wanted]


def missing(name: str) -> str:
    """Why a library cannot be had here, for people; empty if it can. It is built if it is not yet.

    What was found is kept until the process ends, as long as environment and masked features stay.
    """
    outcome = _found(name)
    return outcome if isinstance(outcome, str) else ""


def build_here(name: str) -> Build:
    """The build of a library that kernels call here.

    Raises:
        NativeUnavailable: there is none; the message says why.
    """
    outcome = _found(name)
    if isinstance(outcome, str):
        raise NativeUnavailable(f"the native library {name!r} is missing: {outcome}")
    return outcome


def is_unbuilt(name: str) -> bool:
    """Whether the first that calls a library would have to compile it."""
    key = name, *_conditions()
    if key not in _SEEN and not refusal(name):
        try:
            if kept(LIBRARIES[name]) is None:
                return True
        except NoCompiler:
            pass
    _SEEN.add(key)
    return False


_SEEN: set[tuple[object, ...]] = set()
"""Libraries that need not be compiled, each with what that depends on."""


def _conditions() -> tuple[object, ...]:
    return os.environ.get("CXX", ""), os.environ.get("PATH", ""), str(folder()), hidden()


def _found(name: str) -> Build | str:
    """The build of a library, or why there is none."""
    if name not in LIBRARIES:
        return f"there is no native library {name!r}; there are {', '.join(LIBRARIES)}"
    return refusal(name) or _outcome(name, *_conditions())


@functools.cache
def _outcome(name: str, *conditions: object) -> Build | str:  # noqa: ARG001  (what it depends on)
    try:
        return built(LIBRARIES[name])
    except NativeUnavailable as error:
        log.warning("the native library %s is missing: %s", name, error)
        return str(error)


def builds() -> Iterator[Build]:
    """Every build here whose description can be read, those that came with PCP first."""
    for place in (SHIPPED, folder()):
        for file in sorted(place.glob("*.json")):
            build = _described(place, file.stem)
            if build is not None:
                yield build


def build_of(digest: str) -> Build | None:
    """The build of a digest, if it is here."""
    return _described(SHIPPED, digest) or _described(folder(), digest)


def _described(place: Path, digest: str) -> Build | None:
    try:
        facts = json.loads((place / f"{digest}.json").read_text())
        return Build(
            str(facts["library"]),
            digest,
            place / f"{digest}.so",
            str(facts["content"]),
            str(facts["source"]),
            str(facts["compiler"]),
            tuple(map(str, facts["flags"])),
            tuple(map(str, facts["needs"])),
            str(facts["headers"]),
        )
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _flags() -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Features of this processor that are used, and all flags of the compiler."""
    here = features_of("cpu")
    needs, flags = next((names, flags) for names, flags in VECTORS if set(names) <= here)
    return needs, (*COMMON, *flags)


def compiler_here() -> tuple[str, str]:
    """The command of the compiler that builds here, and what it says it is.

    Raises:
        NoCompiler: there is none, or it does not run.
    """
    if "compiler" in hidden():
        raise NoCompiler(f"{VARIABLE} hides the C++ compiler")
    command, named = compiler(), os.environ.get("CXX", "")
    if command is None:
        tried = (
            f"CXX names {named!r}, which is not there"
            if named
            else f"none of {', '.join(COMPILERS)} is there"
        )
        raise NoCompiler(
            f"there is no C++ compiler ({tried}); install one (Debian, Ubuntu: apt install g++) and run "
            "`pcp kernels build`"
        )
    return command, _version(command)


@functools.cache
def _version(command: str) -> str:
    try:
        return version_of(command)
    except (OSError, subprocess.SubprocessError) as error:
        raise NoCompiler(f"the C++ compiler {command} does not run: {error}; name another in CXX") from None


@functools.cache
def _include() -> Path:
    """The folder of XLA's headers, as `jax.ffi.include_dir()` says it, for which all of jax would be imported."""
    jaxlib = find_spec("jaxlib")
    assert jaxlib is not None
    assert jaxlib.submodule_search_locations is not None
    return Path(jaxlib.submodule_search_locations[0]) / "include"


def built_from(file: Path, name: str, source: str) -> Build:
    """The build of somebody else's file for this processor: one that is kept, or a new one.

    Arguments:
        file: of C++; it may include files beside it.
        name: what the library is called; it begins with `OUTSIDE`.
        source: the digest of all that it is built from.

    Raises:
        NoCompiler: there is none, and no build.
        BuildFailed: the compiler refuses the file, or the folder of builds cannot be written.
    """
    fitting = _fitting(name, source)
    return fitting[0] if fitting else _compiled(file, name, source, "mend it")


def discard(build: Build) -> None:
    """Remove a build from the cache."""
    for file in (build.file.with_suffix(".json"), build.file):
        file.unlink(missing_ok=True)


def _compiled(file: Path, name: str, source: str, advice: str) -> Build:
    command, version = compiler_here()
    log.info("building the native library %s with %s", name, version)
    try:
        digest = compile_library(file, name, source, command, _flags()[0], _include(), folder())
    except Refused as error:
        words = str(error).replace(f"{file.parent}/", "")
        raise BuildFailed(f"{version} does not build {file.name}: {words}; {advice}") from None
    except OSError as error:
        raise BuildFailed(
            f"{file.name} cannot be built in {folder()}: {error.strerror or error}; make it writable, or name "
            "another folder in PCP_CACHE_DIR"
        ) from None
    except subprocess.SubprocessError:
        raise BuildFailed(f"{version} took more than {SECONDS:g} s for {file.name}") from None
    build = build_of(digest)
    assert build is not None
    return build
