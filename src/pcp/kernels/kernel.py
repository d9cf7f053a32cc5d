"""What a kernel is: one way to compute an operation, with the conditions under which it applies and what it does to numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import composite_name
from pcp.kernels.artifact import Artifact
from pcp.kernels.features import LIBRARY, is_for, lacking
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor


class KernelNotBuilt(PCPError):
    """A kernel that cannot compute an operation, though it said that it applies."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a kernel says of itself, and is held to where it is verified; see `Kernel`.

    One that came from outside is also called with the memory of its operands for its results: PCP's tests do so with its own.
    """

    effect: Effect
    nonfinite: str = "nan"
    bits: int = 8
    is_added: bool = False

    @property
    def is_exact(self) -> bool:
        """Whether it returns the very bits of the operation."""
        return self.effect is Effect.exact


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an operation.

    Arguments:
        name: its family and what is particular about it, `product.bf16`.
        effect: what it does to numbers, compared with the operation itself.
        about: one sentence for people.
        applies: whether it can stand in the place of an operation of its family, as far as types, shapes and attributes go.
        artifact: what it is made of.
        requires: features of hardware and software that it needs, by name, beside those that its artifact needs; with the kind
            of a device (`cpu`) it is for that only. See `pcp.kernels.features`.
        bits: of every operand that it keeps, at least, if it lowers precision.
        version: raised whenever it computes something else, so that no older measurement is taken for its own.
        nonfinite: what becomes of infinities and NaN: `exact`, or NaN may stand where an infinity should (`nan`), or anywhere
            (`spreads`). Never may a finite number stand where there should be none, but where what is masked need not be
            looked at (`skips`): then 0 may stand for 0 NaN in a part of the result.
        hands: names of the residuals that it hands a kernel of its gradient: `build` returns them after the results.
        hands_to: from the operation and what stands for its results, the operands of the forward operation that the residuals
            are of: those of the operation itself, unless it is one of several.
        takes: of a gradient, the names of the residuals that it takes. It must do without, too: the forward operation may be
            computed otherwise.
        everywhere_with: features of the processor without which it is only measured alone, though its family names it among the
            kernels to try at all sites at once.
    """

    name: str
    effect: Effect
    about: str
    applies: Callable[[ir.Operation], bool]
    artifact: Artifact
    requires: tuple[str, ...] = ()
    bits: int = 8
    version: int = 1
    nonfinite: str = "nan"
    hands: tuple[str, ...] = ()
    hands_to: Callable[[ir.Operation, Sequence[Tensor]], Sequence[Value]] = lambda op, _: tuple(op.operands)
    takes: tuple[str, ...] = ()
    everywhere_with: tuple[str, ...] = ()

    @property
    def family(self) -> str:
        """What it computes: `product`, `attention`."""
        return self.name.partition(".")[0]

    @property
    def claims(self) -> Claims:
        """What it is held to where it is verified."""
        return Claims(self.effect, self.nonfinite, self.bits, self.is_added)

    @property
    def is_added(self) -> bool:
        """Whether it comes from outside: its name ends with the digest of its content then."""
        return "#" in self.name

    @property
    def needs(self) -> tuple[str, ...]:
        """Every feature that it needs: its own and its artifact's."""
        return (*self.artifact.requires, *self.requires)

    def is_for(self, platform: str) -> bool:
        """Whether it is meant for a kind of device at all."""
        return is_for(self.needs, platform)

    @property
    def libraries(self) -> tuple[str, ...]:
        """Names of the native libraries that it calls."""
        return tuple(name.removeprefix(LIBRARY) for name in self.needs if name.startswith(LIBRARY))

    def lacks(self, platform: str, *, builds: bool = True) -> str:
        """What this machine's devices of a kind lack of what it needs, for people; empty if nothing.

        Arguments:
            builds: whether its library is built; if not, that counts as one that can be had.
        """
        return lacking(self.needs, platform, builds=builds)

    def build(self, op: ir.Operation, residuals: Sequence[Tensor] = ()) -> Sequence[Tensor]:
        """Emit it in front of an operation: Tensors in the place of its results, then those that it hands on.

        Arguments:
            op: at its site.
            residuals: what the forward kernel handed on, in the order of `takes`; empty where it did not stand there.

        Raises:
            KernelNotBuilt: it cannot make anything of the operation, though it said that it applies.
        """
        emit: Callable[..., Sequence[Tensor]] = self.artifact.build
        try:
            return emit(op, residuals) if self.takes else emit(op)
        except PCPError:
            raise
        except Exception as error:  # whatever attributes raise that are not what their name says
            raise KernelNotBuilt(
                f"kernel {self.name} cannot stand for {composite_name(op) or op.name} of "
                f"{', '.join(str(value.type) for value in op.operands)}: {type(error).__name__}: {error}; expected the "
                "operands and attributes that this name has: name the operation otherwise, or let the kernel's "
                "`applies` leave it out"
            ) from error

    def __str__(self) -> str:
        return f"{self.name} ({self.effect})"
