"""Regions are kept packed, and what comes from elsewhere is looked at before it is believed."""

import base64
import random
import zlib

import pytest

import pcp
from pcp.ir import Program
from pcp.planning.profile import rows as module
from pcp.planning.profile.rows import NotARegion, Region


def product(size: int) -> Program:
    return pcp.trace(lambda x, w: x @ w, pcp.spec((size, 8), "f32"), pcp.spec((8, 3), "bf16"))


def test_a_region_comes_back_as_the_program_that_it_was() -> None:
    size = random.Random().randint(2, 100)
    region = Region.of(product(size))
    assert region is not None
    assert len(region.packed) < 400
    assert Region.from_text(region.digest, region.to_text()) == region
    assert region.program().digest == product(size).digest
    assert [str(entry.spec) for entry in region.program().arguments] == [f"f32[{size},8]", "bf16[8,3]"]


def test_a_region_that_is_too_large_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "LONGEST_PACKED", 100)
    assert Region.of(product(4)) is None


def text(packed: bytes) -> str:
    return base64.b64encode(packed).decode()


@pytest.mark.parametrize(
    ("letters", "words"),
    [
        ("%", "not in base64"),
        (text(b"no zlib"), "the region is no program"),
        (text(zlib.compress(b"module { nonsense }")), "the region is no program"),
        (text(zlib.compress(b"\xff" * 9)), "the region is no program"),
        (text(zlib.compress(product(5).text.encode())), r"the region has digest \w{12}; expected \w{12}"),
        (text(zlib.compress(product(4).text.encode())[:-30]), "or cut off"),
        (text(zlib.compress(b" " * (2 << 20))), "longer than 1048576 characters"),
        ("A" * (2 << 17), "takes 262144 letters; expected at most 131072"),
    ],
)
def test_what_is_no_region_is_refused(letters: str, words: str) -> None:
    with pytest.raises(NotARegion, match=words):
        Region.from_text(product(4).digest, letters)
