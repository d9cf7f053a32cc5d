"""The logits of GPT-2 as an ONNX model, for ONNX Runtime and OpenVINO; written without the package `onnx`.

Source of the numbers of fields: `onnx/onnx.proto` (onnx 1.16), of the operations: ONNX's operator set 20.
"""

import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.models.config import DecoderConfig
from pcp.models.names import to_transformers

FLOAT, INT64 = 1, 7
OPERATORS = 20


def _varint(number: int) -> bytes:
    out = bytearray()
    while number > 127:
        out.append(number & 127 | 128)
        number >>= 7
    return bytes([*out, number])


def _field(place: int, value: int | str | bytes) -> bytes:
    """A field of a message: an integer, or a string, or another message."""
    if isinstance(value, int):
        return _varint(place << 3) + _varint(value & (1 << 64) - 1)
    data = value.encode() if isinstance(value, str) else value
    return _varint(place << 3 | 2) + _varint(len(data)) + data


class Graph:
    """Nodes and weights, one after another; weights lie in a file beside the model."""

    def __init__(self, folder: Path) -> None:
        self._folder, self._end = folder, 0
        self._fields: list[bytes] = []
        self._count = 0
        self._data = (folder / "weights.bin").open("wb")

    def weight(self, array: np.ndarray[Any, Any]) -> str:
        """An array, in the file of weights if it is of floats."""
        name = f"w{self._next()}"
        kind = INT64 if array.dtype == np.int64 else FLOAT
        made = b"".join(_field(1, size) for size in array.shape) + _field(2, kind) + _field(8, name)
        if kind == INT64:
            made += _field(9, array.tobytes())
        else:
            self._data.write(b"\0" * (-self._end % 4096))
            self._end += -self._end % 4096
            for key, value in (("location", "weights.bin"), ("offset", self._end), ("length", array.nbytes)):
                made += _field(13, _field(1, key) + _field(2, str(value)))
            made += _field(14, 1)  # external
            self._end += self._data.write(np.ascontiguousarray(array, np.float32).tobytes())
        self._fields.append(_field(5, made))
        return name

    def node(
        self, kind: str, *inputs: str, results: int = 1, **attributes: float | str | Sequence[int]
    ) -> Any:
        """The name, or names, of what an operation makes."""
        made = [f"x{self._next()}" for _ in range(results)]
        node = b"".join(_field(1, name) for name in inputs) + b"".join(_field(2, name) for name in made)
        node += _field(3, made[0]) + _field(4, kind)
        for name, value in attributes.items():
            about = _field(1, name)
            if isinstance(value, float):
                about += _varint(2 << 3 | 5) + struct.pack("<f", value) + _field(20, 1)
            elif isinstance(value, int):
                about += _field(3, value) + _field(20, 2)
            elif isinstance(value, str):
                about += _field(4, value) + _field(20, 3)
            else:
                about += b"".join(_field(8, each) for each in value) + _field(20, 7)
            node += _field(5, about)
        self._fields.append(_field(1, node))
        return made[0] if results == 1 else made

    def save(self, given: str, shape: Sequence[int], result: str, result_shape: Sequence[int]) -> Path:
        """The model's file, with an input of integers and a result of floats."""
        self._data.close()
        graph = b"".join(self._fields) + _field(2, "gpt2")
        graph += _field(11, _described(given, INT64, shape)) + _field(
            12, _described(result, FLOAT, result_shape)
        )
        model = _field(1, 9) + _field(8, _field(1, "") + _field(2, OPERATORS)) + _field(7, graph)
        (self._folder / "model.onnx").write_bytes(model)
        return self._folder / "model.onnx"

    def _next(self) -> int:
        self._count += 1
        return self._count


def _described(name: str, kind: int, shape: Sequence[int]) -> bytes:
    sizes = b"".join(_field(1, _field(1, size)) for size in shape)
    return _field(1, name) + _field(2, _field(1, _field(1, kind) + _field(2, sizes)))


def written(config: DecoderConfig, params: Any, batch: int, folder: Path) -> Path:
    """The model of logits of `tokens`, int64 of (batch, context)."""
    weights = {
        name.removeprefix("transformer."): each for name, each in to_transformers(params, config).items()
    }
    graph, length = Graph(folder), config.context
    node, weight = graph.node, graph.weight

    def integers(*numbers: int) -> str:
        return weight(np.array(numbers, np.int64))

    def linear(x: str, name: str) -> Any:
        return node(
            "Add", node("MatMul", x, weight(weights[f"{name}.weight"])), weight(weights[f"{name}.bias"])
        )

    def norm(x: str, name: str) -> Any:
        scale, bias = (weight(weights[f"{name}.{part}"]) for part in ("weight", "bias"))
        return node("LayerNormalization", x, scale, bias, axis=-1, epsilon=1e-5)

    mask = weight(np.where(np.tri(length, dtype=bool), 0.0, -1e9).astype(np.float32)[None, None])
    scale = weight(np.float32([(config.width // config.heads) ** -0.5]))
    apart, together = integers(batch, length, config.heads, -1), integers(batch, length, config.width)
    thirds = integers(*[config.width] * 3)
    table = weight(weights["wte.weight"])
    x = node("Add", node("Gather", table, "tokens"), weight(weights["wpe.weight"][:length]))
    for i in range(config.layers):
        q, k, v = node(
            "Split", linear(norm(x, f"h.{i}.ln_1"), f"h.{i}.attn.c_attn"), thirds, results=3, axis=-1
        )
        q, v = (node("Transpose", node("Reshape", each, apart), perm=(0, 2, 1, 3)) for each in (q, v))
        k = node("Transpose", node("Reshape", k, apart), perm=(0, 2, 3, 1))
        scores = node("Add", node("Mul", node("MatMul", q, k), scale), mask)
        found = node("MatMul", node("Softmax", scores, axis=-1), v)
        found = node("Reshape", node("Transpose", found, perm=(0, 2, 1, 3)), together)
        x = node("Add", x, linear(found, f"h.{i}.attn.c_proj"))
        wide = node("Gelu", linear(norm(x, f"h.{i}.ln_2"), f"h.{i}.mlp.c_fc"), approximate="tanh")
        x = node("Add", x, linear(wide, f"h.{i}.mlp.c_proj"))
    logits = node("MatMul", norm(x, "ln_f"), node("Transpose", table, perm=(1, 0)))
    return graph.save("tokens", (batch, length), logits, (batch, length, config.vocabulary))
