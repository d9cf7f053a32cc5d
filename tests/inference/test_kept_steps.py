"""A second process traces no step: what runs is kept on disk, by all that it was made from."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from pcp.backends import Target
from pcp.inference import kept_steps, runner
from pcp.inference.kept_steps import kept_step
from pcp.inference.readiness import Shape
from pcp.inference.request import Request
from pcp.inference.runner import Runner
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import Part, Text
from pcp.ir import Program
from pcp.ir.tree import map_tree
from pcp.models import decoder
from pcp.models.config import DecoderConfig, Rotary
from pcp.models.published import gpt2_config
from pcp.ops.elementwise import tanh
from pcp.tracing import spec, trace

CONFIG = gpt2_config(layers=1, heads=2, width=16, context=16, vocabulary=13)


class TracedAgain(Exception):
    """A step was traced that is kept."""


@pytest.fixture(autouse=True)
def own_store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PCP_CACHE_DIR", str(tmp_path))


def drawn(seed: int) -> Any:
    made = Runner(decoder.initial_parameters(CONFIG, seed), CONFIG, 3, 8)
    text = Text(Request([3, 1, 4, 1, 5], sampling=Sampling(0), logprobs=3), pages=[1, 2])
    answer = made.run([Part(text, 0, text.tokens, [])])
    return answer.tokens, answer.top_logprobs


def test_a_second_runner_traces_nothing_and_reads_its_own_weights(monkeypatch: pytest.MonkeyPatch) -> None:
    before = [drawn(seed) for seed in (0, 1)]

    def again(*_: Any) -> Program:
        raise TracedAgain

    monkeypatch.setattr(runner, "step_program", again)
    after = [drawn(seed) for seed in (0, 1)]
    for (tokens, tops), (kept_tokens, kept_tops) in zip(before, after, strict=True):
        np.testing.assert_array_equal(tokens, kept_tokens)
        np.testing.assert_array_equal(tops, kept_tops)
    assert not np.array_equal(before[0][1], before[1][1])


def test_a_step_is_kept_by_all_that_it_was_made_from(monkeypatch: pytest.MonkeyPatch) -> None:
    target, specs, made = Target.of("cpu:0"), [spec((2, 3), "f32")], list[object]()

    def made_of(specs: Any, facts: object) -> int:
        def make() -> Program:
            made.append(facts)
            return trace(tanh, spec((2,), "f32"))

        kept_step(target, specs, facts, make)
        return len(made)

    first = CONFIG, Shape(1, 1, 1)
    assert [made_of(specs, first), made_of(specs, first)] == [1, 1]
    assert made_of(specs, (CONFIG, Shape(1, 1, 2))) == 2
    assert made_of([spec((2, 3), "bf16")], first) == 3
    assert made_of({"other": specs[0]}, first) == 4
    monkeypatch.setattr(kept_steps, "code_digest", lambda: "other code")
    assert made_of(specs, first) == 5
    monkeypatch.setenv("PCP_MASK_FEATURES", "avx2")
    assert made_of(specs, first) == 6
    assert made_of(specs, first) == 6


def test_models_that_differ_in_what_their_config_does_not_show_keep_steps_of_their_own() -> None:
    def of(base: float) -> Any:
        config = DecoderConfig(
            layers=1, heads=2, key_value_heads=2, width=16, hidden=16, context=16, vocabulary=13, rotary=Rotary(base)
        )  # fmt: skip
        parameters = map_tree(lambda each: each * 30, decoder.initial_parameters(config, 0))
        text = Text(Request([3, 1, 4, 1, 5], sampling=Sampling(0), logprobs=3), pages=[1, 2])
        return Runner(parameters, config, 3, 8).run([Part(text, 0, text.tokens, [])]).top_logprobs

    assert not np.allclose(of(10.0), of(10000.0), atol=1e-3)
