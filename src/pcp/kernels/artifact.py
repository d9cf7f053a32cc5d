"""What a kernel is made of: operations of StableHLO, code of a native library, or a JAX function lowered to StableHLO.

All of them end as operations of the program, in the place of the site. Nothing else belongs to a program but the native
libraries that it names, and those stay on the machine that built them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pcp.ir.bindings import ir
from pcp.kernels.features import LIBRARY
from pcp.kernels.native import Library, NativeUnavailable
from pcp.kernels.native.building import build_here
from pcp.kernels.storage import Storage
from pcp.tensor import Tensor
from pcp.tracing import call

Build = Callable[..., Sequence[Tensor]]
"""From the operation of a site to Tensors in the place of its results, emitted before it, then what it hands its gradient. A
kernel that takes residuals is given them as well, or none where the forward operation is computed otherwise; and a kernel of
several storages is told its own as `storage`."""


@dataclass(frozen=True, slots=True)
class StableHLO:
    """A kernel that is emitted as plain operations.

    Arguments:
        build: emits them.
    """

    build: Build
    kind: ClassVar[str] = "StableHLO"
    together: ClassVar[int | None] = None
    """Its place among equally exact kernels of a family that are tried at all sites at once: XLA may have done so itself."""

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
    together: ClassVar[int | None] = 0

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that it needs: the library, on a processor."""
        return ("cpu", f"{LIBRARY}{self.library.name}")

    @property
    def digest(self) -> str:
        """Of the build that is called here; empty where there is none."""
        try:
            return build_here(self.library.name).digest
        except NativeUnavailable:
            return ""


@dataclass(frozen=True, slots=True)
class Lowered:
    """A kernel that is a function of JAX arrays, of `jax.numpy` or Pallas, lowered to StableHLO for the shapes of its site.

    Arguments:
        describe: from what `Build` says that a kernel is given to the function that computes it, on which operands.
        platform: the kind of device that it is lowered for.
    """

    describe: Callable[..., "Application"]
    platform: str = "cpu"
    kind: ClassVar[str] = "JAX function"
    together: ClassVar[int | None] = 1

    @property
    def requires(self) -> tuple[str, ...]:
        """Features that it needs: a device of the kind that it is lowered for."""
        return (self.platform,)

    @property
    def digest(self) -> str:
        """Of what it calls: nothing, all of it is in the program."""
        return ""

    def build(self, op: ir.Operation, *residuals: Sequence[Tensor], **kept: Storage) -> Sequence[Tensor]:
        """Put what the function is lowered to in the place of an operation.

        Raises:
            NotLowered: the function cannot be lowered.
        """
        from pcp.kernels.jax_lowering import lowered_program  # which imports jax, and most kernels need none

        application = self.describe(op, *residuals, **kept)
        specs = tuple(operand.spec for operand in application.operands)
        returned = call(lowered_program(application.function, specs, self.platform), *application.operands)
        return application.results(returned if isinstance(returned, tuple) else (returned,))


@dataclass(frozen=True, slots=True)
class Application:
    """A function of JAX arrays on operands of a site.

    Arguments:
        function: of as many arrays as there are operands. Equal functions on equal shapes are lowered once.
        operands: in order.
        results: from what the function returns to what stands in the place of the operation's results.
    """

    function: Callable[..., Any]
    operands: Sequence[Tensor]
    results: Callable[[Sequence[Tensor]], Sequence[Tensor]] = tuple


Artifact = StableHLO | Native | Lowered
