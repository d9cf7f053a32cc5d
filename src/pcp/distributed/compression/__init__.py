"""Vectors in fewer bytes: what travels between Workers and the Shepherd.

Which codec when, and what each costs, is written in docs/concepts/compression.md.
"""

from pcp.distributed.compression.bfloat16 import BFloat16
from pcp.distributed.compression.codec import Codec, InvalidCodec, NoVector, Payload, PayloadMismatch
from pcp.distributed.compression.float32 import Float32
from pcp.distributed.compression.int4 import Int4
from pcp.distributed.compression.int8 import Int8
from pcp.distributed.compression.registry import CODECS, UnknownCodec, codec
from pcp.distributed.compression.top_k import TopK

__all__ = [
    "CODECS",
    "BFloat16",
    "Codec",
    "Float32",
    "Int4",
    "Int8",
    "InvalidCodec",
    "NoVector",
    "Payload",
    "PayloadMismatch",
    "TopK",
    "UnknownCodec",
    "codec",
]
