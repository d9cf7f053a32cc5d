"""IREE as a `Backend`: devices, arrays and compiled programs of its own."""

from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import numpy as np

from pcp.backends.base import Device
from pcp.backends.iree import running
from pcp.backends.iree.chips import Chip
from pcp.backends.iree.compiling import compiled_for
from pcp.backends.iree.running import Array, IREEExecutable
from pcp.backends.processors import processor_hardware
from pcp.backends.target import Backend, Target
from pcp.ir import Program, TensorSpec


class IREEBackend(Backend):
    """Compiles for the devices that the drivers of IREE's runtime find."""

    name = "iree"
    chooses_once = True
    """A path for one size of a symbolic program is followed at all sizes."""

    def devices(self) -> list[Device]:
        """The processor as `llvm-cpu:0`, and whatever there is of `vulkan`, `cuda` and `rocm`."""
        return running.devices()

    def compile(self, program: Program, target: Target, *, cache: bool) -> IREEExecutable:
        """The program compiled by IREE.

        Raises:
            CompilationFailed: IREE refuses the program or an option, or its compiler is not installed.
        """
        module = compiled_for(program, Chip.of(target.platform), dict(target.options), cache=cache)
        return IREEExecutable(module, program, target.device)

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> Array:  # noqa: ARG002
        """A copy of an array in the memory of a device."""
        return running.placed(np.asarray(array), spec, target.device)

    def is_buffer(self, value: object) -> bool:
        """Whether a value is an array of this backend."""
        return isinstance(value, Array)

    def facts(self, target: Target) -> Callable[[Array], object]:  # noqa: ARG002  (the same for all)
        """Its shape and element type, and whose memory it is."""
        return lambda buffer: (buffer.spec, buffer.device)

    @property
    def is_deleted(self) -> Callable[[Array], bool]:
        """Whether an array was donated."""
        return lambda buffer: buffer.view is None

    def is_on(self, buffer: Array, target: Target) -> bool:
        """Whether an array lies in the memory of the device."""
        return buffer.device == target.device

    def hardware(self, target: Target) -> tuple[str, str]:
        """The model of a device's hardware, for people, and all facts about it that speed and numbers depend on."""
        name, facts = processor_hardware()
        if target.platform == "llvm-cpu":
            return name, facts
        return running.device_name(target.device), f"{Chip.of(target.platform)} beside {name}"

    @property
    def versions(self) -> str:
        """The versions of IREE's compiler, if it is here, and of its runtime."""
        try:
            compiler = version("iree-base-compiler")
        except PackageNotFoundError:
            compiler = "none"
        return f"iree-base-compiler {compiler}, iree-base-runtime {version('iree-base-runtime')}"
