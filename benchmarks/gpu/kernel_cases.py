"""What single kernels are compared at: attention, norms, cross entropy, AdamW, with operands as a step in bfloat16 has them."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

Array = np.ndarray[Any, Any]
HEADS, WIDTH, TOKENS = 16, 128, 16384
"""Of attention, as in FlashAttention's own tables: 16k tokens in all, a width of 2048."""
CAP = 50.0
"""Of scores, as in Gemma 2."""


@dataclass(frozen=True, slots=True)
class Case:
    """Forward and backward pass of one operation.

    Arguments:
        operation: its name.
        shape: of its largest operand.
        flops: floating-point operations that it needs at least; 0 where memory decides.
        bytes: that it reads and writes at least.
        is_judged: whether a float32 form of it without kernels fits in memory.
    """

    operation: str
    shape: tuple[int, ...]
    flops: int = 0
    bytes: int = 0
    is_judged: bool = True

    @property
    def lengths(self) -> Array:
        """Of the sequences of padded attention: the longest whole, the others a quarter of it or more, as they come."""
        batch, length, _, _ = self.shape
        drawn = np.random.default_rng(9).integers(max(1, length // 4), length + 1, batch, np.int32)
        return np.where(np.arange(batch) == 0, np.int32(length), drawn)

    @property
    def name(self) -> str:
        """For people."""
        return f"{self.operation} {' x '.join(map(str, self.shape))}"

    def operands(self) -> list[Array]:
        """Random operands, equal in every process: float32, to be rounded to bfloat16 by who takes them so, and integers."""
        draw = np.random.Generator(np.random.Philox(7)).standard_normal
        if self.operation == "attention_padded":  # whose cotangent is 0 beyond the lengths
            *qkv, cotangent = (draw(self.shape, np.float32) for _ in range(4))
            inside = np.arange(self.shape[1]) < self.lengths[:, None]
            return [*qkv, cotangent * inside[:, :, None, None], self.lengths]
        if self.operation in ("attention", "attention_capped"):
            return [draw(self.shape, np.float32) for _ in range(4)]
        if self.operation == "cross_entropy":
            rows, classes = self.shape
            targets = np.random.default_rng(8).integers(0, classes, rows, np.int32)
            return [draw(self.shape, np.float32), targets]
        if self.operation == "adamw":
            return [draw(self.shape, np.float32) for _ in range(2)]
        width = self.shape[-1:]
        norms = 2 if self.operation == "layer_norm" else 1
        return [draw(self.shape, np.float32) for _ in range(2)] + [
            1 + draw(width, np.float32) for _ in range(norms)
        ]


def attention(length: int, tokens: int = TOKENS, heads: int = HEADS, width: int = WIDTH) -> Case:
    """Causal attention: two products forward and five backward, of which half is masked."""
    batch = max(1, tokens // length)
    size = batch * length * heads * width
    return Case(
        "attention",
        (batch, length, heads, width),
        flops=7 * batch * heads * length * length * width,
        bytes=11 * 2 * size,
        is_judged=length <= 4096,
    )


def padded_attention(length: int, tokens: int = TOKENS, heads: int = HEADS, width: int = WIDTH) -> Case:
    """Attention of sequences of different lengths, no key of them hidden: work is counted within the lengths."""
    shape = (max(1, tokens // length), length, heads, width)
    pairs = int((Case("attention_padded", shape).lengths.astype(np.int64) ** 2).sum())
    return Case(
        "attention_padded",
        shape,
        flops=14 * heads * width * pairs,
        bytes=11 * 2 * int(np.prod(shape)),
        is_judged=length <= 4096,
    )


def capped_attention(length: int, tokens: int = TOKENS, heads: int = HEADS, width: int = WIDTH) -> Case:
    """Causal attention whose scores have a cap; the tanh is not counted."""
    return replace(attention(length, tokens, heads, width), operation="attention_capped")


def cases(dry: bool) -> list[Case]:
    """What is compared; small where nothing is to be measured."""
    if dry:
        sizes = {"rows": 32, "classes": 96, "values": 512}
        found = [attention(length, 64, 2, 16) for length in (32, 64)]
        found += [capped_attention(64, 64, 2, 16), padded_attention(32, 64, 2, 16)]
        widths = (64,)
    else:
        sizes = {"rows": 16384, "classes": 50304, "values": 124 * 2**20}
        found = [attention(length) for length in (1024, 4096, 16384)]
        found += [make(length) for make in (capped_attention, padded_attention) for length in (1024, 4096)]
        found.append(capped_attention(4096, heads=8, width=256))  # as heads of Gemma 2
        widths = (768, 2048)
    for width in widths:
        shape = (2 * sizes["rows"], width)
        for operation in ("layer_norm", "rms_norm"):
            # x, y, its cotangent, x again, and the cotangent of x.
            found.append(Case(operation, shape, bytes=5 * 2 * shape[0] * width))
    rows, classes = sizes["rows"], sizes["classes"]
    found.append(Case("cross_entropy", (rows, classes), bytes=3 * 2 * rows * classes))
    found.append(Case("adamw", (sizes["values"],), bytes=7 * 4 * sizes["values"]))
    return found


def error_of(found: Mapping[int, Array], right: Mapping[int, Array]) -> float:
    """The largest error of a result, relative to its norm, over the elements that were kept of each."""
    return max(
        float(
            np.linalg.norm(found[place].astype(np.float64) - exact) / np.linalg.norm(exact.astype(np.float64))
        )
        for place, exact in right.items()
    )
