"""IREE's runtime: devices by its drivers, arrays in their memory, compiled modules."""

import functools
import logging
from collections.abc import Sequence
from typing import Any

try:
    import iree.runtime as rt
except ImportError as error:
    raise ImportError(f"{error}, which pip install 'planetary-compute-protocol[iree]' installs") from error
import numpy as np

from pcp.backends.base import Device, ExecutionFailed, MemoryUse, OutOfMemory
from pcp.backends.host_memory import host_capacity
from pcp.backends.iree.chips import FAMILIES
from pcp.ir import Program, TensorSpec

log = logging.getLogger("pcp.backends.iree")


class Array:
    """An array in the memory of a device. `numpy.asarray` reads it.

    Arguments:
        view: where it lies, by IREE's runtime; None once it was donated.
        spec: its shape and element type.
        device: whose memory it is.
    """

    __slots__ = ("_native", "device", "dtype", "shape", "spec", "view")

    def __init__(self, view: Any, spec: TensorSpec, device: Device) -> None:
        self.view, self.spec, self.device = view, spec, device
        self._native = _config(device)
        self.shape, self.dtype = spec.shape, spec.dtype.numpy

    @property
    def size(self) -> int:
        """How many elements it has."""
        return self.spec.size

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray[Any, Any]:
        if self.view is None:
            raise ExecutionFailed(
                "an array was read that was donated to a call; read the call's result instead"
            )
        read = _read(self.view, self.spec, self.device)
        return np.array(read, dtype, copy=True if copy else None)

    def __float__(self) -> float:
        return float(np.asarray(self))

    def delete(self) -> None:
        """Give the memory back."""
        self.view = None

    def __del__(self) -> None:
        # Before IREE's device: an array that outlives the last reference to that, when a process ends, is freed by it.
        self.view = None

    def __repr__(self) -> str:
        return f"Array({self.spec}, {self.device})"


class IREEExecutable:
    """A module of IREE's virtual machine, loaded on one device.

    Arguments:
        module: its bytes.
        program: what it computes.
        device: where it runs.
    """

    def __init__(self, module: bytes, program: Program, device: Device) -> None:
        self._program, self._device = program, device
        context = rt.SystemContext(config=_config(device))
        loaded = rt.VmModule.copy_buffer(context.instance, module)
        try:
            context.add_vm_module(loaded)
        except (RuntimeError, ValueError) as error:
            raise ExecutionFailed(
                f"{device} does not take the compiled program: {_first_line(error)}; compile it for this device"
            ) from None
        self._main = context.modules[loaded.name]["main"]

    @property
    def memory(self) -> MemoryUse:
        """Arguments and results; IREE does not say what it takes between them, and a donated array is freed after the call."""
        arguments = sum(entry.spec.bytes for entry in self._program.arguments)
        results = sum(entry.spec.bytes for entry in self._program.results)
        return MemoryUse(arguments, results, aliased=0, temporaries=0, exact=False)

    def run(self, buffers: Sequence[Array]) -> list[Array]:
        """The results for flat arguments that were checked; donated ones are given back."""
        if any(buffer.view is None for buffer in buffers):
            raise ExecutionFailed("an argument was donated to an earlier call")
        try:
            returned = self._main(*(buffer.view for buffer in buffers))
        except (RuntimeError, ValueError) as error:
            full = "RESOURCE_EXHAUSTED" in str(error)
            raise (OutOfMemory if full else ExecutionFailed)(
                f"{self._device} stopped running the program: {_first_line(error)}"
            ) from None
        for entry, buffer in zip(self._program.arguments, buffers, strict=True):
            if entry.alias is not None:
                buffer.delete()
        results = self._program.results
        views = () if returned is None else returned if isinstance(returned, tuple | list) else (returned,)
        return [Array(view, entry.spec, self._device) for view, entry in zip(views, results, strict=True)]


def devices() -> list[Device]:
    """The devices that the runtime's drivers find here, the processor first."""
    return list(_native())


@functools.cache
def _native() -> dict[Device, Any]:
    devices = {}
    for kind, family in FAMILIES.items():
        if family.driver not in rt.query_available_drivers():
            continue
        try:
            driver = rt.get_driver(family.driver)
            infos = driver.query_available_devices()
        except (RuntimeError, ValueError) as error:  # listed, but the vendor's library is missing
            log.debug("no device of %s: %s", kind, error)
            continue
        for index, info in enumerate(infos):
            devices[Device(kind, index, host_capacity())] = (driver, info)
    return devices


def device_name(device: Device) -> str:
    """What a driver calls a device."""
    return str(_native()[device][1]["name"])


@functools.cache
def _config(device: Device) -> Any:
    driver, info = _native()[device]
    return rt.Config(device=driver.create_device(info))


def placed(array: np.ndarray[Any, Any], spec: TensorSpec, device: Device) -> Array:
    """A copy of an array in the memory of a device."""
    contiguous = np.ascontiguousarray(array, spec.dtype.numpy).reshape(spec.shape)
    return Array(rt.asdevicearray(_config(device).device, contiguous), spec, device)


def _read(view: Any, spec: TensorSpec, device: Device) -> np.ndarray[Any, Any]:
    """The elements of an array, copied to memory that any device may copy to."""
    if not spec.size:
        return np.empty(spec.shape, spec.dtype.numpy)
    native = _config(device).device
    source = view._buffer_view.get_buffer()
    target = native.allocator.allocate_buffer(
        memory_type=int(rt.MemoryType.HOST_LOCAL | rt.MemoryType.DEVICE_VISIBLE),
        allowed_usage=int(rt.BufferUsage.TRANSFER_TARGET | rt.BufferUsage.MAPPING_SCOPED),
        allocation_size=source.byte_length(),
    )
    moment = native.create_semaphore(0)
    begins, ends = (rt.HalFence.create_at(moment, time) for time in (0, 1))
    native.queue_copy(source, target, wait_semaphores=begins, signal_semaphores=ends)
    ends.wait()
    raw = np.array(target.map().asarray([source.byte_length()], np.dtype(np.uint8)))
    return raw[: spec.bytes].view(spec.dtype.numpy).reshape(spec.shape)


def _first_line(error: Exception) -> str:
    return str(error).strip().partition("\n")[0]
