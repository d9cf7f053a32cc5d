"""What a codec is: a vector of f32 as a payload of bytes of a fixed size, and back."""

import abc
from collections.abc import Mapping
from typing import ClassVar

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DType, TensorSpec
from pcp.tensor import Tensor
from pcp.training.data.safetensors_file import header_of

Payload = dict[str, Tensor]
"""The arrays of an encoded vector by name."""


class InvalidCodec(PCPError):
    """A codec with an option that it cannot have."""


class NoVector(PCPError):
    """Something else than a vector of f32 where one is to be encoded."""


class PayloadMismatch(PCPError):
    """Arrays that are no payload of a codec for a vector of the length asked for."""


class Codec(abc.ABC):
    """A way to write a vector in fewer bytes; instances are frozen dataclasses, equal if their names are.

    Encoding and decoding are functions of Tensors, so they become parts of Programs. What is decoded is the same on every
    device: each element is one number of the payload, or a product of two that f32 holds exactly. A number that is not
    finite makes every element that shares a scale with it NaN, so it is never lost from sight.
    """

    kind: ClassVar[str]
    """What the name begins with."""

    @property
    def name(self) -> str:
        """What `codec` makes the same codec of: the kind, and the options where a codec has any."""
        return self.kind

    @abc.abstractmethod
    def payload_specs(self, n: int) -> dict[str, TensorSpec]:
        """Shapes and element types of the payload of a vector of n elements."""

    @abc.abstractmethod
    def _encoded(self, x: Tensor) -> Payload: ...

    @abc.abstractmethod
    def _decoded(self, payload: Payload) -> Tensor:
        """The vector, with what it was padded by."""

    def encode(self, x: Tensor) -> Payload:
        """The payload of a vector.

        Arguments:
            x: shape (n,), f32, n at least 1.

        Raises:
            NoVector: x is something else.
        """
        if x.ndim != 1 or x.dtype is not DType.f32 or not x.size:
            raise NoVector(
                f"codec {self.name!r}: {x.spec} was given; expected a vector of f32 with at least one element; "
                "ravel the arrays, convert them to f32 and concatenate them"
            )
        return self._encoded(x)

    def decode(self, payload: Mapping[str, Tensor], n: int) -> Tensor:
        """The vector of a payload.

        Arguments:
            payload: as `encode` returns it.
            n: how many elements the vector has.

        Returns:
            Shape (n,), f32.

        Raises:
            PayloadMismatch: this codec writes no such payload for n elements.
        """
        expected = self.payload_specs(n)
        actual = {key: tensor.spec for key, tensor in payload.items()}
        if actual != expected:
            raise PayloadMismatch(
                f"codec {self.name!r}: a payload of {_shown(actual)} was given for {n} elements; "
                f"expected {_shown(expected)}; decode with the codec and the length that it was encoded with"
            )
        return self._decoded(dict(payload))[:n]

    def payload_bytes(self, n: int) -> int:
        """Bytes of the arrays of a payload for n elements."""
        return sum(spec.size * spec.dtype.itemsize for spec in self.payload_specs(n).values())

    def stored_bytes(self, n: int) -> int:
        """Bytes of the blob that a payload for n elements is stored as: a safetensors file."""
        empty = {
            name: np.broadcast_to(np.zeros((), spec.dtype.numpy), spec.shape)
            for name, spec in self.payload_specs(n).items()
        }
        return 8 + len(header_of(empty)) + self.payload_bytes(n)


def _shown(specs: Mapping[str, TensorSpec]) -> str:
    return ", ".join(f"{name} {spec}" for name, spec in sorted(specs.items())) or "nothing"
