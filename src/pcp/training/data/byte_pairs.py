"""Byte-pair encoding through the optional package `tokenizers`.

Source: Sennrich, Haddow, Birch, "Neural Machine Translation of Rare Words with Subword Units", 2016, section
3.2; on bytes as in Radford et al., "Language Models are Unsupervised Multitask Learners", 2019, section 2.2.
"""

import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from pcp.training.data.tokenizer import (
    TokenizerUnreadable,
    Tokens,
    UnknownToken,
    half_a_character,
    token_dtype,
)
from pcp.training.extras import import_extra

_ENDS = ("<|endoftext|>", "<|end_of_text|>", "</s>", "<eos>", "<|eot_id|>")


class BytePairTokenizer:
    """A byte-level byte-pair encoding.

    Arguments:
        definition: the tokenizer as JSON in the format of the package `tokenizers` (a `tokenizer.json`).

    Raises:
        MissingExtra: the package is not installed.
        TokenizerUnreadable: the definition is not such a tokenizer.
    """

    def __init__(self, definition: str) -> None:
        try:
            self._tokenizer = _package().Tokenizer.from_str(definition)
        except ValueError as error:
            raise TokenizerUnreadable(
                f"This is not a tokenizer.json of the package tokenizers: {error}"
            ) from error
        except Exception as error:
            # The package raises bare Exception for a definition that it cannot parse.
            if type(error) is not Exception:
                raise
            raise TokenizerUnreadable(
                f"This is not a tokenizer.json of the package tokenizers: {error}"
            ) from error

    @classmethod
    def train(cls, text: str | Iterable[str], vocabulary_size: int) -> "BytePairTokenizer":
        """Learn merges from a text.

        Arguments:
            text: whole, or in pieces.
            vocabulary_size: tokens wanted, at least 256; a small corpus may give fewer.
        """
        package = _package()
        tokenizer = package.Tokenizer(package.models.BPE())
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        alphabet = package.pre_tokenizers.ByteLevel.alphabet()
        trainer = package.trainers.BpeTrainer(
            vocab_size=vocabulary_size, initial_alphabet=alphabet, special_tokens=[], show_progress=False
        )
        tokenizer.train_from_iterator([text] if isinstance(text, str) else text, trainer)
        return cls(tokenizer.to_str())

    @classmethod
    def of_files(cls, vocabulary: Path, merges: Path) -> "BytePairTokenizer":
        """Read GPT-2's vocab.json and merges.txt.

        Raises:
            TokenizerUnreadable: the files do not describe an encoding.
        """
        package = _package()
        try:
            model = package.models.BPE.from_file(str(vocabulary), str(merges))
        except Exception as error:
            # The package raises bare Exception for files that it cannot parse.
            if type(error) is not Exception:
                raise
            raise TokenizerUnreadable(
                f"{vocabulary} and {merges} do not describe a byte-pair encoding: {error}"
            ) from error
        tokenizer = package.Tokenizer(model)
        tokenizer.pre_tokenizer = package.pre_tokenizers.ByteLevel(add_prefix_space=False)
        tokenizer.decoder = package.decoders.ByteLevel()
        return cls(tokenizer.to_str())

    @property
    def vocabulary_size(self) -> int:
        """The number of tokens."""
        return int(self._tokenizer.get_vocab_size())

    @property
    def end_of_text(self) -> int | None:
        """The token that ends a document, where the encoding has one of the names that are usual."""
        ids = (self._tokenizer.token_to_id(name) for name in _ENDS)
        return next((int(each) for each in ids if each is not None), None)

    def encode(self, text: str) -> Tokens:
        """Turn a text into tokens; raises UnknownCharacter for half a one."""
        ids = self._encoded(text, False)
        return np.asarray(ids, token_dtype(self.vocabulary_size))

    def encode_prompt(self, text: str) -> list[int]:
        """Turn a text into tokens, behind those that models find before a text; not twice, where the text has them."""
        bare, whole = self._encoded(text, False), self._encoded(text, True)
        sizes = range(len(whole) - len(bare) + 1)
        before = whole[: next((size for size in sizes if whole[size : size + len(bare)] == bare), 0)]
        return [int(each) for each in (bare if before and before == bare[: len(before)] else before + bare)]

    def _encoded(self, text: str, behind: bool) -> list[int]:
        try:
            ids: list[int] = self._tokenizer.encode(text, add_special_tokens=behind).ids
        except TypeError:  # all that the package says of a text that is none in UTF-8
            position = next((at for at, each in enumerate(text) if "\ud800" <= each <= "\udfff"), None)
            if position is None:
                raise
            raise half_a_character(text, position) from None
        return ids

    def encode_all(self, texts: Sequence[str]) -> list[Tokens]:
        """Turn texts into tokens, on all processors."""
        encodings = self._tokenizer.encode_batch_fast(texts, add_special_tokens=False)
        return [np.asarray(each.ids, token_dtype(self.vocabulary_size)) for each in encodings]

    def encode_with_places(self, text: str) -> tuple[Tokens, npt.NDArray[np.int64]]:
        """Turn a text into tokens, and say which is the last character of each."""
        encoding = self._tokenizer.encode(text, add_special_tokens=False)
        places = np.array([max(end - 1, start) for start, end in encoding.offsets], np.int64)
        return np.asarray(encoding.ids, token_dtype(self.vocabulary_size)), places

    def decode(self, tokens: Iterable[int]) -> str:
        """Turn tokens into text; raises UnknownToken for a number outside the vocabulary."""
        numbers = [int(token) for token in tokens]
        for position, token in enumerate(numbers):
            if not 0 <= token < self.vocabulary_size:
                raise UnknownToken(
                    f"Token {token} at position {position} is outside 0 <= token < {self.vocabulary_size}."
                )
        return str(self._tokenizer.decode(numbers, skip_special_tokens=False))

    def definition(self) -> str:
        """The tokenizer as JSON in the format of the package `tokenizers`."""
        return str(self._tokenizer.to_str())

    def to_json(self) -> str:
        """Write the kind and the whole definition as JSON."""
        return json.dumps({"kind": "byte_pairs", "definition": self.definition()})


def _package() -> Any:
    return import_extra("tokenizers", "tokenizers", "Byte-pair encoding")
