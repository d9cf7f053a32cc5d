"""What a kernel is: one way to compute an operation, with the conditions under which it applies and what it does to numbers."""

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from pcp.errors import PCPError
from pcp.ir.bindings import Value, ir
from pcp.ir.composites import composite_name
from pcp.kernels.artifact import Artifact
from pcp.kernels.features import LIBRARY, is_for, lacking
from pcp.kernels.storage import F32, Storage
from pcp.kernels.widening import Widened, is_narrow
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor, current_builder

_BY_XLA = ("stablehlo.dot_general", "stablehlo.convolution")
LEAST_BITS = 8
"""Of a number that a kernel keeps, if it lowers precision and does not say by a storage how: as many as bfloat16 has."""


class KernelNotBuilt(PCPError):
    """A kernel that cannot compute an operation, though it said that it applies."""


VARIES = 8.0
"""How much further than others two calls may lie apart of a kernel that says that its calls differ."""


@dataclass(frozen=True, slots=True)
class Claims:
    """What a kernel says of itself, and is held to where it is verified; see `Kernel`.

    One that came from outside is also called with the memory of its operands for its results: PCP's tests do so with its own.
    """

    effect: Effect
    nonfinite: str = "nan"
    bits: int = LEAST_BITS
    is_added: bool = False
    deterministic: bool | None = None

    @property
    def is_exact(self) -> bool:
        """Whether it returns the very bits of the operation."""
        return self.effect is Effect.exact

    @property
    def repeats_bits(self) -> bool:
        """Whether calls on the same operands return the same bits."""
        return self.is_exact or bool(self.deterministic)

    def explains(self, error: float) -> float:
        """The error that two calls on the same operands are held against, from its own."""
        return error if self.deterministic is None else VARIES * error


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an operation, in one of the storages that it can take.

    Arguments:
        name: its family and what is particular about it, `product.native`; behind a colon the storage, if that is not float32,
            `product.native:bf16`.
        about: one sentence for people.
        applies: whether it can stand in the place of an operation of its family, as far as types, shapes and attributes go.
        artifact: what it is made of.
        requires: features of hardware and software that it needs, by name, beside those that its artifact and its storage need;
            with the kind of a device (`cpu`) it is for that only. See `pcp.kernels.features`.
        effect: what it does to numbers, compared with the operation itself, where it keeps them as they are.
        version: raised whenever it computes something else, so that no older measurement is taken for its own.
        nonfinite: what becomes of infinities and NaN: `exact`, or NaN may stand where an infinity should (`nan`), or anywhere
            (`spreads`). Never may a finite number stand where there should be none, but where what is masked need not be
            looked at (`skips`): then 0 may stand for 0 NaN in a part of the result.
        hands: names of the residuals that it hands a kernel of its gradient: `build` returns them after the results. A kernel
            of several storages hands them to a gradient in the same storage.
        hands_to: from the operation and what stands for its results, the operands of the forward operation that the residuals
            are of: the operation's own, unless it is one of several.
        takes: of a gradient, the names of the residuals that it takes. It must do without, too: the forward operation may be
            computed otherwise.
        storages: that it can take; of several, `build` is given that which it is in.
        applies_in: whether it can compute an operation that it applies to in one of them.
        keeps: what it keeps in them, for people.
        together: by its storage, its place among equally exact kernels of its family where all families are tried at all sites
            at once, the first being 0; None for one that is only measured alone. Without it, what its artifact says.
        storage: that it is in.
    """

    name: str
    about: str
    applies: Callable[[ir.Operation], bool]
    artifact: Artifact
    requires: tuple[str, ...] = ()
    effect: Effect = Effect.reassociating
    version: int = 1
    nonfinite: str = "nan"
    hands: tuple[str, ...] = ()
    hands_to: Callable[[ir.Operation, Sequence[Tensor]], Sequence[Value]] = lambda op, _: tuple(op.operands)
    takes: tuple[str, ...] = ()
    storages: tuple[Storage, ...] = (F32,)
    applies_in: Callable[[ir.Operation, Storage], bool] = lambda _op, _storage: True
    keeps: str = "operands"
    together: Callable[[Storage], int | None] | None = None
    storage: Storage = F32

    def in_storages(self) -> Iterator["Kernel"]:
        """It, in each of its storages: what follows from that is said here."""
        several = len(self.storages) > 1
        for storage in self.storages:
            own = storage.suffix * several
            kernel = replace(
                self,
                applies=functools.partial(self._applies_in, storage) if several else self.applies,
                hands=tuple(f"{each}{own}" for each in self.hands),
                takes=tuple(f"{each}{own}" for each in self.takes),
                storage=storage,
            )
            yield (
                kernel
                if storage is F32
                else replace(
                    kernel,
                    name=f"{self.name}{storage.suffix}",
                    about=f"{self.about}; {self.keeps} {storage.about}",
                    requires=(*self.requires, *storage.requires(self.artifact.kind)),
                    effect=Effect.lowers_precision,
                    nonfinite="spreads" if storage.spreads else self.nonfinite,
                )
            )

    def applies_to(self, op: ir.Operation, wide: ir.Operation | None) -> bool:
        """Whether it can stand in the place of an operation, of which there is a form of wider numbers, or none.

        XLA multiplies narrow numbers as they are: kernels that round others to these add nothing then.
        """
        adds = wide is not None and (
            wide.name not in _BY_XLA
            or self.bits < LEAST_BITS
            or (self.storage is F32 and self.artifact.kind != "StableHLO")
        )
        return self.applies(op) or (wide is not None and adds and self.applies(wide))

    def _applies_in(self, storage: Storage, op: ir.Operation) -> bool:
        return self.applies(op) and self.applies_in(op, storage)

    @property
    def family(self) -> str:
        """What it computes: `product`, `attention`."""
        return self.name.partition(".")[0]

    @property
    def claims(self) -> Claims:
        """What it is held to where it is verified."""
        return Claims(self.effect, self.nonfinite, self.bits, self.is_added)

    @property
    def bits(self) -> int:
        """Of every number that it keeps, at least, if it lowers precision."""
        return LEAST_BITS if self.storage is F32 else self.storage.bits

    @property
    def place(self) -> int | None:
        """Its place among equally exact kernels where all families are tried together, if it is tried there."""
        return self.artifact.together if self.together is None else self.together(self.storage)

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
        kept = {"storage": self.storage} if len(self.storages) > 1 else {}
        try:
            wide = Widened.of(op) if is_narrow(op) and not self.applies(op) else None
            handed = [residuals] if self.takes else []
            if wide is None:
                return self.artifact.build(op, *handed, **kept)
            with current_builder().before(wide.op):
                built = self.artifact.build(wide.op, *handed, **kept)
            count = len(op.results)
            return [*wide.replaced(built[:count]), *built[count:]]
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
