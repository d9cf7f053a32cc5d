"""What a kernel is made of: operations of StableHLO, code of a native library, or a JAX function lowered to StableHLO.

All of them end as operations of the program, in the place of the site. Nothing else belongs to a program but the native
libraries that it names, and those stay on the machine that built them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from pcp.ir.bindings import ir
from pcp.kernels.native import Library, NativeUnavailable
from pcp.kernels.native.building import build_here
from pcp.tensor import Tensor

Build = (
    Callable[[ir.Operation], Sequence[Tensor]] | Callable[[ir.Operation, Sequence[Tensor]], Sequence[Tensor]]
)
"""From the operation of a site to Tensors in the place of its results, emitted before it, then what it hands its gradient. A
kernel that takes such residuals is given them as well, or none where the forward operation is computed otherwise."""


@dataclass(frozen=True, slots=True)
class StableHLO:
    """A kernel that is emitted as plain operations.

    Arguments:
        build: emits them.
    """

    build: Build
    kind: ClassVar[str] = "StableHLO"

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that it needs: none."""
        return ()

    @property
    def digest(self) -> str:
        """Of what it calls: nothing."""
        return ""


@dataclass(frozen=True, slots=True)
class Native:
    """A kernel that calls handlers of a native library.

    Arguments:
        library: that defines the handlers.
        build: emits the calls, by `native_call`, and what turns operands and results into the form that they take.
    """

    library: Library
    build: Build
    kind: ClassVar[str] = "native"

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that it needs: the library, on a processor."""
        return ("cpu", f"library:{self.library.name}")

    @property
    def digest(self) -> str:
        """Of the build that is called here; empty where there is none."""
        try:
            return build_here(self.library.name).digest
        except NativeUnavailable:
            return ""


Artifact = StableHLO | Native
