"""Every row of the decoder beside transformers, from a folder that it saved: logits, gradients, and text in every way to read.

The arena computes in float64 and compiles nothing; transformers computes in float32.
"""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.execution import exactly
from tests.peers.beside_transformers.decoders import DECODERS, made

import pcp
from pcp.importers.transformers_folder import read_weights
from pcp.ir.tree import flatten, map_tree
from pcp.models import decoder
from pcp.models.families import FAMILIES, config_of
from pcp.planning.judging.oracle import widened

PAGE, NEW = 8, 64
EACH = pytest.mark.parametrize("saved", list(DECODERS), indirect=True)


@pytest.fixture(name="saved")
def _saved(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Any, Any, Any]:
    """The model, and its configuration and parameters from the folder."""
    model = made(request.param)
    model.save_pretrained(tmp_path)
    config = config_of(json.loads((tmp_path / "config.json").read_text()), "config.json")
    return model, config, read_weights(tmp_path, config)


def random_tokens(config: Any, *shape: int) -> Any:
    return np.random.default_rng(shape).integers(0, config.vocabulary, shape).astype(np.int32)


def distance(ours: Any, theirs: Any) -> float:
    return float(np.linalg.norm(ours - theirs) / max(np.linalg.norm(theirs), 1e-6))


@pytest.mark.share(4)
@EACH
def test_logits_and_every_gradient_are_those_of_transformers(saved: Any, tmp_path: Path) -> None:
    model, config, parameters = saved
    tokens, targets = random_tokens(config, 2, 30), random_tokens(config, 2, 30)[::-1].copy()
    loss = pcp.trace(lambda p, x, y: decoder.loss(p, x, y, config), parameters, tokens, targets)
    logits = pcp.trace(lambda p, x: decoder.logits(p, x, config), parameters, tokens)
    theirs = model(torch.from_numpy(tokens).long()).logits
    assert distance(exactly(logits, parameters, tokens), theirs.detach().numpy()) < 1e-5
    torch.nn.functional.cross_entropy(
        theirs.flatten(0, 1), torch.from_numpy(targets).long().flatten()
    ).backward()
    with torch.no_grad():  # gradients take the way of weights: through a folder
        for parameter in model.parameters():
            parameter.copy_(torch.zeros_like(parameter) if parameter.grad is None else parameter.grad)
    model.save_pretrained(tmp_path / "gradients")
    expected, tree = flatten(read_weights(tmp_path / "gradients", config))
    found = flatten(exactly(pcp.value_and_grad(loss), parameters, tokens, targets)[1])[0]
    for leaf, ours, wanted in zip(tree.names(), found, expected, strict=True):
        if not leaf.endswith(("key.bias", "qkv.bias")):  # softmax does not see a shift of all scores
            assert distance(ours, wanted) < 1e-4, leaf


class Reader:
    """Rows that read chunks of one width from a cache in pages, which begins as what others left."""

    def __init__(self, config: Any, parameters: Any, rows: int, chunk: int, cache: Any = None) -> None:
        self.parameters, self.rows, self.chunk, self.cache = parameters, rows, chunk, cache
        each = -(-config.context // PAGE)
        self.table = (1 + np.arange(rows * each).reshape(rows, each)[:, ::-1]).astype(np.int32)
        if cache is None:
            empty = decoder.empty_cache(config, 1 + rows * each, PAGE, "f64")
            self.cache = [
                {kind: np.full_like(array, np.nan) for kind, array in layer.items()} for layer in empty
            ]
        shapes = ((rows, chunk), (rows,), (rows,), (rows, each), (rows,))
        narrow = decoder.empty_cache(config, 1 + rows * each, PAGE)
        program = pcp.trace(
            lambda p, c, t, s, n, table, length: decoder.read(p, c, t, s, n, table, config, length=length),
            pcp.specs_of(parameters),
            pcp.specs_of(narrow, "state"),
            *[pcp.spec(shape, "i32") for shape in shapes],
        )
        self.plan = pcp.plan(widened(program), "arena:cpu")

    def read(self, tokens: list[Any], start: list[int], length: list[int]) -> Any:
        padded = np.full((self.rows, self.chunk), 5, np.int32)
        for row, own in zip(padded, tokens, strict=True):
            row[: len(own)] = own
        count, first, whole = (
            np.array(each, np.int32) for each in ([len(own) for own in tokens], start, length)
        )
        self.cache, scores = self.plan.run(
            self.parameters, self.cache, padded, first, count, self.table, whole
        )
        return np.array(scores)


@pytest.mark.share(4)
@EACH
def test_64_tokens_are_those_of_generate_however_prompts_are_read(saved: Any) -> None:
    """Two rows of different lengths, in chunks and then token by token, beside one request alone in transformers."""
    model, config, parameters = saved
    parameters = map_tree(lambda leaf: leaf.astype(np.float64), parameters)
    prompts = [random_tokens(config, length) for length in (23, 18)]
    expected = []
    for prompt in prompts:
        ids = torch.from_numpy(prompt)[None].long()
        whole = model.generate(
            ids, attention_mask=torch.ones_like(ids), max_new_tokens=NEW, do_sample=False, use_cache=True
        )
        expected.append(whole[0, len(prompt) :].tolist())
    assert len({*expected[0], *expected[1]}) > 3
    chunks = Reader(config, parameters, 2, 10)
    lengths, done = [len(prompt) for prompt in prompts], [0, 0]
    last: list[Any] = [None, None]
    while done != lengths:
        parts = [prompt[at : at + 10] for prompt, at in zip(prompts, done, strict=True)]
        scores = chunks.read(parts, done, lengths)
        last = [row if len(part) else old for row, part, old in zip(scores, parts, last, strict=True)]
        done = [at + len(part) for at, part in zip(done, parts, strict=True)]
    single = Reader(config, parameters, 2, 1, chunks.cache)
    found: list[list[int]] = [[int(row.argmax())] for row in last]
    for _ in range(NEW - 1):
        now = [at + 1 for at in done]
        scores = single.read([[row[-1]] for row in found], done, now)
        done = now
        for row, one in zip(found, scores, strict=True):
            row.append(int(one.argmax()))
    assert found == expected


def test_every_family_is_here() -> None:
    kinds = {
        "GPT2Config": "gpt2",
        "GPTNeoXConfig": "gpt_neox",
        "Gemma3TextConfig": "gemma3_text",
        "OlmoeConfig": "olmoe",
    }
    settings = [kind for kind, _ in DECODERS.values() if kind != "Gemma3Config"]
    known = {kinds.get(kind, kind.removesuffix("Config").lower().replace("moe", "_moe")) for kind in settings}
    assert known == set(FAMILIES)
