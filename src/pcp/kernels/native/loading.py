"""Loading the native libraries that a program calls."""

import ctypes
import hashlib
import re
import threading

from pcp.ir import Program
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels.cuda_source import TARGET as PTX
from pcp.kernels.features import features_of
from pcp.kernels.native.building import OUTSIDE, Build, NativeUnavailable, build_of, builds
from pcp.kernels.native.calling import TYPED
from pcp.kernels.native.libraries import LIBRARIES
from pcp.kernels.native.permission import allowed, refusal

_TARGET = re.compile(r"pcp\.([a-z_0-9]+)@([0-9a-f]{32})")
_PLAIN = {"call_target_name", "api_version", "backend_config", "has_side_effect"}
"""Attributes of a call from the wire; others say how memory is shared or laid out, which handlers are not told."""
_LOADING = threading.Lock()


class LibraryNotBuilt(NativeUnavailable):
    """A program or path that names a build of a native library that this machine does not have."""


class LibraryDamaged(NativeUnavailable):
    """A file that is not the library that was built."""


def load_for(program: Program) -> None:
    """Make sure that XLA can call every native handler that a program calls. Others' custom calls are left to XLA.

    Raises:
        LibraryNotBuilt: this machine does not have the build.
        LibraryDamaged: its file is not what was built.
        NativeUnavailable: the build is not allowed here, or needs features that the processor lacks.
    """
    if b"pcp." not in program.bytecode or b"@" not in program.bytecode:
        return  # most programs call nothing, and reading one takes time
    for target in sorted(_targets(program)):
        with _LOADING:
            _load(target)


def is_admitted(op: ir.Operation) -> bool:
    """Whether a custom call from the wire calls a handler of a build that PCP_NATIVE_KERNELS names by digest."""
    match = _TARGET.fullmatch(string_of(op.attributes["call_target_name"]))
    if match is None or not set(op.attributes[i].name for i in range(len(op.attributes))) <= _PLAIN:
        return False
    build = build_of(match[2])
    return (
        "api_version" in op.attributes
        and ir.IntegerAttr(op.attributes["api_version"]).value == TYPED
        and build is not None
        and f"{build.library}@{build.digest}" in allowed()
    )


def is_from_outside(op: ir.Operation) -> bool:
    """Whether a custom call runs machine code that came from outside: a handler of a user's library, or a kernel for GPUs."""
    name = string_of(op.attributes["call_target_name"])
    match = _TARGET.fullmatch(name)
    build = None if match is None else build_of(match[2])
    return name == PTX if build is None else build.library.startswith(OUTSIDE)


def _targets(program: Program) -> set[str]:
    module = program.module()  # operations do not outlive it
    calls = named_operations(module.operation, "stablehlo.custom_call")
    names = (string_of(op.attributes["call_target_name"]) for op in calls)
    return {name for name in names if _TARGET.fullmatch(name)}


def _load(target: str) -> None:
    parts = _TARGET.fullmatch(target)
    assert parts is not None
    handler, digest = parts.groups()
    build = build_of(digest)
    if build is None:
        here = ", ".join(f"{each.library}@{each.digest}" for each in builds()) or "none at all"
        raise LibraryNotBuilt(
            f"the program calls {handler} of the native library with digest {digest}, which this machine does not have; "
            f"there are {here}: run `pcp kernels build`, and plan again if that builds another one"
        )
    library = LIBRARIES.get(build.library)
    is_outside = build.library.startswith(OUTSIDE)  # of a kernel that the user has added with --allow-native
    if not is_outside and (library is None or handler not in library.handlers):
        raise LibraryNotBuilt(f"the native library {build.library} has no handler {handler}")
    reason = refusal(build.library, digest)
    if reason:
        raise NativeUnavailable(f"the program calls {target}, which is not allowed here: {reason}")
    lacks = set(build.needs) - features_of("cpu")
    if lacks:
        raise NativeUnavailable(
            f"the native library {build.library}@{digest} was built for {', '.join(sorted(lacks))}, which this "
            "processor does not have, or which is hidden; run `pcp kernels build`, and plan again"
        )
    if target not in _registered:
        _register(target, handler, build)
        _registered.add(target)


_registered: set[str] = set()
"""Targets that XLA knows in this process; it takes none twice."""


def _register(target: str, handler: str, build: Build) -> None:
    import jax.ffi

    symbol = getattr(opened(build), f"pcp_{handler}", None)
    if symbol is None:
        raise LibraryNotBuilt(
            f"the native library {build.library} defines no pcp_{handler}; expected XLA_FFI_DEFINE_HANDLER_SYMBOL of that name"
        )
    capsule = jax.ffi.pycapsule(symbol)  # type: ignore[no-untyped-call]  # jax gives it no types
    jax.ffi.register_ffi_target(target, capsule, platform="cpu")


def opened(build: Build) -> ctypes.CDLL:
    """The library of a build in this process.

    Raises:
        LibraryDamaged: its file is not what was built.
    """
    try:
        content = hashlib.sha256(build.file.read_bytes()).hexdigest()
    except OSError as error:
        content = error.strerror or str(error)
    if content != build.content:
        raise LibraryDamaged(
            f"{build.file} is not the library that was built: its digest is {content[:16]}, expected {build.content[:16]}; "
            f"remove it and {build.file.with_suffix('.json').name} beside it, and run `pcp kernels build`"
        )
    return ctypes.CDLL(str(build.file))
