"""How a process is started that cannot harm who started it."""

import contextlib
import functools
import glob
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.machinery import PathFinder
from pathlib import Path

from pcp.backends import compiler_programs, needs_driver
from pcp.distributed.sandbox.usage import taken
from pcp.errors import PCPError
from pcp.folders import cache_folder, data_folder
from pcp.processes.child import Start
from pcp.temporary import CONFINED, TemporaryFolder

_JAIL = Path(__file__).with_name("jail.py")
_SECONDS = 60.0

OPEN_FILES, THREADS_PER_PROCESSOR, FURTHER_THREADS = 1024, 8, 512
_HANDED_ON = (
    "PCP_",
    "XLA_",
    "JAX_",
    "TF_",
    "NVIDIA_",
    "CUDA_",
    "OMP_",
    "OPENBLAS_",
    "MKL_",
    "KMP_",
    "MALLOC_",
    "LC_",
)
_HANDED_ON_WHOLE = ("LD_LIBRARY_PATH", "LANG", "TZ", "GLIBC_TUNABLES")

_NEEDED = (
    "jax", "jaxlib", "jax_plugins", "ml_dtypes", "numpy", "opt_einsum", "scipy",
    "jax_cuda12_plugin", "jax_cuda12_pjrt", "jax_cuda13_plugin", "jax_cuda13_pjrt",
)  # fmt: skip
"""Packages that a confined process imports, whether this one has or not."""


class NotConfined(PCPError):
    """A process that is to confine itself does not start."""


@dataclass(frozen=True, slots=True)
class Policy:
    """What a confined process may do.

    Arguments:
        folder: for its temporary files and its cache; it may write nowhere else.
        device: where it computes; drivers of GPUs need more of the system than processors.
        writable: further folders that it may write to.
        readable: further folders that it may read.
        cache: where programs are kept that it compiles, if not in its folder. They are machine code: whoever takes them from
            there must be as confined.
        processes: whether it may start Python again, as confined as itself.
        compiles: whether it may start the compiler of its device's backend, where that is a program of its own.
        file_bytes: of the largest file that it may write.
        cpu_seconds: of all its threads together; None for any time.
    """

    folder: Path
    device: str
    writable: tuple[Path, ...] = ()
    readable: tuple[Path, ...] = ()
    cache: Path | None = None
    processes: bool = False
    compiles: bool = True
    file_bytes: int | None = None
    cpu_seconds: float | None = None

    @property
    def written(self) -> tuple[Path, ...]:
        """The folders that it may write to."""
        return self.folder, *([] if self.cache is None else [self.cache]), *self.writable

    @property
    def compiled(self) -> Path:
        """Where it keeps what it compiles and measures."""
        return self.folder / "cache" if self.cache is None else self.cache

    def command(self, module: str | None) -> list[str]:
        """What starts a module so confined; without one, the process says by what, and ends."""
        programs = compiler_programs(self.device) if self.compiles else ()
        words = {
            "path": _search_path(),
            "readable": sorted(
                {
                    *_readable(),
                    str(cache_folder() / "native"),
                    str(data_folder() / "kernels"),
                    *map(str, self.readable),
                }
            ),
            "writable": [str(path) for path in self.written],
            "processes": self.processes or bool(programs),
            "programs": programs,
            "drivers": needs_driver(self.device),
            "limits": {
                "open_files": OPEN_FILES,
                "file_bytes": self.file_bytes,
                "cpu_seconds": self.cpu_seconds,
                "threads": FURTHER_THREADS + THREADS_PER_PROCESSOR * (os.cpu_count() or 1),
            },
        }
        # -I: neither the current folder nor the user's settings of Python decide what is run.
        words |= {} if module is None else {"module": module}
        return [sys.executable, "-I", str(_JAIL), json.dumps(words)]

    def environment(self) -> dict[str, str]:
        """The variables that it gets: those that change what is computed and how, and nothing else."""
        kept = {
            name: value
            for name, value in os.environ.items()
            if name.startswith(_HANDED_ON) or name in _HANDED_ON_WHOLE
        }
        return kept | {
            "HOME": str(self.folder),
            "TMPDIR": str(self.folder),
            "PCP_CACHE_DIR": str(self.compiled),
            "PCP_DATA_DIR": str(data_folder()),
            "PYTHONPATH": os.pathsep.join(_search_path()),
            "PATH": "",  # no compiler is looked for that could not be run
            # A second client of a GPU must not take most of its memory, as clients do.
            "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        }

    def start(self, module: str) -> Start:
        """How a module is started so confined; what it writes to its folders is counted."""
        return Start(self.command(module), self.environment(), lambda number: taken(self.written, number))

    def make_folders(self) -> None:
        """Make what lies in its own place; enough for a process that computes nothing."""
        for each in (self.folder, self.compiled):
            each.mkdir(mode=0o700, parents=True, exist_ok=True)

    def prepare(self) -> None:
        """Make the folders; what the user's PCP built, or builds, for programs to call is in the cache, too."""
        self.make_folders()
        link, builds = self.compiled / "native", cache_folder() / "native"
        with contextlib.suppress(OSError):  # only folders that are there can be read later
            builds.mkdir(mode=0o700, parents=True, exist_ok=True)
        if link != builds:
            with contextlib.suppress(FileExistsError):
                link.symlink_to(builds)


@dataclass(frozen=True, slots=True)
class Protection:
    """What confines processes on this machine; each is empty where there is nothing.

    Arguments:
        files: what keeps them from the user's files, and from other processes' memory.
        calls: what keeps them from the network, from starting programs, and from signals to others.
    """

    files: str
    calls: str

    @property
    def is_full(self) -> bool:
        """Whether nothing is missing."""
        return bool(self.files and self.calls)

    def __str__(self) -> str:
        if self.is_full:
            return f"{self.files} and {self.calls}, with limits"
        means = [each for each in (self.files, self.calls) if each]
        return f"{' and '.join(means)}, with limits" if means else "limits of memory and time only"


def is_confined() -> bool:
    """Whether this process was started confined."""
    return "PCP_CONFINED" in os.environ


@functools.cache
def protection(device: str = "cpu:0") -> Protection:
    """What confines a process on this machine that computes on a device; found by confining one."""
    with TemporaryFolder(CONFINED) as temporary:
        policy = Policy(temporary.path / "probe", device)
        policy.make_folders()
        done = subprocess.run(
            policy.command(None), env=policy.environment(), capture_output=True, timeout=_SECONDS, check=False
        )
    try:
        said = json.loads(done.stdout)
        return Protection(str(said["files"]), str(said["calls"]))
    except (ValueError, KeyError):
        words = " ".join(done.stderr.decode(errors="replace").split())[-300:]
        raise NotConfined(f"a process that confines itself does not start here: {words}") from None


def _search_path() -> list[str]:
    """Where this process found what it imported; not the folder in which it happens to run."""
    used = {os.path.dirname(place) for place in _imported()}
    kept = [os.path.abspath(path) for path in sys.path]
    return [
        path for path in dict.fromkeys(kept) if path in used or _holds_packages(path) or path.endswith(".zip")
    ]


def _holds_packages(folder: str) -> bool:
    name = os.path.basename(folder)
    return name in ("site-packages", "dist-packages", "lib-dynload") or folder == sysconfig.get_path("stdlib")


def _imported() -> Iterator[str]:
    """The folder or the file of every package and module, but of what is in them; imported already, or imported later."""
    for name, module in list(sys.modules.items()):
        if "." not in name and name != "__main__":
            places = getattr(module, "__path__", None) or [getattr(module, "__file__", None)]
            yield from (os.path.abspath(place) for place in places if place)
    for name in _NEEDED:
        if name not in sys.modules and (spec := PathFinder.find_spec(name)) is not None:
            yield from map(os.path.abspath, spec.submodule_search_locations or ())


def _readable() -> Iterator[str]:
    """Where the interpreter, its library and every package lie that this process has imported."""
    yield from _imported()
    for name in ("stdlib", "platstdlib", "purelib", "platlib"):
        yield sysconfig.get_path(name)
    for prefix in {sys.prefix, sys.base_prefix}:
        yield from (os.path.join(prefix, each) for each in ("lib", "lib64", "bin", "pyvenv.cfg"))
    for folder in _search_path():
        if _holds_packages(folder):
            yield folder
        else:  # what packages have beside their folder
            yield from glob.glob(os.path.join(glob.escape(folder), "*.libs"))
            yield from glob.glob(os.path.join(glob.escape(folder), "*.dist-info"))
