"""Text from a model, token by token, with a cache of keys and values as donated state."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.inference.sampling import Sampling
from pcp.ir import Role
from pcp.models import gpt2
from pcp.planning import plan
from pcp.tracing import spec, specs_of, trace
from pcp.training.token_range import check_tokens


class EmptyPrompt(PCPError):
    """Nothing to go on from."""


def generate(
    parameters: gpt2.Parameters,
    config: gpt2.GPT2Config,
    prompt: Sequence[int],
    count: int,
    sampling: Sampling | None = None,
    device: str | None = None,
) -> Iterator[int]:
    """Yield `count` tokens that follow the prompt.

    Arguments:
        parameters: arrays, nested as `gpt2.initial_parameters` makes them.
        config: the model's sizes.
        prompt: tokens to begin with, at least one; of one that fills the context, the last half of a context counts.
        count: how many tokens to yield.
        sampling: how to draw; the default if None.
        device: where to run; see `plan`.

    Raises:
        EmptyPrompt: the prompt is empty.
        TokenOutOfRange: a token of the prompt is none of the model's.
    """
    if not len(prompt):
        raise EmptyPrompt("the prompt is empty; give at least one character or token to begin with")
    check_tokens(np.asarray(prompt), config.vocabulary, "the prompt")
    sampling = sampling or Sampling()
    decoder = plan(decode_program(parameters, config), device=device).bind(parameters)
    tokens = list(prompt)
    # When the context is full, the last half of it is read again, so that every token sees at least that much.
    keep = max(config.context // 2, 1)
    while count > 0:
        cache: Any = gpt2.empty_cache(config, dtype=parameters["wte"].dtype)
        window = tokens[-keep:] if len(tokens) >= config.context else list(tokens)
        scores: Any = None
        for position, token in enumerate(window):
            cache, scores = decoder.run(cache, np.asarray([token], np.int32), np.int32(position))
        for position in range(len(window), config.context + 1):
            token = sampling.draw(np.asarray(scores)[0], len(tokens))
            tokens.append(token)
            yield token
            count -= 1
            if count == 0 or position == config.context:
                break
            cache, scores = decoder.run(cache, np.asarray([token], np.int32), np.int32(position))


def decode_program(parameters: gpt2.Parameters, config: gpt2.GPT2Config) -> Any:
    """The Program that takes in one token: `(parameters, cache, token, position) -> (cache, scores)`."""
    return trace(
        lambda params, cache, token, position: gpt2.decode(params, cache, token, position, config),
        specs_of(parameters),
        specs_of(gpt2.empty_cache(config, dtype=parameters["wte"].dtype), Role.state),
        spec((1,), "i32"),
        spec((), "i32"),
    )
