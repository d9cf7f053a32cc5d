"""The upper half of every element."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.compression.brain_float import from_bf16, to_bf16
from pcp.distributed.compression.codec import Codec, Payload
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor


@dataclass(frozen=True)
class BFloat16(Codec):
    """Every element rounded to 8 significant bits, ties to even: 2 bytes, a relative error of at most 2^-8.

    Infinities and NaN stay what they are; the largest finite numbers become the largest finite bf16.
    """

    kind: ClassVar[str] = "bf16"

    def payload_specs(self, n: int) -> dict[str, TensorSpec]:
        """`values`: bf16 of shape (n,)."""
        return {"values": TensorSpec((n,), DType.bf16)}

    def _encoded(self, x: Tensor) -> Payload:
        return {"values": to_bf16(x)}

    def _decoded(self, payload: Payload) -> Tensor:
        return from_bf16(payload["values"])
