"""Text is told as soon as it is certain: whole characters, nothing of a stop text, nothing twice."""

import numpy as np
import pytest

from pcp.inference.telling import Telling
from pcp.training.data.tokenizer import ByteTokenizer, CharacterTokenizer, NumberTokenizer, Tokenizer

BYTES = ByteTokenizer()


def told(tokens: bytes, stop: list[str], prompt: bytes = b"") -> list[str]:
    telling, pieces = Telling(BYTES, list(prompt), stop), list[str]()
    for token in tokens:
        pieces.append(telling.add(token))
        if telling.stopped:
            return pieces
    return [*pieces, telling.rest()]


def test_a_character_is_told_when_its_last_byte_is_there() -> None:
    assert told("aé♥".encode(), []) == ["a", "", "é", "", "", "♥", ""]


def test_bytes_that_are_no_character_are_told_once() -> None:
    assert "".join(told(b"\xff\xfe\xfd\xfca\xc3", [])) == b"\xff\xfe\xfd\xfca\xc3".decode(errors="replace")
    assert "".join(told(b"\x80" * 9 + b"z", [])) == "�" * 9 + "z"


def test_a_prompt_that_ends_inside_a_character_is_not_told_again() -> None:
    heart = "♥".encode()
    assert told(heart[1:] + b"b", [], prompt=b"abc" + heart[:1]) == ["", "♥", "b", ""]
    assert "".join(told(b"xy", [], prompt="abc�".encode())) == "xy"


def test_random_text_is_told_whole_and_cut_at_the_first_stop_text() -> None:
    generator = np.random.default_rng(0)
    letters = list("ab♥é🙂")
    for _ in range(300):
        text = "".join(generator.choice(letters, generator.integers(0, 30)))
        prompt = "".join(generator.choice(letters, generator.integers(0, 6)))
        stop = [
            "".join(generator.choice(letters, generator.integers(1, 4)))
            for _ in range(generator.integers(0, 3))
        ]
        found = [place for each in stop if (place := text.find(each)) >= 0]
        pieces = told(text.encode(), stop, prompt.encode())
        assert "".join(pieces) == text[: min(found, default=len(text))]
        if not stop:  # nothing is held back
            assert all(pieces[len(text[: n + 1].encode()) - 1] == text[n] for n in range(len(text)))


class Spaced:
    """Words with a space between them, which the first has none before."""

    vocabulary_size = 3

    def decode(self, tokens: list[int]) -> str:
        return " ".join("abc"[token] for token in tokens)


@pytest.mark.parametrize(("prompt", "expected"), [([], "a b c"), ([1], " a b c"), ([1] * 9, " a b c")])
def test_a_tokenizer_that_joins_words(prompt: list[int], expected: str) -> None:
    tokenizer: Tokenizer = Spaced()  # type: ignore[assignment]  # it only decodes
    telling = Telling(tokenizer, prompt, [])
    assert "".join([*map(telling.add, [0, 1, 2]), telling.rest()]) == expected


def test_numbers() -> None:
    telling = Telling(NumberTokenizer(99), [5, 6], [])
    assert [telling.add(7), telling.add(88), telling.rest()] == ["7 ", "88 ", ""]


def test_a_token_that_the_tokenizer_lacks_says_nothing() -> None:
    letters = CharacterTokenizer("abc")
    telling = Telling(letters, [0, 7, 1], ["zz"])
    assert [telling.add(token) for token in (2, 3, 900, 0)] == ["c", "", "", "a"]
    assert telling.rest() == ""
