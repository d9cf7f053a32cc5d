"""Which backends and devices there are, found by name."""

import functools
import glob
import importlib
import importlib.util
import os
from typing import Any

from pcp.backends.base import Device, UnknownBackend, UnknownDevice
from pcp.nvidia import nvidia

DEFAULT = "xla"
"""The backend of whoever names none."""
_LOCATIONS = {
    DEFAULT: "pcp.backends.xla:XLABackend",
    "arena": "pcp.backends.arena.backend:ArenaBackend",
    "iree": "pcp.backends.iree.backend:IREEBackend",
    "torch": "pcp.backends.arena.torch.backend:TorchBackend",
}
"""Where each backend is imported from when it is first asked for: their libraries take their time."""
_ARRAYS = {"torch": "arena"}
"""Backends whose arrays are those of another one, in the same memory: nothing is copied between the two."""
_COMPILERS = {"iree": ("iree.compiler", "_mlir_libs", ("iree-compile", "iree-lld"))}
"""The module of a backend's compiler, and the programs that it starts, in a folder below."""
_PROGRAMS_OF_CUDA = ("ptxas", "nvlink")
_FOLDERS_OF_CUDA = ("/usr/local/cuda/bin", "/opt/cuda/bin")
"""What XLA starts to assemble for a GPU, and where it looks for that beside NVIDIA's wheels."""
_PROCESSORS = ("", "cpu", "llvm-cpu")
"""Kinds of devices that are processors."""


def register_backend(name: str, location: str) -> None:
    """Add a backend, so that targets and paths may name it; processes that measure import it from the same place.

    Arguments:
        name: what targets and paths call it.
        location: `module:Class` of a `Backend` that is made without arguments.

    Raises:
        UnknownBackend: the location is not of that form, or another one has the name.
    """
    module, _, cls = location.partition(":")
    if not name or not module or not cls.isidentifier():
        raise UnknownBackend(
            f"backend {name!r} was given with location {location!r}; expected a name, and `module:Class` of a Backend"
        )
    if _LOCATIONS.setdefault(name, location) != location:
        raise UnknownBackend(
            f"backend {name!r} is registered from {_LOCATIONS[name]} already; give {location} another name"
        )


def backend_names() -> tuple[str, ...]:
    """The names of all backends that are registered, in alphabetical order."""
    return tuple(sorted(_LOCATIONS))


def location_of(name: str) -> str:
    """Where a backend is imported from, as `module:Class`.

    Raises:
        UnknownBackend: there is none; the message lists those that are.
    """
    if name not in _LOCATIONS:
        raise UnknownBackend(
            f"{name!r} is not a backend here; there are: {', '.join(backend_names())}; choose one of them, or register "
            "yours with pcp.backends.register_backend(name, 'module:Class') first"
        )
    return _LOCATIONS[name]


def arrays_of(name: str) -> str:
    """The backend whose arrays a backend takes and makes: itself, but for those that stand on another one."""
    return _ARRAYS.get(name, name)


def instance_of(name: str) -> Any:
    """The backend of that name, a `Backend`.

    Raises:
        UnknownBackend: there is none, or its module cannot be imported.
    """
    return _made(name, location_of(name))


@functools.cache
def _made(name: str, location: str) -> Any:
    module, _, cls = location.partition(":")
    try:
        return getattr(importlib.import_module(module), cls)()
    except (ImportError, AttributeError) as error:
        raise UnknownBackend(
            f"backend {name!r} cannot be imported from {location}: {error}; install what it needs, or choose one of: "
            f"{', '.join(backend_names())}"
        ) from error


def needs_driver(name: str) -> bool:
    """Whether a device of that name computes by a driver of the system, as GPUs do; no backend is imported to tell.

    Arguments:
        name: `cpu:0`, `arena:cpu`, `iree:vulkan`, ...; a name without a kind stands for the first device of a backend, which
            is a processor for each of PCP's own.
    """
    return _backend_and_kind(name)[1] not in _PROCESSORS


def _backend_and_kind(name: str) -> tuple[str, str]:
    head, _, rest = name.partition(":")
    return (head, rest.partition(":")[0]) if head in _LOCATIONS else (DEFAULT, head)


def compiler_programs(name: str) -> tuple[str, ...]:
    """Files of the programs that a backend starts to compile for a device of that name; none where it compiles by itself.

    Arguments:
        name: as of `needs_driver`.
    """
    of_backend, kind = _backend_and_kind(name)
    if (of_backend, kind) == (DEFAULT, "cuda"):
        wheels = [
            folder for place in _places("nvidia") for folder in glob.glob(os.path.join(place, "*", "bin"))
        ]
        paths = [
            os.path.join(folder, file)
            for folder in (*wheels, *_FOLDERS_OF_CUDA)
            for file in _PROGRAMS_OF_CUDA
        ]
        return tuple(filter(os.path.isfile, paths))
    module, folder, files = _COMPILERS.get(of_backend, ("", "", ()))
    programs = [os.path.join(place, folder, file) for place in _places(module) for file in files]
    return (*programs, "/bin/sh") if programs else ()  # IREE starts its linker by a shell


def _places(module: str) -> list[str]:
    """The folders of a package; none where it is not installed."""
    try:
        spec = importlib.util.find_spec(module) if module else None
    except ModuleNotFoundError:
        return []
    return [] if spec is None else list(spec.submodule_search_locations or [])


def devices(backend_name: str = DEFAULT) -> list[Device]:
    """Every device of this machine that a backend compiles for.

    Raises:
        UnknownBackend: there is no such backend.
    """
    here: list[Device] = instance_of(backend_name).devices()
    return here


def default_device() -> str:
    """The device of whoever names none: what the environment variable `PCP_DEVICE` says, or `cpu:0`."""
    return os.environ.get("PCP_DEVICE") or "cpu:0"


def device(name: Any = None, backend_name: str = DEFAULT) -> Device:
    """The device called `cpu:0` or `cuda:1`; without a number the first of its kind.

    Without a name it is `default_device()`; of another backend than XLA its first. A `jax.Device` and a `torch.device` name
    what they stand for.

    Raises:
        UnknownBackend: there is no such backend.
        UnknownDevice: it is not there; the message lists those that are.
    """
    if isinstance(name, Device):
        return name
    if name is None:
        if backend_name != DEFAULT:
            return devices(backend_name)[0]
        head, _, rest = (name := default_device()).partition(":")
        if head in backend_names():
            return device(rest or None, head)
    name = _name_of(name)
    known = {str(entry): entry for entry in devices(backend_name)}
    wanted = name if ":" in name else f"{name}:0"
    if wanted not in known:
        kind = wanted.partition(":")[0]
        more = "" if any(each.kind == kind for each in known.values()) else _what_lacks(kind)
        raise UnknownDevice(
            f"{name!r} is not a device of this machine; choose one of: {', '.join(known)}{more}"
        )
    return known[wanted]


def _what_lacks(kind: str) -> str:
    """Why there are no devices of a kind here, and what to install; empty where that is not known."""
    if kind in ("rocm", "tpu"):
        return f". JAX has no plug-in for {kind} here: docs.jax.dev/en/latest/installation.html says how to install it"
    if kind not in ("cuda", "gpu"):
        return ""
    here = nvidia()
    if here.advice:
        return f". {here.gpus[0]} is here: {here.advice}"
    seen = "A GPU is here, but JAX does not see it" if here.gpus else "There is no driver of NVIDIA here"
    return f". {seen}: `pcp doctor` says what is missing"


def _name_of(given: Any) -> str:
    """The name of a device that is given as one, or as JAX and PyTorch write it.

    Raises:
        UnknownDevice: it is something else.
    """
    if isinstance(given, str):
        return given
    kind, number = getattr(given, "platform", getattr(given, "type", None)), getattr(given, "id", None)
    if not isinstance(kind, str):
        raise UnknownDevice(
            f"the device is {given!r}; expected a name as 'cpu:0', or a Device, a Target, a jax.Device or a torch.device: "
            "pcp.backends.devices() lists what is here"
        )
    number = getattr(given, "index", None) if number is None else number
    return f"{'cuda' if kind == 'gpu' else kind}:{number or 0}"
