"""Codecs by name."""

from pcp.distributed.compression.bfloat16 import BFloat16
from pcp.distributed.compression.codec import Codec, InvalidCodec
from pcp.distributed.compression.float32 import Float32
from pcp.distributed.compression.int4 import Int4
from pcp.distributed.compression.int8 import Int8
from pcp.distributed.compression.top_k import TopK
from pcp.errors import PCPError

_WITHOUT_OPTION: dict[str, type[Float32 | BFloat16]] = {kind.kind: kind for kind in (Float32, BFloat16)}
_WITH_OPTION: dict[str, type[Int8 | Int4 | TopK]] = {kind.kind: kind for kind in (Int8, Int4, TopK)}

CODECS = (*_WITHOUT_OPTION, *_WITH_OPTION)
"""The names without options."""


class UnknownCodec(PCPError):
    """A name that is no codec's."""


def codec(name: str) -> Codec:
    """The codec of a name.

    Arguments:
        name: `f32`, `bf16`, `int8`, `int4` or `top-k`; after a colon, the block of int8 and int4 or the k of top-k: `int4:64`.

    Raises:
        UnknownCodec: there is no such codec.
        InvalidCodec: the codec cannot have this option.
    """
    kind, colon, option = name.partition(":")
    if kind in _WITHOUT_OPTION:
        if colon:
            raise InvalidCodec(
                f"codec {name!r} was given; {kind!r} takes no option; write {kind!r} alone, or choose int8, int4 or "
                "top-k, which take one"
            )
        return _WITHOUT_OPTION[kind]()
    if kind not in _WITH_OPTION:
        raise UnknownCodec(
            f"codec {name!r} was given; expected one of {', '.join(CODECS)}; an option follows after a colon, as in 'int4:64'"
        )
    if not colon:
        return _WITH_OPTION[kind]()
    if not (option.isascii() and option.isdigit()):
        raise InvalidCodec(
            f"codec {name!r}: option {option!r} was given; expected a whole number, as in 'int4:64' or 'top-k:32'; "
            f"write {kind!r} for the usual one"
        )
    return _WITH_OPTION[kind](int(option))
