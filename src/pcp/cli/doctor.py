"""`pcp doctor`: what this machine has, what it lacks, and what to do about it."""

import argparse
import json
import os
import platform
import re
import shutil
import ssl
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from importlib import metadata
from pathlib import Path

from pcp import backends
from pcp.backends.cache import default_cache
from pcp.backends.processors import core_count
from pcp.backends.registry import DEFAULT
from pcp.distributed.sandbox import NotConfined, protection
from pcp.distributed.wire.sockets import listen
from pcp.errors import PCPError
from pcp.kernels import kernels_of, native
from pcp.kernels.features import VARIABLE, hidden
from pcp.kernels.native import NativeUnavailable, NoCompiler, compiler_here, kept
from pcp.nvidia import DISTRIBUTION, nvidia
from pcp.planning.capacity import human

DESCRIPTION = {
    "description": "Check what PCP finds on this machine, what is missing, and what to do about it.",
    "epilog": """\
Each line is `ok`, `note` (it works, but more slowly or differently than you may expect) or `problem` (it does not
work), followed by what to do. The command changes nothing and sends nothing.

exit codes: 0 there is no problem; 1 there is at least one

examples:
  pcp doctor
  pcp doctor --json      one JSON object per line: check, status, message, advice
""",
}

OLDEST_PYTHON = (3, 11)
OLDEST_JAX, FIRST_UNKNOWN_JAX = (0, 10, 2), (0, 12)
LIBRARIES = ("numpy", "ml_dtypes", "pycapnp", "cryptography", "rich", "matplotlib")
EXTRA = re.compile(r"""(?P<name>[\w.-]+)[^;]*; extra == "(?P<extra>\w+)\"""")
"""A requirement of an optional extra, as a distribution states it."""
FOR_DEVELOPERS = ("dev", "docs", "peers")
FEATURES = {"amx_tile": "AMX", "avx512f": "AVX-512", "avx2": "AVX2", "asimd": "NEON", "sve": "SVE"}
"""Flags of /proc/cpuinfo, and what people call them."""


@dataclass(frozen=True, slots=True)
class Finding:
    """What a check found.

    Arguments:
        status: `ok`, `note` or `problem`.
        message: what is the case.
        advice: what to do; empty where nothing need be done.
    """

    status: str
    message: str
    advice: str = ""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """It takes no arguments but `--json`."""


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    problems = 0
    for name, check in CHECKS.items():
        finding = check()
        problems += finding.status == "problem"
        if arguments.json:
            print(json.dumps({"check": name} | asdict(finding)), flush=True)
            continue
        print(f"{finding.status:8}{name:12}{finding.message}", flush=True)
        if finding.advice:
            print(f"{'':20}{finding.advice}", flush=True)
    return 1 if problems else 0


def check_python() -> Finding:
    """The interpreter."""
    version = f"{platform.python_implementation()} {platform.python_version()} on {platform.platform()}"
    if sys.version_info < OLDEST_PYTHON:
        return Finding("problem", version, "PCP needs Python 3.11 or newer")
    return Finding("ok", version)


def check_jax() -> Finding:
    """The two halves of jax, which must fit each other and PCP."""
    versions = {name: _version(name) for name in ("jax", "jaxlib")}
    words = ", ".join(f"{name} {version or 'is missing'}" for name, version in versions.items())
    if None in versions.values():
        return Finding("problem", words, f"install PCP with its dependencies: pip install {DISTRIBUTION}")
    numbers = [_numbers(version) for version in versions.values() if version]
    if not all(OLDEST_JAX <= each < FIRST_UNKNOWN_JAX for each in numbers):
        return Finding("problem", words, "PCP is made for jax and jaxlib from 0.10.2 on and before 0.12")
    if len(set(numbers)) > 1:
        return Finding("note", words, "install the same version of both; others are not tested")
    return Finding("ok", words)


def check_libraries() -> Finding:
    """What else PCP imports."""
    versions = {name: _version(name) for name in LIBRARIES}
    words = ", ".join(f"{name} {version}" for name, version in versions.items() if version)
    if missing := [name for name, version in versions.items() if version is None]:
        return Finding("problem", words, f"install {', '.join(missing)}")
    return Finding("ok", words)


def check_extras() -> Finding:
    """Which optional extras are here, each with all that it names."""
    parts: dict[str, list[bool]] = {}
    for required in metadata.requires(DISTRIBUTION) or ():
        if (match := EXTRA.fullmatch(required)) and match["extra"] not in FOR_DEVELOPERS:
            parts.setdefault(match["extra"], []).append(_version(match["name"]) is not None)
    here = sorted(extra for extra, there in parts.items() if all(there))
    lacking = sorted(parts.keys() - set(here))
    words = ", ".join(here) or "none"
    return Finding("ok", f"{words}; not installed: {', '.join(lacking)}" if lacking else words)


def check_devices() -> Finding:
    """Where programs can run."""
    try:
        devices = backends.devices()
    except Exception as error:  # plug-ins of devices raise what they like
        return Finding(
            "problem", f"no device can be used: {error}", "check the driver and the jax plug-in of the device"
        )
    words = ", ".join(f"{each} with {human(each.capacity)}" for each in devices)
    others = ", ".join(_of_other_backends())
    return Finding("ok", f"{words}; by other backends: {others}" if others else words)


def _of_other_backends() -> list[str]:
    """What `--device` calls the devices of backends beside XLA that are installed."""
    named = []
    for name in backends.backend_names():
        if name == DEFAULT:
            continue
        try:
            named += [f"{name}:{device}" for device in backends.devices(name)]
        except PCPError:  # an optional one that is not installed
            continue
    return named


def check_gpu() -> Finding:
    """GPUs of NVIDIA that the driver sees, and whether JAX can use them."""
    found = nvidia()
    if not found.gpus:
        return Finding("ok", "the driver of NVIDIA sees none, or there is no driver")
    words = f"{', '.join(found.gpus)}; driver {found.driver or 'of no known version'}"
    if found.advice:
        return Finding("problem", f"{words}; JAX cannot use it", found.advice)
    return Finding("ok", f"{words}; JAX's plug-in for CUDA {found.plugins[0]}")


def check_processor() -> Finding:
    """The processor and what it can do at once."""
    cores = core_count()
    model, flags = _processor(Path("/proc/cpuinfo"))
    features = [name for flag, name in FEATURES.items() if flag in flags]
    words = f"{model or platform.machine()}, {cores} cores for this process"
    if not flags:
        return Finding("ok", words)
    if "AMX" in features or "AVX-512" in features or "NEON" in features:
        return Finding("ok", f"{words}, with {', '.join(features)}")
    return Finding(
        "note",
        f"{words}, with {', '.join(features) or 'no vector units known here'}",
        "products are slower than with AVX-512 or AMX",
    )


def check_compiler() -> Finding:
    """A compiler for kernels in C++."""
    try:
        path, said = compiler_here()
    except NoCompiler as error:
        return Finding(
            "note",
            "native kernels are not built, and programs run on XLA's own, slower in places: "
            + str(error).partition("; install")[0],
            "install a C++ compiler (Debian, Ubuntu: apt install g++), or name one in CXX",
        )
    named = ", which CXX names" if os.environ.get("CXX") else ""
    return Finding("ok", f"{path}{named}: {said}")


def check_kernels() -> Finding:
    """PCP's own native kernels: which are built, which will be, and which cannot be."""
    words, advice, status = [], "", "ok"
    later: list[str] = []
    for library in native.LIBRARIES.values():
        try:
            build = kept(library)
        except NativeUnavailable as error:
            names = [kernel.name for kernel in kernels_of(library)] or [library.name]
            words.append(f"{', '.join(names)} {'is' if len(names) == 1 else 'are'} missing: {error}")
            status, advice = "note", "programs run without them, on XLA's own, slower in places"
            continue
        if build is not None:
            words.append(f"{library.name} {'came with PCP' if build.is_shipped else 'is built'}")
        elif kernels_of(library):
            later.append(library.name)
        else:
            words.append(f"{library.name}, for small programs in the arena, waits for `pcp kernels build`")
    if later:
        words.append(
            f"{', '.join(later)} {'is' if len(later) == 1 else 'are'} built when a plan first looks for kernels"
        )
    if hidden():
        words.append(f"{VARIABLE} hides {', '.join(sorted(hidden()))}")
    return Finding(status, "; ".join(words), advice)


def check_cache() -> Finding:
    """The folder of compiled programs."""
    cache = default_cache()
    try:
        # Where the folder is not made yet, what it would be made in.
        there = next(place for place in (cache.folder, *cache.folder.parents) if place.exists())
        with tempfile.TemporaryFile(dir=there) as file:
            file.write(b"a word")
        kept = [path.stat().st_size for path in cache.folder.glob("*.xla")]
        free = shutil.disk_usage(there).free
    except OSError as error:
        return Finding(
            "note",
            f"{cache.folder} cannot be written ({error.strerror}), so every program is compiled anew",
            "make it writable, or name another folder in PCP_CACHE_DIR",
        )
    words = f"{cache.folder}: {len(kept)} programs, {human(sum(kept))} of {human(cache.limit)}, {human(free)} free"
    if free < 1 << 30:
        return Finding("note", words, "little room is left on that disk")
    return Finding("ok", words)


def check_command() -> Finding:
    """Whether `pcp` is this PCP: Performance Co-Pilot uses the name as well."""
    others = [name for name in metadata.packages_distributions().get("pcp", []) if name != DISTRIBUTION]
    if others:
        return Finding(
            "problem",
            f"the module `pcp` is also installed by {', '.join(others)}",
            "keep the two in separate virtual environments",
        )
    path = shutil.which("pcp")
    if path is None:
        return Finding("note", "no `pcp` is on PATH", f"`{sys.executable} -m pcp` does the same")
    if not _is_ours(Path(path)):
        return Finding(
            "note",
            f"`pcp` is {path}, which is not this PCP but most likely Performance Co-Pilot",
            f"activate the environment of PCP, or write `{sys.executable} -m pcp`",
        )
    return Finding("ok", f"`pcp` is {path}")


def check_sandbox() -> Finding:
    """What keeps programs from the network away from this user's files."""
    try:
        means = protection()
    except (NotConfined, OSError) as error:
        return Finding("problem", str(error), "a Worker cannot verify programs here")
    words = f"a Worker verifies and runs programs under {means}"
    if means.is_full:
        return Finding("ok", words)
    if not means.files:
        lacks = "Landlock (Linux 5.13 or newer, in the kernel's list of security modules)"
    else:
        lacks = "seccomp, or PCP does not know this processor's system calls"
    return Finding("note", words, f"it lacks {lacks}; take part only in runs whose owner you trust")


def check_network() -> Finding:
    """What a Shepherd and its Workers need."""
    if not ssl.HAS_TLSv1_3:
        return Finding(
            "problem",
            f"{ssl.OPENSSL_VERSION} has no TLS 1.3",
            "use a Python built with OpenSSL 1.1.1 or newer",
        )
    try:
        with listen("127.0.0.1", 0) as listener:
            port = listener.getsockname()[1]
    except PCPError as error:
        return Finding("problem", str(error), "allow programs to listen on 127.0.0.1")
    return Finding("ok", f"could listen on 127.0.0.1 (port {port}); TLS 1.3 by {ssl.OPENSSL_VERSION}")


CHECKS: Mapping[str, Callable[[], Finding]] = {
    "python": check_python,
    "jax": check_jax,
    "libraries": check_libraries,
    "extras": check_extras,
    "devices": check_devices,
    "gpu": check_gpu,
    "processor": check_processor,
    "compiler": check_compiler,
    "kernels": check_kernels,
    "cache": check_cache,
    "command": check_command,
    "network": check_network,
    "sandbox": check_sandbox,
}


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _numbers(version: str) -> tuple[int, ...]:
    """The release of a version: 0.10.2.dev3 is (0, 10, 2)."""
    parts = version.partition("+")[0].split(".")[:3]
    return tuple(int(part) for part in parts if part.isdigit())


def _processor(path: Path) -> tuple[str, set[str]]:
    """Name and flags in /proc/cpuinfo; empty where there is no such file."""
    try:
        lines = path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return "", set()
    facts = {key.strip(): value.strip() for key, _, value in (line.partition(":") for line in lines)}
    flags = facts.get("flags", "") or facts.get("Features", "")
    return facts.get("model name", ""), set(flags.split())


def _is_ours(path: Path) -> bool:
    """Whether a command is the script that installing PCP makes, by what is installed here or by what it calls."""
    try:
        installed = metadata.files(DISTRIBUTION) or []
        if any(file.stem == "pcp" and _same(Path(str(file.locate())), path) for file in installed):
            return True
    except metadata.PackageNotFoundError:
        pass
    entries = {entry.module for entry in metadata.entry_points(group="console_scripts", name="pcp")}
    ours = {name for name in entries if name.partition(".")[0] == "pcp"} | {"pcp.__main__", "pcp.cli"}
    try:
        text = path.read_bytes().decode(errors="replace")
    except OSError:
        return False
    return any(re.search(rf"(?:\bfrom|\bimport|-m) {re.escape(name)}\b", text) for name in ours)


def _same(one: Path, other: Path) -> bool:
    try:
        return one.samefile(other)
    except OSError:
        return False
