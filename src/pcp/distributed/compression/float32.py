"""No compression: the control."""

from dataclasses import dataclass
from typing import ClassVar

from pcp.distributed.compression.codec import Codec, Payload
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor


@dataclass(frozen=True)
class Float32(Codec):
    """Every element as it is: 4 bytes."""

    kind: ClassVar[str] = "f32"

    def payload_specs(self, n: int) -> dict[str, TensorSpec]:
        """`values`: f32 of shape (n,)."""
        return {"values": TensorSpec((n,), DType.f32)}

    def _encoded(self, x: Tensor) -> Payload:
        return {"values": x}

    def _decoded(self, payload: Payload) -> Tensor:
        return payload["values"]
