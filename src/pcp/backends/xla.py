"""XLA through PJRT: the only file that touches jax's and jaxlib's internals for execution.

An upgrade of jax is an edit of this file. What it works around: element types are never jax's to change, so
every transfer says that 64 bits are wanted instead of setting the global switch; an executable accepts an
array of another type of the same size and reads its bits wrongly, so callers check; and a compiled program
must be told its device, or it runs on the first.
"""

import functools
import hashlib
import logging
import os
import threading
from collections.abc import Callable, Sequence
from importlib.metadata import version
from operator import attrgetter
from typing import Any
from weakref import WeakValueDictionary

import jax
import numpy as np
from jax._src import xla_bridge
from jax._src.array import ArrayImpl
from jax._src.core import ShapedArray
from jax._src.lib import xla_client
from jax.sharding import SingleDeviceSharding

from pcp.backends import host_memory
from pcp.backends.base import (
    Buffer,
    CompilationFailed,
    CompileOptions,
    Device,
    Executable,
    ExecutionFailed,
    MemoryUse,
    OutOfMemory,
    memory_use,
    widened,
)
from pcp.backends.cache import cache_key, default_cache
from pcp.backends.forms.for_xla import for_xla
from pcp.backends.forms.xla_options import AS_WRITTEN, QUICK, suiting
from pcp.backends.jax_replicas.arrays import is_over, over, sharding_over
from pcp.backends.processors import processor, processor_hardware
from pcp.backends.regions.segmented import compiled_in_segments
from pcp.backends.target import Target
from pcp.interruption import interruptible
from pcp.ir import Program, TensorSpec
from pcp.ir.toolkit.inlining import flat_bytecode
from pcp.kernels.native import NativeUnavailable, load_for

log = logging.getLogger("pcp.backends.xla")

_KINDS = {"gpu": "cuda"}  # PJRT's older name for the platform
_COMPILERS = threading.BoundedSemaphore(1 if version("jaxlib").startswith("0.11.") else 64)
"""How many threads may compile at once. With jaxlib 0.11.2, processes with several ended with SIGSEGV in the compiler, three of
some sixty on machines with 16 cores and more, on a processor and on a GPU; with 0.10.2 none did."""
_PINNED = "pinned_host"
"""What JAX calls memory of the host that a device reads and writes by itself."""
_TUNING = "products"
"""The folder of what XLA measured of products on GPUs."""


class XLAExecutable:
    """A program compiled by XLA. `form` is the digest of what is on disk, or empty.

    Arguments:
        results: shape and element type of each, and where it is.
        platform: of the devices.
    """

    def __init__(
        self, loaded: Any, results: Sequence[tuple[TensorSpec, Any]], platform: str, form: str = ""
    ) -> None:
        self._loaded, self.form = loaded, form
        self._execute = loaded.execute_sharded
        self._handlers = [_result_handler(_aval(spec), sharding) for spec, sharding in results]
        host_memory.keep_temporaries_of(self.memory, platform)

    @functools.cached_property
    def memory(self) -> MemoryUse:
        """Bytes that one call takes."""
        return memory_use(self._loaded.get_compiled_memory_stats())

    def run(self, buffers: Sequence[Buffer]) -> list[Buffer]:
        """The results for flat arguments that were checked."""
        try:
            results: list[Buffer] = self._execute(buffers).consume_with_handlers(self._handlers)
            return results
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" in str(error):
                raise OutOfMemory(f"the device ran out of memory while the program ran: {error}") from None
            raise ExecutionFailed(f"the device refused to run the program: {error}") from None


_alive = WeakValueDictionary[tuple[Program, Target], Executable]()
"""Compiled programs that somebody holds: nothing changes in them, so whoever compiles them again has the same."""


class XLABackend:
    """Compiles for every platform that jax finds a PJRT client for."""

    name = "xla"
    # Methods taken from the class cost a third of what reading them from each array does.
    is_deleted = staticmethod(ArrayImpl.is_deleted)

    options_on = ("cuda",)
    """Kinds of devices on which options suit some programs."""

    def devices(self) -> list[Device]:
        """The devices of this process, the default platform's first."""
        return list(_devices())

    def options_for(self, program: Program, target: Target) -> CompileOptions:
        """Options by which a program runs the fastest on a GPU, or as fast and is compiled sooner."""
        if target.platform not in self.options_on:
            return {}
        return suiting(program)

    def compile(self, program: Program, target: Target, *, cache: bool) -> Executable:
        """The program compiled by XLA, by the options of the target and no others, but for the one that has its conversions
        computed as they are written. Products of floats have their full precision, where the program does not say less.

        Large scores, logits and exponentials are made in blocks. On a GPU, gradients of attention and cross entropy make again
        what is whole in them; on a processor, those of activations and norms do so, and a deep program is compiled in segments,
        unless it would not fit in memory so. On a GPU that takes no less time, and runs more slowly (`docs/rejected.md`).

        Raises:
            CompilationFailed: XLA refuses the program or an option.
        """
        made = (_alive.get((program, target)) if cache else None) or self._lowered(program, target, cache)
        if cache:
            _alive[program, target] = made
        return made

    def _lowered(self, program: Program, target: Target, cache: bool) -> Executable:
        device, options, program = target.device, dict(target.options), for_xla(program, target.platform)
        is_quick = device.kind in QUICK and QUICK[device.kind].items() <= options.items()
        if device.kind == "cpu":
            segmented = compiled_in_segments(
                program, target, lambda each: self._compiled(each, (device,), options, cache), not is_quick
            )
            if segmented is not None and segmented.memory.peak <= device.capacity:
                return segmented
        return self._compiled(program, (device,), options, cache)

    def compile_replicas(
        self, program: Program, target: Target, results: Sequence[int | None], *, cache: bool
    ) -> Executable:
        """As `Replicating.compile_replicas`."""
        count = len(target.devices)
        prepared = for_xla(program, target.platform)
        wide = [
            (result.spec if axis is None else widened(result.spec, axis, count), axis)
            for result, axis in zip(program.results, results, strict=True)
        ]
        return self._compiled(prepared, target.devices, dict(target.options), cache, wide)

    @staticmethod
    def _compiled(
        program: Program,
        devices: tuple[Device, ...],
        options: CompileOptions,
        cache: bool,
        wide: Sequence[tuple[TensorSpec, int | None]] | None = None,
    ) -> XLAExecutable:
        """A program compiled for a device, or as a replica on each of several; `wide` has its results over all of these."""
        natives = tuple(_devices()[each] for each in devices)
        native = natives[0]
        settings = _compile_options(natives, {**AS_WRITTEN.get(devices[0].kind, {}), **options})
        results = (
            [(result.spec, _sharding(native)) for result in program.results]
            if wide is None
            else [(spec, sharding_over(natives, axis)) for spec, axis in wide]
        )
        try:
            load_for(program)  # before a compiled form is read, too: that looks for the handlers it calls
        except NativeUnavailable as error:
            raise CompilationFailed(str(error)) from error
        if not cache:
            return XLAExecutable(_compile(program, natives, settings), results, native.platform)
        store = default_cache()
        key = cache_key(_identity(program, native, settings))
        compiled = store.get(key)
        loaded = _load(compiled, natives, settings)
        if loaded is None:
            with store.building(key):
                compiled = store.get(key)  # another process may have made it meanwhile
                loaded = _load(compiled, natives, settings)
                if loaded is None:
                    loaded = _compile(program, natives, settings)
                    store.put(key, compiled := bytes(loaded.serialize()))
        return XLAExecutable(loaded, results, native.platform, hashlib.sha256(compiled or b"").hexdigest())

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> Buffer:
        """An array in the memory of the device; it shares host memory only if nobody can write to that.

        Raises:
            OutOfMemory: the device has too little memory left.
        """
        native = _devices()[target.device]
        pinned = self.is_buffer(array) and array.sharding.memory_kind == _PINNED
        if not self.is_buffer(array):
            array = np.ascontiguousarray(array, spec.dtype.numpy).reshape(spec.shape)
            alias = alias and host_memory.is_read_only(array)
        semantics = xla_client.HostBufferSemantics
        try:
            if pinned:
                return jax.device_put(array, _sharding(native))
            return xla_client.batched_device_put(
                _aval(spec),
                _sharding(native),
                [array],
                [native],
                force_copy=not alias,
                host_buffer_semantics=semantics.ZERO_COPY if alias else semantics.IMMUTABLE_ONLY_DURING_CALL,
                enable_x64=True,
            )
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise OutOfMemory(host_memory.no_room(spec, target.device)) from None

    def place_replicas(self, array: Any, spec: TensorSpec, target: Target, axis: int | None) -> Buffer:
        """As `Replicating.place_replicas`."""
        if not self.is_buffer(array):
            array = np.ascontiguousarray(array, spec.dtype.numpy).reshape(spec.shape)
        try:
            return over(array, self._over(target, axis))
        except jax.errors.JaxRuntimeError as error:
            if "RESOURCE_EXHAUSTED" not in str(error):
                raise
            raise OutOfMemory(host_memory.no_room(spec, target.devices[0])) from None

    def are_replicas(self, buffer: Buffer, target: Target, axis: int | None) -> bool:
        """As `Replicating.are_replicas`."""
        return is_over(buffer, self._over(target, axis))

    @staticmethod
    def _over(target: Target, axis: int | None) -> Any:
        return sharding_over(tuple(_devices()[each] for each in target.devices), axis)

    def aside(self, buffer: Buffer) -> Buffer | None:
        """A copy in pinned memory, which a GPU reads by itself; of a processor's arrays none."""
        sharding = buffer.sharding
        pinned = next(iter(sharding.device_set)).platform != "cpu"
        return jax.device_put(buffer, sharding.with_memory_kind(_PINNED)) if pinned else None

    def is_buffer(self, value: object) -> bool:
        """Whether a value is a concrete `jax.Array`."""
        return isinstance(value, jax.Array) and not isinstance(value, jax.core.Tracer)

    def facts(self, target: Target) -> Callable[[Buffer], object]:  # noqa: ARG002  (the same for all)
        """The abstract value of an array and, where there are several devices, its sharding."""
        if len(_devices()) > 1:
            return attrgetter("aval", "_sharding")
        return getattr(ArrayImpl.aval, "fget", None) or attrgetter("aval")

    def is_on(self, buffer: Buffer, target: Target) -> bool:
        """Whether the array is whole on the device."""
        return bool(buffer.devices() == {_devices()[target.device]})

    def wait(self, buffers: Sequence[Buffer]) -> None:
        """Return when all arrays are there; a device may say only then that it failed.

        Raises:
            OutOfMemory: the device ran out of memory.
            ExecutionFailed: the device stopped.
        """
        try:
            for buffer in buffers:
                buffer.block_until_ready()
        except RuntimeError as error:  # of which JAX's is a kind
            full = "RESOURCE_EXHAUSTED" in str(error)
            raise (OutOfMemory if full else ExecutionFailed)(f"the device stopped: {error}") from None

    def hardware(self, target: Target) -> tuple[str, str]:
        """The model of a device's hardware, for people, and all facts about it that speed and numbers depend on."""
        device, count = target.devices[0], len(target.devices)
        native = _devices()[device]
        name, facts = processor_hardware()
        if native.platform != "cpu":
            name, facts = str(native.device_kind), f"{native.client.platform_version} {device.capacity}"
        return (name, facts) if count == 1 else (f"{count} x {name}", facts)

    @property
    def versions(self) -> str:
        """The version of jaxlib, which is XLA's."""
        return f"jaxlib {version('jaxlib')}"

    def quick_options(self, target: Target) -> CompileOptions:
        """Little optimisation; products, which are library calls, are not what it slows down: compiling takes a third."""
        return QUICK.get(target.platform, {})


@functools.cache
def _devices() -> dict[Device, Any]:
    host_memory.keep_freed_memory()
    # Else a client takes three quarters of a GPU's memory at once, and leaves little to the process that measures.
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    natives = {}
    for name, client in xla_bridge.backends().items():
        kind = _KINDS.get(name, name)
        for index, native in enumerate(client.local_devices()):
            natives[Device(kind, index, _capacity(native))] = native
    return natives


def native_device(device: Device) -> Any:
    """A device as jax knows it."""
    return _devices()[device]


def _capacity(native: Any) -> int:
    stats = native.memory_stats() if native.platform != "cpu" else None
    if stats and "bytes_limit" in stats:
        return int(stats["bytes_limit"])
    return host_memory.host_capacity()


@functools.cache
def _sharding(native: Any) -> SingleDeviceSharding:
    return SingleDeviceSharding(native)


@functools.cache
def _aval(spec: TensorSpec) -> ShapedArray:
    """One object for equal specs, so that arrays made here are recognised by identity."""
    return ShapedArray(spec.shape, spec.dtype.numpy)


def _result_handler(aval: ShapedArray, sharding: Any) -> Any:
    try:
        return xla_client.array_result_handler(aval, sharding, committed=True, _skip_checks=True)
    except TypeError:  # jaxlib 0.11 has no checks to skip
        return xla_client.array_result_handler(aval, sharding, committed=True)


def _compile_options(natives: tuple[Any, ...], options: CompileOptions) -> Any:
    settings = xla_client.CompileOptions()
    settings.num_replicas = settings.executable_build_options.num_replicas = len(natives)
    settings.executable_build_options.device_assignment = xla_client.DeviceAssignment.create(
        np.array([[native.id] for native in natives])
    )
    settings.env_option_overrides = sorted(options.items())
    return settings


def _compile(program: Program, natives: tuple[Any, ...], options: Any) -> Any:
    if natives[0].platform == "gpu":
        _remember_tuning(options)
    bytecode, devices = flat_bytecode(program.bytecode), xla_client.DeviceList(natives)

    def compiled() -> Any:
        with _COMPILERS:
            return natives[0].client.compile_and_load(bytecode, devices, options)

    try:
        loaded = interruptible(compiled)
    except jax.errors.JaxRuntimeError as error:
        raise CompilationFailed(f"XLA refuses the program on {natives[0]}: {error}") from None
    return loaded


def _remember_tuning(options: Any) -> None:
    """Let XLA keep which algorithm is the fastest for a product of some shape: to try them all takes longer than all else."""
    folder = default_cache().folder / _TUNING
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        log.debug("XLA tries every algorithm again, because %s cannot be made: %s", folder, error)
        return
    options.executable_build_options.debug_options.xla_gpu_per_fusion_autotune_cache_dir = str(folder)


def _load(compiled: bytes | None, natives: tuple[Any, ...], options: Any) -> Any | None:
    if compiled is None:
        return None
    try:
        return natives[0].client.deserialize_executable(compiled, xla_client.DeviceList(natives), options)
    except jax.errors.JaxRuntimeError as error:
        log.warning("a compiled program from the cache does not load, so it is compiled again: %s", error)
        return None


def _identity(program: Program, native: Any, options: Any) -> list[str | bytes]:
    """All that the compiled form depends on; the artifact has no locations, but names every donation."""
    return [
        program.artifact(),
        options.SerializeAsString(),
        version("jaxlib"),
        native.platform,
        native.client.platform_version,
        native.device_kind,
        os.environ.get("XLA_FLAGS", ""),
        processor(),
    ]
