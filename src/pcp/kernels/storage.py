"""Storage: how the numbers are kept that a kernel computes with, or that a value of a program holds.

What follows from it is said here once: how exact it is, what becomes of infinities, and the words for people.

A kernel that rounds its result hands it on as a conversion to float32, which costs nothing where the reader converts back or
widens itself. A kernel of one's own is no part of XLA's fusions: it looks through that conversion.
"""

from dataclasses import dataclass

from pcp.ir import DType
from pcp.ir.bindings import Value
from pcp.ir.toolkit.dataflow import defining_op, result_owner, users_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ops.elementwise import convert
from pcp.ops.movement import reshape
from pcp.tensor import Tensor, current_builder


@dataclass(frozen=True, slots=True)
class Storage:
    """How numbers are kept.

    Arguments:
        name: `bf16`; behind a plus sign where more than what is kept at first is rounded, as in `bf16+sum`.
        bits: of each number that it keeps, the leading one among them.
        about: what is done to the numbers, for people: "rounded to bfloat16".
        dtype: the element type that holds them.
        terms: how many numbers of that type add up to one.
        places: how often a number is rounded on its way through a kernel.
        scaled: whether numbers share a scale, which is chosen by the largest of them.
        centred: whether what numbers have in common is taken off before, and kept in float32.
        native, xla: features that PCP's native code of it is written for, and that XLA needs to compute by it.
    """

    name: str
    bits: int
    about: str
    dtype: DType
    terms: int = 1
    places: int = 1
    scaled: bool = False
    centred: bool = False
    native: tuple[str, ...] = ()
    xla: tuple[str, ...] = ()

    @property
    def suffix(self) -> str:
        """Of the name of a kernel in it; numbers as they are have none."""
        return "" if self is F32 else f":{self.name}"

    @property
    def exactness(self) -> tuple[int, int]:
        """Larger for the more exact of two: by the bits that it keeps, then by how seldom it rounds, and what."""
        return self.bits, self.centred - self.places

    @property
    def spreads(self) -> bool:
        """Whether NaN may stand anywhere where an infinity was: it takes a scale along, or leaves a rest that is none."""
        return self.scaled or self.terms > 1

    def requires(self, kind: str) -> tuple[str, ...]:
        """Features that kernels of a kind of artifact need for it."""
        return {"native": self.native, "StableHLO": self.xla}.get(kind, ())

    def __str__(self) -> str:
        return self.name


F32 = Storage("f32", 24, "as they are", DType.f32, places=0)
BF16_X6 = Storage("bf16_x6", 24, "as sums of three bfloat16 numbers, six products", DType.bf16, terms=3)
BF16_X3 = Storage(
    "bf16_x3", 16, "as sums of two bfloat16 numbers, three products", DType.bf16, 2, native=("amx_bf16",)
)
TF32 = Storage("tf32", 11, "rounded to 11 bits by an NVIDIA GPU", DType.f32, xla=("cuda",))
BF16_CENTRED = Storage(
    "bf16_centred", 8, "rounded to bfloat16 when their means are taken off", DType.bf16, centred=True
)
BF16 = Storage("bf16", 8, "rounded to bfloat16", DType.bf16)
BF16_RESULT = Storage(
    "bf16+result", 8, "and the result rounded to bfloat16", DType.bf16, places=2, xla=("cuda",)
)
BF16_SUM = Storage(
    "bf16+sum", 8, "and sums that others are added to rounded to bfloat16", DType.bf16, places=2
)
INT8 = Storage(
    "int8",
    5,
    "rounded to bytes with a scale for some of them",
    DType.i8,
    scaled=True,
    native=("avx512_vnni",),
)
FP8 = Storage(
    "fp8",
    4,
    "rounded to e4m3 with a scale for each operand",
    DType.f8E4M3FN,
    scaled=True,
    xla=("cuda", "sm_89"),
)

STORAGES = {
    each.name: each
    for each in (F32, BF16_X6, BF16_X3, TF32, BF16_CENTRED, BF16, BF16_RESULT, BF16_SUM, INT8, FP8)
}
"""Every storage by its name, the most exact first."""


def widened(x: Tensor) -> Tensor:
    """Bfloat16 as float32."""
    return convert(x, DType.f32)


def as_kept(x: Tensor) -> Tensor:
    """The bfloat16 tensor that a float32 tensor was widened from, of the same shape; itself, if it was not."""
    op = defining_op(x.value)
    if op is not None and op.name == "stablehlo.reshape":
        source = as_kept(Tensor(op.operands[0], current_builder()))
        return x if source.dtype is x.dtype else reshape(source, x.shape)
    if op is None or op.name != "stablehlo.convert":
        return x
    source = Tensor(op.operands[0], current_builder())
    return source if source.dtype is DType.bf16 else x


def rounded_by_all(value: Value) -> bool:
    """Whether everything that takes a value rounds it to bfloat16 first."""
    users = list(users_of(result_owner(value)))
    return bool(users) and all(
        user.name == "stablehlo.convert" and spec_of(user.results[0].type).dtype is DType.bf16
        for user in users
    )


def is_argument(x: Tensor) -> bool:
    """Whether a tensor is an argument of the program, perhaps in another shape: to be written over, it would be copied."""
    op = defining_op(x.value)
    while op is not None and op.name == "stablehlo.reshape":
        op = defining_op(op.operands[0])
    return op is None
