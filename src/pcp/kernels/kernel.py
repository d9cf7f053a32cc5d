"""What a kernel is: one way to compute an operation, with the conditions under which it applies and what it does to numbers."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.ir.bindings import ir
from pcp.rewrite.row import Effect
from pcp.tensor import Tensor


@dataclass(frozen=True, slots=True)
class Kernel:
    """One way to compute an operation.

    Arguments:
        name: its family and what is particular about it, `product.bf16`.
        effect: what it does to numbers, compared with the operation itself.
        about: one sentence for people.
        applies: from an operation of its family and the kind of a device (`cpu`, `cuda`) to whether it can stand there.
        build: from the operation to Tensors in the place of its results, emitted before it.
        version: raised whenever `build` emits something else, so that no older measurement is taken for its own.
        nonfinite: what becomes of infinities and NaN: `exact`, or NaN may stand where an infinity should (`nan`), or anywhere
            (`spreads`). Never may a finite number stand where there should be none, but where what is masked need not be
            looked at (`skips`): then 0 may stand for 0 NaN in a part of the result.
    """

    name: str
    effect: Effect
    about: str
    applies: Callable[[ir.Operation, str], bool]
    build: Callable[[ir.Operation], Sequence[Tensor]]
    version: int = 1
    nonfinite: str = "nan"

    @property
    def family(self) -> str:
        """What it computes: `product`, `attention`."""
        return self.name.partition(".")[0]

    @property
    def is_added(self) -> bool:
        """Whether it comes from outside: its name ends with the digest of its content then."""
        return "#" in self.name

    def __str__(self) -> str:
        return f"{self.name} ({self.effect})"
