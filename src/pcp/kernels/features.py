"""Features: what hardware and software have, by name, so that a kernel can say what it needs.

A feature is the kind of a device (`cpu`, `cuda`); an instruction set of the processor as /proc/cpuinfo calls it (`avx2`,
`avx512_bf16`, `amx_bf16`); the generation of an NVIDIA GPU (`sm_90`, which has those before it, too); so much memory or more
(`memory:16GiB`); or a native library of PCP's own (`library:normalisation`), which is built where that can be done.

The environment variable PCP_MASK_FEATURES hides features, by their names with commas between them: what a machine without
them does can be seen on one that has them. Processes that this one starts inherit it.
"""

import contextlib
import functools
import os
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from pcp.errors import PCPError

VARIABLE = "PCP_MASK_FEATURES"
LIBRARY = "library:"
"""How a feature begins that is a native library."""
KINDS = frozenset({"cpu", "cuda", "rocm", "tpu", "METAL"})
_UNITS = {"MiB": 2**20, "GiB": 2**30, "TiB": 2**40}
_MEMORY = re.compile(r"memory:(\d+)(MiB|GiB|TiB)")


class InvalidFeature(PCPError):
    """A feature that a kernel requires and that cannot be one."""


def features_of(platform: str) -> frozenset[str]:
    """The features of this machine's devices of one kind, without those that are hidden. Memory and libraries are asked for
    by `lacking`."""
    return _found(platform) - hidden()


def hidden() -> frozenset[str]:
    """The features that PCP_MASK_FEATURES hides."""
    return frozenset(filter(None, (name.strip() for name in os.environ.get(VARIABLE, "").split(","))))


@contextlib.contextmanager
def masked(*names: str) -> Iterator[None]:
    """Hide features in this process and those that it starts meanwhile.

    Native kernels ask for some of them whenever they run, and XLA runs a program after its call has returned: wait for results,
    as `np.asarray` does, before the end.
    """
    before = os.environ.get(VARIABLE)
    os.environ[VARIABLE] = ",".join(sorted(hidden() | set(names)))
    try:
        yield
    finally:
        if before is None:
            del os.environ[VARIABLE]
        else:
            os.environ[VARIABLE] = before


def is_for(requires: Sequence[str], platform: str) -> bool:
    """Whether something with these requirements is meant for a kind of device at all."""
    kinds = KINDS.intersection(requires)
    return not kinds or platform in kinds


def lacking(requires: Sequence[str], platform: str, *, builds: bool = True) -> str:
    """What is missing of the features that something requires, and why, for people; empty if nothing is.

    Arguments:
        builds: whether a library that is not built yet is built; if not, every library counts as one that can be had.

    Raises:
        InvalidFeature: a text that is no feature.
    """
    here = features_of(platform)
    for name in requires:
        if name in here:
            continue
        if name in hidden():
            return f"{VARIABLE} hides {name}"
        if name.startswith(LIBRARY):
            from pcp.kernels.native import missing  # which asks for features itself

            reason = missing(name.removeprefix(LIBRARY)) if builds else ""
            if reason:
                return reason
        elif name.startswith("memory:"):
            if memory_of(platform) < _bytes(name):
                return f"it needs {name.removeprefix('memory:')} of memory; there are {memory_of(platform) / 2**30:.1f} GiB"
        else:
            return f"it needs {name}, which {platform} does not have here"
    return ""


def _bytes(name: str) -> int:
    match = _MEMORY.fullmatch(name)
    if match is None:
        raise InvalidFeature(
            f"{name!r} is no feature; expected memory:NUMBER and MiB, GiB or TiB, as memory:16GiB"
        )
    return int(match[1]) * _UNITS[match[2]]


@functools.cache
def _found(platform: str) -> frozenset[str]:
    if platform == "cpu":
        return frozenset({"cpu", *_processor_flags(Path("/proc/cpuinfo"))})
    if platform == "cuda":
        capabilities = [each.compute_capability for each in _devices("gpu")]
        least = min((int(each.replace(".", "")) for each in capabilities), default=0)
        return frozenset({"cuda", *(f"sm_{number}" for number in _GENERATIONS if number <= least)})
    return frozenset({platform})


_GENERATIONS = (70, 75, 80, 86, 87, 89, 90, 100, 103, 120)
"""Of NVIDIA's GPUs: what is written for one runs on later ones, unless it says otherwise."""


def _processor_flags(file: Path) -> set[str]:
    try:
        lines = file.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return set()
    facts = {key.strip(): value for key, _, value in (line.partition(":") for line in lines)}
    return set((facts.get("flags", "") or facts.get("Features", "")).split())


@functools.cache
def memory_of(platform: str) -> int:
    """Bytes that the smallest device of a kind has."""
    if platform == "cpu":
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    known = [each.memory_stats() for each in _devices("gpu" if platform == "cuda" else platform)]
    return min((int(each["bytes_limit"]) for each in known if each), default=0)


def _devices(kind: str) -> list[Any]:
    import jax  # which takes its time, and not everybody who imports this needs it

    try:
        return list(jax.local_devices(backend=kind))
    except RuntimeError:  # there are none
        return []
