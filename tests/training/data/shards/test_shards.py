"""Shards: what is written is read back, each window comes once an epoch, and what is wrong is refused."""

import json
from pathlib import Path

import numpy as np
import pytest

from pcp.cli.main import main
from pcp.temporary import TemporaryFolderUnusable
from pcp.training.data.batches import InvalidBatches, TinyCorpus
from pcp.training.data.encoding import CannotCut
from pcp.training.data.kinds.kind import CorpusNotText
from pcp.training.data.kinds.source import EmptyCorpus, MissingCorpus
from pcp.training.data.saved_tokenizer import tokenizer_from_json
from pcp.training.data.shards.batches import ShardedBatches
from pcp.training.data.shards.cache import CacheTooSmall, ShardCache, ShardCorrupt
from pcp.training.data.shards.index import INDEX_NAME, ShardIndex, ShardIndexCorrupt
from pcp.training.data.shards.place import MissingDriver, Place, PlaceUnreachable
from pcp.training.data.shards.sharded_tokens import fetch_index
from pcp.training.data.shards.write import write_shards
from pcp.training.data.tokenizer import TokenizerUnreadable


@pytest.fixture
def text(tmp_path: Path) -> Path:
    letters = np.random.default_rng().integers(0x61, 0x400, 1000)
    path = tmp_path / "text.txt"
    path.write_text("".join(map(chr, letters)), encoding="utf-8")
    return path


def opened(text: Path, limit: int = 1 << 20) -> ShardCache:
    place = Place(str(text.parent / "place"))
    index = write_shards(str(text), place, tokenizer="characters", shard_tokens=64)
    return ShardCache(index, [place], text.parent / "cache", limit)


def whole(cache: ShardCache) -> np.ndarray:
    return np.concatenate([cache.tokens(shard) for shard in cache.index.training])


def rows(batches: ShardedBatches, index: int) -> list[tuple[int, int]]:
    return [(shard, int(window)) for shard, windows in batches.places(index) for window in windows]


def test_the_shards_are_the_text(text: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("pcp.training.data.kinds.plain_text.HEAD_BYTES", 7)  # cuts characters
    cache = opened(text)
    tokens = np.concatenate([whole(cache), cache.tokens(cache.index.validation)])
    assert tokenizer_from_json(cache.index.tokenizer).decode(tokens) == text.read_text(encoding="utf-8")
    assert fetch_index(str(text.parent / "place")) == cache.index
    assert {shard.tokens for shard in cache.index.training[:-1]} == {64}


def test_each_window_comes_once_an_epoch_and_batches_are_those_of_the_whole(text: Path) -> None:
    cache = opened(text)
    batches = ShardedBatches(cache, 5, 4, seed=3)
    windows = [(s, w) for s, shard in enumerate(cache.index.training) for w in range((shard.tokens - 1) // 4)]
    places = [place for i in range(2 * len(windows)) for place in rows(batches, i)]
    for start in range(0, len(places), len(windows)):
        assert sorted(places[start : start + len(windows)]) == windows
    assert places[: len(windows)] != places[len(windows) : 2 * len(windows)]
    assert rows(ShardedBatches(cache, 5, 4, seed=3), 17) == rows(batches, 17)
    assert rows(ShardedBatches(cache, 5, 4, seed=4), 17) != rows(batches, 17)
    tokens = whole(cache)
    for index in (0, 40, 2**40):
        starts = np.array([s * 64 + w * 4 for s, w in rows(batches, index)])
        inputs, targets = batches.batch(index)
        np.testing.assert_array_equal(inputs, tokens[starts[:, None] + np.arange(4)])
        np.testing.assert_array_equal(targets, tokens[starts[:, None] + np.arange(1, 5)])


def test_a_range_of_batches_touches_few_shards(text: Path) -> None:
    batches = ShardedBatches(opened(text), 3, 4, seed=0)
    assert len({shard for i in range(5) for shard, _ in batches.places(i)}) <= 3


def test_the_cache_stays_within_its_bytes(text: Path) -> None:
    cache = opened(text, limit=300)
    first = cache.tokens(cache.index.training[0])
    kept = first.copy()
    for shard in cache.index.training:
        cache.tokens(shard)
        assert sum(path.stat().st_size for path in (text.parent / "cache").iterdir()) <= 300
    np.testing.assert_array_equal(first, kept)
    with pytest.raises(CacheTooSmall, match=r"has 128 bytes; shards may take 100 here\. Offer more"):
        opened(text, limit=100).tokens(cache.index.training[0])


@pytest.mark.parametrize(
    "change", [lambda b: b[:-1], lambda b: b + b"x", lambda b: bytes([b[0] ^ 1]) + b[1:]]
)
def test_a_place_that_lies_is_refused_and_leaves_nothing(text: Path, change: object) -> None:
    cache = opened(text)
    shard = cache.index.training[0]
    path = text.parent / "place" / shard.name
    path.write_bytes(change(path.read_bytes()))  # type: ignore[operator]  # a lambda of the line above
    with pytest.raises(ShardCorrupt, match="its index says 128 with"):
        cache.tokens(shard)
    assert not list((text.parent / "cache").iterdir())
    path.unlink()
    with pytest.raises(PlaceUnreachable, match="cannot read"):
        cache.tokens(shard)


def test_wrong_indices_are_refused(text: Path) -> None:
    index = opened(text).index
    changed = index.to_json().replace('"tokens": 64', '"tokens": 63', 1).encode()
    with pytest.raises(ShardIndexCorrupt, match="but says"):
        ShardIndex.from_json(changed, "it")
    with pytest.raises(ShardIndexCorrupt, match="not an index"):
        ShardIndex.from_json(b"[]", "it")
    with pytest.raises(ShardIndexCorrupt, match="has format 'old'"):
        ShardIndex.from_json(b'{"format": "old"}', "it")


@pytest.mark.parametrize(
    ("name", "value"), [("digest", "../" * 8 + "tmp/other"), ("digest", 7), ("tokens", -64), ("tokens", "64")]
)
def test_an_index_names_no_file_but_by_its_digest(text: Path, name: str, value: object) -> None:
    content = json.loads(opened(text).index.to_json())
    content["training"][0][name] = value
    with pytest.raises(
        ShardIndexCorrupt, match=r"it is not an index of token shards: .* is no (SHA-256|number)"
    ):
        ShardIndex.from_json(json.dumps(content).encode(), "it")
    with pytest.raises(ShardIndexCorrupt, match="it is not an index of token shards"):
        ShardIndex.from_json(b"[" * 100_000, "it")


def test_wrong_texts_batches_and_urls_are_refused(text: Path, tmp_path: Path) -> None:
    place, wrong = Place(str(tmp_path / "p")), tmp_path / "wrong"
    with pytest.raises(MissingCorpus, match="There is no corpus at"):
        write_shards(str(wrong), place, tokenizer="bytes", shard_tokens=8)
    wrong.write_bytes(b"")
    with pytest.raises(EmptyCorpus, match="wrong is empty"):
        write_shards(str(wrong), place, tokenizer="bytes", shard_tokens=8)
    wrong.write_bytes(b"ab\xff")
    with pytest.raises(CorpusNotText, match="not UTF-8"):
        write_shards(str(wrong), place, tokenizer="characters", shard_tokens=8)
    with pytest.raises(TinyCorpus, match="a batch needs 5000"):
        ShardedBatches(opened(text), 5000, 4, 0)
    with pytest.raises(InvalidBatches, match="Batch -1"):
        ShardedBatches(opened(text), 5, 4, 0).batch(-1)
    pytest.importorskip("fsspec")
    with pytest.raises(MissingDriver, match="nonesuch://x"):
        Place("nonesuch://x")


@pytest.fixture
def words(tmp_path: Path) -> Path:
    """Random words in lines."""
    rng = np.random.default_rng()
    vocabulary = ["".join(map(chr, rng.integers(0x61, 0x7B, rng.integers(1, 9)))) for _ in range(300)] + [
        "Größe",
        "\n",
        "1;",
    ]
    path = tmp_path / "words.txt"
    path.write_text(" ".join(rng.choice(vocabulary, 8000)), encoding="utf-8")
    return path


@pytest.fixture
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    for name, size in (("_PIECE", 1000), ("_WINDOW", 200), ("_CHECKED", 60)):
        monkeypatch.setattr(f"pcp.training.data.encoding.{name}", size)


@pytest.mark.usefixtures("small_pieces")
def test_byte_pairs_in_pieces_are_those_of_the_whole_text(words: Path, tmp_path: Path) -> None:
    pytest.importorskip("tokenizers")
    learnt, place = (
        write_shards(
            str(words), Place(str(tmp_path / "a")), tokenizer="bpe", shard_tokens=500, vocabulary=400
        ),
        "b",
    )
    tokenizer = tokenizer_from_json(learnt.tokenizer)
    assert (learnt.vocabulary_size, tokenizer.vocabulary_size) == (400, 400)
    file = tmp_path / "tokenizer.json"
    file.write_text(json.loads(learnt.tokenizer)["definition"], encoding="utf-8")
    given = write_shards(str(words), Place(str(tmp_path / place)), tokenizer=str(file), shard_tokens=500)
    assert given == learnt
    cache = ShardCache(given, [Place(str(tmp_path / place))], tmp_path / "cache", 1 << 20)
    tokens = np.concatenate([whole(cache), cache.tokens(given.validation)])
    np.testing.assert_array_equal(tokens, tokenizer.encode(words.read_text(encoding="utf-8")))
    assert len(given.training) == -(-(tokens.size - 500) // 500)


@pytest.mark.usefixtures("small_pieces")
def test_texts_and_tokenizers_that_cannot_be_cut_are_refused(words: Path, tmp_path: Path) -> None:
    tokenizers = pytest.importorskip("tokenizers")
    place, file = Place(str(tmp_path / "a")), tmp_path / "tokenizer.json"
    vocabulary = {"a": 0, "b": 1, " ": 2, "a ": 3, "b ": 4}
    across = tokenizers.Tokenizer(
        tokenizers.models.BPE(vocabulary, [("a", " "), ("b", " ")])
    )  # pairs reach over spaces
    words.write_text("b a " * 3000, encoding="utf-8")
    across.save(str(file))
    with pytest.raises(CannotCut, match=r"gives other tokens for .* than for both together"):
        write_shards(str(words), place, tokenizer=str(file), shard_tokens=500)
    joined = tmp_path / "joined.txt"
    joined.write_text("a" * 5000, encoding="utf-8")
    with pytest.raises(
        CannotCut, match=r"200 characters hold no space between words: 'aaa.*use --tokenizer bytes"
    ):
        write_shards(str(joined), place, tokenizer="bpe", shard_tokens=500)
    with pytest.raises(
        TokenizerUnreadable,
        match=r"cannot read the tokenizer .*Give characters, bytes, bpe, a tokenizer\.json",
    ):
        write_shards(str(words), place, tokenizer=str(tmp_path / "none.json"), shard_tokens=500)
    assert not list((tmp_path / "a").glob("*"))  # nothing is half written


def test_a_full_disk_is_said(words: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("tokenizers")
    monkeypatch.setattr("tempfile.TemporaryFile", lambda: Path("/dev/full").open("r+b"))  # noqa: SIM115  (the caller closes it)
    with pytest.raises(TemporaryFolderUnusable, match="No space left on device; free some space there"):
        write_shards(str(words), Place(str(tmp_path / "a")), tokenizer="bpe", shard_tokens=500)
    assert not list((tmp_path / "a").glob("*"))


def test_too_small_a_vocabulary_is_refused(words: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = str(words.parent / "out")
    assert main(["data", "shard", str(words), "--out", out, "--tokenizer", "bpe", "--vocabulary", "255"]) == 2
    assert "--vocabulary is 255; expected at least 256, one for each byte" in capsys.readouterr().err


def test_a_url_is_written_and_read(text: Path) -> None:
    pytest.importorskip("fsspec")
    place = Place("memory://corpus")
    index = write_shards(str(text), place, tokenizer="characters", shard_tokens=64)
    assert fetch_index("memory://corpus") == index
    assert (
        ShardCache(index, [place], text.parent / "c", 1 << 20).tokens(index.validation).size
        == index.validation.tokens
    )


def test_the_command_writes_shards(text: Path) -> None:
    place = str(text.parent / "out")
    assert main(["data", "shard", str(text), "--out", place, "--shard-tokens", "1"]) == 2
    assert main(["data", "shard", str(text), "--out", place, "--shard-tokens", "256"]) == 0
    assert (Path(place) / INDEX_NAME).exists()
