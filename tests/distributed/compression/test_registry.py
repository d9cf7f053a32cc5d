"""Codecs by their names, and names that are none."""

import pytest

from pcp.distributed.compression import (
    CODECS,
    BFloat16,
    Codec,
    Float32,
    Int4,
    Int8,
    InvalidCodec,
    TopK,
    UnknownCodec,
    codec,
)


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("f32", Float32()),
        ("bf16", BFloat16()),
        ("int8", Int8(128)),
        ("int8:64", Int8(64)),
        ("int4", Int4(128)),
        ("int4:256", Int4(256)),
        ("top-k", TopK(64)),
        ("top-k:32", TopK(32)),
    ],
)
def test_a_name_gives_its_codec_and_the_codec_its_name(name: str, expected: Codec) -> None:
    assert codec(name) == expected
    assert expected.name == name


def test_the_usual_option_has_no_place_in_a_name() -> None:
    assert [codec(name).name for name in ("int8:128", "int4:128", "top-k:64")] == ["int8", "int4", "top-k"]
    assert [codec(name).name for name in CODECS] == list(CODECS)


@pytest.mark.parametrize("name", ["int5", "", "top_k", "INT8", ":64"])
def test_another_name_is_refused(name: str) -> None:
    with pytest.raises(
        UnknownCodec,
        match=f"codec '{name}' was given; expected one of f32, bf16, int8, int4, top-k; an option",
    ):
        codec(name)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("f32:2", "codec 'f32:2' was given; 'f32' takes no option; write 'f32' alone"),
        ("int4:", "codec 'int4:': option '' was given; expected a whole number, as in 'int4:64'"),
        ("int4:six", "codec 'int4:six': option 'six' was given; expected a whole number"),
        ("int4:-2", "option '-2' was given; expected a whole number"),
        ("int4:64:2", "option '64:2' was given; expected a whole number"),
        ("int4:63", "codec 'int4': blocks of 63 elements were given; expected an even number, at least 2; write 'int4'"),
        ("int8:0", "codec 'int8': blocks of 0 elements were given"),
        ("top-k:6", "codec 'top-k': k = 6 was given; expected a multiple of 4 from 4 to 4096; write 'top-k' for 64"),
        ("top-k:0", "k = 0 was given"),
        ("top-k:4100", "k = 4100 was given"),
    ],
)  # fmt: skip
def test_an_option_that_cannot_be_is_refused(name: str, message: str) -> None:
    with pytest.raises(InvalidCodec, match=message):
        codec(name)


def test_true_is_no_block_and_no_k() -> None:
    for kind in (Int8, Int4, TopK):
        with pytest.raises(InvalidCodec, match="True"):
            kind(True)
