"""One function reads prompts, chunks, batches and single tokens: each gives what the whole text at once gives."""

from typing import Any

import numpy as np
import pytest
from tests.execution import OPTIMISED, run

import pcp
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.decoder import empty_cache, read
from pcp.models.published import gpt2_config, llama_config
from pcp.tensor import ShapeMismatch

CONFIGURATIONS = {
    "gpt2": gpt2_config(layers=2, heads=2, width=16, context=24, vocabulary=31),
    "llama": llama_config(2, heads=4, key_value_heads=2, width=16, hidden=20, context=24, vocabulary=31),
}
PAGE, PAGES, ROWS = 4, 20, 3


def drawn(config: Any) -> Any:
    generator = np.random.default_rng(3)
    initial = decoder.initial_parameters(config)
    return map_tree(lambda p: (p + 0.3 * generator.normal(size=p.shape)).astype(np.float32), initial)


class Reader:
    """Reads chunks of one width by one compiled program; the cache begins as what others left."""

    def __init__(self, config: Any, parameters: Any, chunk: int, every: bool) -> None:
        self.parameters, self.chunk = parameters, chunk
        self.cache = map_tree(lambda a: np.full_like(a, np.nan), empty_cache(config, PAGES, PAGE))
        specs = [pcp.spec(shape, "i32") for shape in ((ROWS, chunk), (ROWS,), (ROWS,), (ROWS, 6))]
        self.program = pcp.trace(
            lambda p, c, *rest: read(p, c, *rest, config, every),
            pcp.specs_of(parameters),
            pcp.specs_of(self.cache, "state"),
            *specs,
        )

    def read(self, tokens: list[Any], start: list[int], table: Any) -> Any:
        padded = np.full((ROWS, self.chunk), 5, np.int32)
        for row, own in zip(padded, tokens, strict=True):
            row[: len(own)] = own
        count = np.array([len(own) for own in tokens], np.int32)
        start_at = np.array(start, np.int32)
        self.cache, scores = run(self.program, self.parameters, self.cache, padded, start_at, count, table)
        return scores


@pytest.mark.parametrize("name", list(CONFIGURATIONS))
def test_chunks_batches_and_single_tokens_give_what_the_whole_text_gives(name: str) -> None:
    config = CONFIGURATIONS[name]
    parameters, generator = drawn(config), np.random.default_rng(4)
    texts = generator.integers(0, config.vocabulary, (ROWS, 24)).astype(np.int32)
    logits = pcp.trace(lambda p, t: decoder.logits(p, t, config), parameters, texts)
    expected = run(logits, parameters, texts)
    table = 1 + generator.permutation(PAGES - 1)[: ROWS * 6].reshape(ROWS, 6).astype(np.int32)
    reader, single = Reader(config, parameters, 5, every=True), Reader(config, parameters, 1, every=False)
    # Row 0 comes in chunks, row 1 is idle and then late, row 2 ends early; places beyond a text have no page.
    lengths, arrivals = (24, 13, 7), (0, 2, 0)
    done = [0, 0, 0]
    for step in range(4):
        some = [min(5 - (step == 1), lengths[r] - done[r]) if step >= arrivals[r] else 0 for r in range(ROWS)]
        used = [-(-(done[r] + some[r]) // PAGE) for r in range(ROWS)]
        live = np.where(np.arange(6) < np.array(used)[:, None], table, 0).astype(np.int32)
        parts = [texts[r, done[r] : done[r] + some[r]] for r in range(ROWS)]
        scores = reader.read(parts, done, live)
        for r in range(ROWS):
            np.testing.assert_allclose(
                scores[r, : some[r]], expected[r, done[r] : done[r] + some[r]], atol=2e-5, rtol=2e-5
            )
        done = [a + b for a, b in zip(done, some, strict=True)]
    single.cache = reader.cache
    while done[0] < 24:
        here = [texts[0, done[0] : done[0] + 1], texts[1, done[1] : done[1] + 1], []]
        scores = single.read(here, done, table)
        for r in (0, 1):
            np.testing.assert_allclose(scores[r], expected[r, done[r]], atol=2e-5, rtol=2e-5)
        done = [done[0] + 1, done[1] + 1, done[2]]


def test_shapes_that_do_not_belong_together() -> None:
    config = CONFIGURATIONS["gpt2"]
    message = r"read: tokens \(3, 2\), start \(2,\), count \(3,\) and table \(3, 4\) were given; expected \(rows, chunk\)"
    with pytest.raises(ShapeMismatch, match=message):
        pcp.trace(
            lambda *arguments: read({}, [], *arguments, config),
            *[pcp.spec(shape, "i32") for shape in ((3, 2), (2,), (3,), (3, 4))],
        )


def test_a_cache_is_written_in_place() -> None:
    config = CONFIGURATIONS["llama"]
    cache = empty_cache(config, 900, 16)
    size = sum(array.nbytes for layer in cache for array in layer.values())
    for rows, chunk in ((1, 1), (2, 3)):
        shapes = ((rows, chunk), (rows,), (rows,), (rows, 4))
        specs = [pcp.spec(shape, "i32") for shape in shapes]
        program = pcp.trace(
            lambda p, c, *rest: read(p, c, *rest, config),
            decoder.parameter_shapes(config),
            pcp.specs_of(cache, "state"),
            *specs,
        )
        (use,) = pcp.plan(program, cache=False, options=OPTIMISED).memory.values()
        assert use.aliased == size
        assert use.temporaries < size / 8
