"""Text to token numbers and back: by character, by byte, or by byte-pair encoding."""

import json
from collections.abc import Iterable, Sequence
from typing import Protocol

import numpy as np
import numpy.typing as npt

from pcp.errors import PCPError

Tokens = npt.NDArray[np.unsignedinteger]
"""A vector of token numbers in the type that `token_dtype` chooses."""


class UnknownCharacter(PCPError):
    """A text holds a character that the vocabulary lacks."""


class UnknownToken(PCPError):
    """A token number lies outside the vocabulary."""


class TokenizerUnreadable(PCPError):
    """A saved tokenizer cannot be read."""


class Tokenizer(Protocol):
    """What every tokenizer does."""

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens; every encoded token is smaller."""

    def encode(self, text: str) -> Tokens:
        """Turn a text into tokens, a vector."""

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens into text; encoding and decoding a text gives it back."""

    def to_json(self) -> str:
        """Write the tokenizer as JSON; `tokenizer_from_json` reads it."""


def token_dtype(vocabulary_size: int) -> type[np.uint16] | type[np.uint32]:
    """The smallest stored type for a vocabulary: uint16 up to 65,536 tokens, uint32 above."""
    return np.uint16 if vocabulary_size <= 1 << 16 else np.uint32


def half_a_character(text: str, position: int) -> UnknownCharacter:
    """That a text has a surrogate at a position, as Python makes of bytes that are not UTF-8."""
    return UnknownCharacter(
        f"Character {text[position]!r} (U+{ord(text[position]):04X}) at position {position} is half a character, as of bytes "
        "that are not UTF-8. Write the text in UTF-8."
    )


class CharacterTokenizer:
    """One token for each character; the vocabulary is the sorted set of a corpus's characters.

    Arguments:
        characters: the vocabulary in order, each character once; the place of a character is its token.
    """

    def __init__(self, characters: str) -> None:
        if not characters or len(set(characters)) != len(characters):
            raise TokenizerUnreadable(
                "A character vocabulary must hold at least one character, and each only once."
            )
        self.characters = characters
        self._points = np.array([ord(character) for character in characters], np.uint32)
        self._order = np.argsort(self._points)

    @classmethod
    def of_text(cls, text: str) -> "CharacterTokenizer":
        """Take the vocabulary from a text: its characters, each once, sorted by code point."""
        return cls("".join(sorted(set(text))))

    @property
    def vocabulary_size(self) -> int:
        """The number of characters."""
        return len(self.characters)

    def encode(self, text: str) -> Tokens:
        """Turn a text into tokens; raises UnknownCharacter at the first character not in the vocabulary."""
        points = np.frombuffer(text.encode("utf-32-le", "surrogatepass"), np.dtype("<u4"))
        places = np.searchsorted(self._points, points, sorter=self._order).clip(max=self.vocabulary_size - 1)
        tokens = self._order[places]
        unknown = np.flatnonzero(self._points[tokens] != points)
        if unknown.size:
            position = int(unknown[0])
            character = text[position]
            raise UnknownCharacter(
                f"Character {character!r} (U+{ord(character):04X}) at position {position} is not in the vocabulary of "
                f"{self.vocabulary_size} characters that the model was trained on. Use only characters of its corpus."
            )
        dtype = token_dtype(self.vocabulary_size)
        return np.asarray(tokens, dtype)

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens into text; raises UnknownToken for a number outside the vocabulary."""
        return "".join([self.characters[token] for token in _in_range(tokens, self.vocabulary_size)])

    def to_json(self) -> str:
        """Write the vocabulary as JSON."""
        return json.dumps({"kind": "characters", "characters": self.characters})


class ByteTokenizer:
    """One token for each byte of the text's UTF-8 form; needs no vocabulary and knows every text."""

    vocabulary_size = 256

    def encode(self, text: str) -> Tokens:
        """Turn a text into tokens, one for each byte of its UTF-8 form."""
        try:
            return self.encode_bytes(text.encode("utf-8"))
        except UnicodeEncodeError as error:
            raise half_a_character(text, error.start) from None

    def encode_bytes(self, data: bytes) -> Tokens:
        """Turn bytes, text or not, into tokens."""
        return np.frombuffer(data, np.uint8).astype(np.uint16)

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens into text; bytes that form no character, as in a cut sequence, become U+FFFD."""
        return bytes(_in_range(tokens, self.vocabulary_size)).decode("utf-8", errors="replace")

    def to_json(self) -> str:
        """Write the kind as JSON."""
        return json.dumps({"kind": "bytes"})


class NumberTokenizer:
    """Tokens that are known as numbers only: their text is these numbers with a space after each.

    Arguments:
        vocabulary_size: every token is smaller.
    """

    def __init__(self, vocabulary_size: int) -> None:
        self.vocabulary_size = vocabulary_size

    def encode(self, text: str) -> Tokens:
        """Turn numbers with spaces between them into tokens; raises UnknownCharacter for other text, UnknownToken."""
        try:
            numbers = [int(word) for word in text.split()]
        except ValueError:
            raise UnknownCharacter(
                f"{text[:40]!r} is no text of this model: it was trained on token numbers, and no tokenizer was given. Write "
                "numbers with spaces between them, or train with --tokenizer tokenizer.json"
            ) from None
        return np.asarray(_in_range(numbers, self.vocabulary_size), token_dtype(self.vocabulary_size))

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens into their numbers; raises UnknownToken for a number outside the vocabulary."""
        return "".join(f"{token} " for token in _in_range(tokens, self.vocabulary_size))

    def to_json(self) -> str:
        """Write how many there are as JSON."""
        return json.dumps({"kind": "numbers", "count": self.vocabulary_size})


def _in_range(tokens: Iterable[int], vocabulary_size: int) -> Sequence[int]:
    numbers = [int(token) for token in tokens]
    for position, token in enumerate(numbers):
        if not 0 <= token < vocabulary_size:
            raise UnknownToken(
                f"Token {token} at position {position} is outside 0 <= token < {vocabulary_size}."
            )
    return numbers
