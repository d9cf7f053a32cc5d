"""A tokenizer of any kind from the text that it was saved as."""

import json
from collections.abc import Callable
from typing import Any

from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import (
    ByteTokenizer,
    CharacterTokenizer,
    NumberTokenizer,
    Tokenizer,
    TokenizerUnreadable,
)


def tokenizer_from_json(text: str) -> Tokenizer:
    """Read a tokenizer that `to_json` wrote.

    Raises:
        TokenizerUnreadable: the text is not a tokenizer's, or is of a kind this version does not know.
        MissingExtra: it is a byte-pair encoding and the package `tokenizers` is not installed.
    """
    try:
        content = json.loads(text)
        read = _KINDS[content["kind"]]
    except (json.JSONDecodeError, KeyError, TypeError, RecursionError) as error:
        raise TokenizerUnreadable(
            f"This is not a saved tokenizer of a kind known here ({', '.join(sorted(_KINDS))}): {text[:60]!r}. "
            f"It may be damaged or made by a newer version."
        ) from error
    try:
        return read(content)
    except (KeyError, TypeError) as error:
        raise TokenizerUnreadable(
            f"The saved tokenizer of kind {content['kind']!r} is incomplete: {error}"
        ) from error


_KINDS: dict[str, Callable[[dict[str, Any]], Tokenizer]] = {
    "characters": lambda content: CharacterTokenizer(content["characters"]),
    "bytes": lambda content: ByteTokenizer(),  # noqa: ARG005
    "numbers": lambda content: NumberTokenizer(int(content["count"])),
    "byte_pairs": lambda content: BytePairTokenizer(content["definition"]),
}
