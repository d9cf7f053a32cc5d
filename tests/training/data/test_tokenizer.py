"""Tokenizers: there and back, saved and read, and what they refuse."""

import json
import sys

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.tokenizer import (
    ByteTokenizer,
    CharacterTokenizer,
    TokenizerUnreadable,
    UnknownCharacter,
    UnknownToken,
    token_dtype,
)
from pcp.training.extras import MissingExtra

ANY_CHARACTER = st.text(st.characters(min_codepoint=0, max_codepoint=0x10FFFF), min_size=1)


@given(ANY_CHARACTER)
def test_characters_there_and_back(text: str) -> None:
    tokenizer = CharacterTokenizer.of_text(text)
    tokens = tokenizer.encode(text)
    assert tokenizer.characters == "".join(sorted(set(text)))
    assert tokens.tolist() == [tokenizer.characters.index(character) for character in text]
    assert tokenizer.decode(tokens) == text
    assert tokenizer_from_json(tokenizer.to_json()).decode(tokens) == text


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_bytes_there_and_back(text: str) -> None:
    tokenizer = tokenizer_from_json(ByteTokenizer().to_json())
    tokens = tokenizer.encode(text)
    assert tokens.dtype == np.uint16
    assert tokens.tolist() == list(text.encode())
    assert tokenizer.decode(tokens) == text


def test_the_given_order_of_characters_is_kept() -> None:
    tokenizer = CharacterTokenizer("zab")
    assert tokenizer.encode("abz").tolist() == [1, 2, 0]
    assert tokenizer.encode("").tolist() == []


def test_unknown_character_is_named_with_its_position() -> None:
    tokenizer = CharacterTokenizer.of_text("to be or not to be")
    with pytest.raises(
        UnknownCharacter, match=r"Character 'é' \(U\+00E9\) at position 4 is not in the vocabulary of 7"
    ):
        tokenizer.encode("to bé or")
    with pytest.raises(UnknownCharacter, match=r"Character '\\x00' \(U\+0000\) at position 0"):
        tokenizer.encode("\0")


@pytest.mark.parametrize("token", [-1, 3])
def test_unknown_token_is_named_with_its_position(token: int) -> None:
    with pytest.raises(UnknownToken, match=f"Token {token} at position 1 is outside 0 <= token < 3"):
        CharacterTokenizer("abc").decode([0, token])


def test_a_cut_byte_sequence_decodes_to_the_replacement_character() -> None:
    assert ByteTokenizer().decode("é".encode()[:1]) == "\ufffd"


def test_bytes_that_are_no_text() -> None:
    assert ByteTokenizer().encode_bytes(b"\xff\x00").tolist() == [255, 0]


def test_token_types() -> None:
    assert token_dtype(65536) is np.uint16
    assert token_dtype(65537) is np.uint32


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{", "not a saved tokenizer of a kind known here"),
        ("[]", "not a saved tokenizer"),
        ('{"kind": "runes"}', "may be damaged or made by a newer version"),
        ('{"kind": "characters"}', "of kind 'characters' is incomplete: 'characters'"),
        ('{"kind": "characters", "characters": ""}', "at least one character"),
        ('{"kind": "characters", "characters": "aba"}', "each only once"),
    ],
)
def test_unreadable_tokenizers(text: str, message: str) -> None:
    with pytest.raises(TokenizerUnreadable, match=message):
        tokenizer_from_json(text)


def test_byte_pairs_without_the_package(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(
        MissingExtra, match=r"needs the package 'tokenizers'.*planetary-compute-protocol\[tokenizers\]"
    ):
        tokenizer_from_json(json.dumps({"kind": "byte_pairs", "definition": "{}"}))


def test_half_a_character_is_told() -> None:
    """As of a terminal, or of an argument, that is not UTF-8."""
    pytest.importorskip("tokenizers")
    for tokenizer in (BytePairTokenizer.train("some text", 258), ByteTokenizer()):
        with pytest.raises(UnknownCharacter, match=r"U\+DCFF\) at position 2"):
            tokenizer.encode("ab\udcffc")


def test_byte_pairs_there_and_back() -> None:
    pytest.importorskip("tokenizers")
    text = "to be, or not to be, that is the question: whether 'tis nobler é\n" * 20
    tokenizer = BytePairTokenizer.train(text, 300)
    tokens = tokenizer.encode(text)
    assert 256 < tokenizer.vocabulary_size <= 300
    assert tokens.dtype == np.uint16
    assert tokens.size < len(text) / 2
    assert tokenizer.decode(tokens) == text
    again = tokenizer_from_json(tokenizer.to_json())
    assert again.encode(text).tolist() == tokens.tolist()
    with pytest.raises(UnknownToken, match="Token 5000 at position 0"):
        tokenizer.decode([5000])


def test_byte_pairs_of_another_format() -> None:
    pytest.importorskip("tokenizers")
    with pytest.raises(TokenizerUnreadable, match=r"not a tokenizer\.json of the package tokenizers"):
        BytePairTokenizer('{"model": 3}')
