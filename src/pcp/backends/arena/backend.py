"""The arena: a Program planned once into a workspace, and run there operation by operation. Nothing is compiled."""

from collections.abc import Callable
from importlib.metadata import version
from operator import attrgetter
from typing import Any

import numpy as np

from pcp.backends.arena.array import ArenaArray, Facts
from pcp.backends.arena.executable import ArenaExecutable
from pcp.backends.arena.lowerings.table import LOWERINGS
from pcp.backends.arena.recording import recorded
from pcp.backends.base import CompilationFailed, Device, OutOfMemory
from pcp.backends.host_memory import host_capacity, is_read_only, no_room
from pcp.backends.processors import processor_hardware
from pcp.backends.target import Backend, Target
from pcp.ir import Program, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.legalisation import legalise, legalise_chlo


class ArenaBackend(Backend):
    """Runs programs by NumPy in the memory of the host."""

    name = "arena"
    chooses_once = True
    """A path for one size of a symbolic program is followed at all sizes."""
    is_deleted = staticmethod(attrgetter("is_deleted"))

    def devices(self) -> list[Device]:
        """The host, as `cpu:0`."""
        return [Device("cpu", 0, host_capacity())]

    def compile(self, program: Program, target: Target, *, cache: bool) -> ArenaExecutable:
        """The program planned; that takes milliseconds, so nothing is kept on disk.

        Raises:
            CompilationFailed: the arena has no such operation, or options are given: it has none.
        """
        del cache
        _ = target.device  # it runs on one
        if target.options:
            names = ", ".join(name for name, _ in target.options)
            raise CompilationFailed(f"the arena was given the options {names}; it has none: leave them out")
        module = program.module()
        inline_composites(module)
        inline_calls(module)
        legalise_chlo(module)
        legalise(module)
        return self.planned(program, main_of(module))

    def planned(self, program: Program, main: ir.Operation) -> ArenaExecutable:
        """The program ready to run.

        Arguments:
            main: its function, without calls and composites, of operations of StableHLO.
        """
        return ArenaExecutable(recorded(program, main, LOWERINGS), program)

    def place(self, array: Any, spec: TensorSpec, target: Target, *, alias: bool) -> ArenaArray:
        """An array of the host; it shares memory only if nobody can write to that.

        Raises:
            OutOfMemory: there is no memory for a copy.
        """
        on_host, dtype = np.asarray(array), spec.dtype.numpy
        if alias and on_host.dtype == dtype and on_host.flags.c_contiguous and is_read_only(on_host):
            return ArenaArray(on_host)
        try:
            return ArenaArray(np.array(on_host, dtype, order="C"))
        except MemoryError:
            raise OutOfMemory(no_room(spec, target.device)) from None

    def is_buffer(self, value: object) -> bool:
        """Whether a value is an array of the arena."""
        return isinstance(value, ArenaArray)

    def facts(self, target: Target) -> Callable[[ArenaArray], Facts]:
        """Shape and element type."""
        del target
        return attrgetter("facts")

    def is_on(self, buffer: ArenaArray, target: Target) -> bool:
        """There is one device."""
        del buffer
        return target.devices == tuple(self.devices())

    def hardware(self, target: Target) -> tuple[str, str]:
        """The model of the processor, and its instructions."""
        del target
        return processor_hardware()

    @property
    def versions(self) -> str:
        """The version of NumPy, which computes."""
        return f"numpy {version('numpy')}"
