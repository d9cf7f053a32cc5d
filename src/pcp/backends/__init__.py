"""Backends: what compiles or interprets a Program for a device."""

from pcp.backends.base import CompilationFailed as CompilationFailed
from pcp.backends.base import Device as Device
from pcp.backends.base import Executable as Executable
from pcp.backends.base import ExecutionFailed as ExecutionFailed
from pcp.backends.base import MemoryUse as MemoryUse
from pcp.backends.base import OutOfMemory as OutOfMemory
from pcp.backends.base import TooFewDevices as TooFewDevices
from pcp.backends.base import UnknownBackend as UnknownBackend
from pcp.backends.base import UnknownDevice as UnknownDevice
from pcp.backends.regions import Placement as Placement
from pcp.backends.registry import backend_names as backend_names
from pcp.backends.registry import compiler_programs as compiler_programs
from pcp.backends.registry import default_device as default_device
from pcp.backends.registry import device as device
from pcp.backends.registry import devices as devices
from pcp.backends.registry import needs_driver as needs_driver
from pcp.backends.registry import register_backend as register_backend
from pcp.backends.target import Backend as Backend
from pcp.backends.target import InvalidTarget as InvalidTarget
from pcp.backends.target import Target as Target
from pcp.backends.target import backend as backend
