"""Text from a model: the prompt in one call, then token by token, with a cache of keys and values as donated state."""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.backends.registry import DEFAULT
from pcp.inference.request import EmptyPrompt
from pcp.inference.sampling import Sampling
from pcp.ir import Program, Role
from pcp.ir.tree import flatten
from pcp.kernels import kernel_named, sites_of
from pcp.models import decoder
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters, quantised
from pcp.planning import Plan, plan
from pcp.planning.paths.path import Path
from pcp.planning.paths.preparation import prepared
from pcp.tracing import spec, specs_of, trace
from pcp.training.data.token_range import check_tokens

SHORTEST_PREFILL = 16
"""Shorter prompts are decoded token by token: that takes less time than compiling a program for them."""


NATIVE = ("quantised_product.native", "quantised_product.native_many", "attention.native")
"""Kernels that stand without a search: they round no more than the plain forms, of which one writes stored weights out in
float32 and the other brings whole caches into another order."""


def generate(
    parameters: Parameters,
    config: DecoderConfig,
    prompt: Sequence[int],
    count: int,
    sampling: Sampling | None = None,
    device: str | None = None,
    weights: str = "",
    tolerance: float | None = None,
) -> Iterator[int]:
    """Yield `count` tokens that follow the prompt.

    Arguments:
        parameters: arrays, nested as `initial_parameters` of its model makes them.
        config: the model's sizes.
        prompt: tokens to begin with, at least one. Of a prompt that fills the context, only the last half context is read.
        count: how many tokens to yield.
        sampling: how to draw; the default if None.
        device: where to run; see `plan`.
        weights: `bf16`, `int8` or `int4`: how matrices are stored, see `nn.quantise`; empty as they are.
        tolerance: of the plans that read the prompt and single tokens, beside exact arithmetic on weights as they are stored;
            see `plan`. None searches nothing: native kernels then read stored weights and attend, where there are any.

    Raises:
        EmptyPrompt: the prompt is empty.
        NotQuantisable: there is no such form of weights, or a matrix does not fit it.
        ToleranceUnreachable, InvalidTolerance: of the plans.
        TokenOutOfRange: a token of the prompt is not in the model's vocabulary.
    """
    if not len(prompt):
        raise EmptyPrompt("the prompt is empty; give at least one character or token to begin with")
    check_tokens(np.asarray(prompt), config.vocabulary, "the prompt")
    sampling = sampling or Sampling()
    parameters = quantised(parameters, weights) if weights else parameters
    reader = Reader(parameters, config, device, tolerance)
    tokens = list(prompt)
    # When the context is full, the last half of it is read again, so that every token sees at least that much.
    keep = max(config.context // 2, 1)
    while count > 0:
        window = tokens[-keep:] if len(tokens) >= config.context else list(tokens)
        cache, scores = reader.prompt(window)
        for position in range(len(window), config.context + 1):
            token = sampling.draw(np.asarray(scores)[0], len(tokens))
            tokens.append(token)
            yield token
            count -= 1
            if count == 0 or position == config.context:
                break
            cache, scores = reader.token(cache, token, position)


def prefill_length(length: int, context: int) -> int:
    """The length that a prompt is padded to: a power of two, so that few programs are compiled, at most the context."""
    return min(1 << (length - 1).bit_length(), context)


def prefill_program(parameters: Parameters, config: DecoderConfig, padded: int) -> Program:
    """The Program that takes in a whole prompt: `(parameters, tokens, length) -> (cache, scores)`.

    Arguments:
        parameters: arrays or their specs.
        config: the model's sizes.
        padded: length of the tokens with padding.
    """
    return trace(
        lambda params, tokens, length: decoder.prefill(params, tokens, length, config),
        specs_of(parameters),
        spec((1, padded), "i32"),
        spec((), "i32"),
    )


def decode_program(parameters: Parameters, config: DecoderConfig) -> Program:
    """The Program that takes in one token: `(parameters, cache, token, position) -> (cache, scores)`."""
    return trace(
        lambda params, cache, token, position: decoder.decode(params, cache, token, position, config),
        specs_of(parameters),
        specs_of(decoder.whole_cache(config, dtype=_element_type(parameters)), Role.state),
        spec((1,), "i32"),
        spec((), "i32"),
    )


def _element_type(parameters: Parameters) -> Any:
    """The element type that is computed in: vectors are never stored in fewer bits."""
    return next(leaf.dtype for leaf in flatten(parameters)[0] if len(leaf.shape) == 1)


def planned(program: Program, device: str | None, tolerance: float | None) -> Plan:
    """A plan within a tolerance; without one, as written but for native kernels that round no more."""
    if tolerance is not None:
        return plan(program, device, tolerance, binds=("params",))
    target = Target.of(device)
    if target.backend != DEFAULT or target.platform != "cpu":
        return plan(program, device)
    kernels = {
        site.key: kernel_named(name)
        for site in sites_of(prepared(program), target)
        for name in NATIVE
        if name in site.kernels
    }
    return plan(program, device, path=Path.of(program, kernels) if kernels else None)


class Reader:
    """Reads prompts and single tokens; the parameters are placed on the device once, and each program is compiled once.

    Arguments:
        parameters: arrays, perhaps stored in fewer bits.
        config: the model's sizes.
        device: where to run; see `plan`.
        tolerance: of plans; see `generate`.

    Attributes:
        decoder: the plan that takes in one token.
    """

    def __init__(
        self, parameters: Parameters, config: DecoderConfig, device: str | None, tolerance: float | None
    ) -> None:
        self._config, self._device, self._tolerance = config, device, tolerance
        self._parameters = specs_of(parameters)
        self._dtype = _element_type(parameters)
        decoder = self.planned(decode_program(parameters, config))
        self._bound = decoder.place_first(parameters)
        self.decoder = decoder.bind(*self._bound)
        self._prefills: dict[int, Plan] = {}

    def planned(self, program: Program) -> Plan:
        """How a prompt, or a token, is read."""
        return planned(program, self._device, self._tolerance)

    def prompt(self, tokens: Sequence[int]) -> tuple[Any, Any]:
        """The cache of these tokens, and the scores of the next."""
        if len(tokens) >= SHORTEST_PREFILL:
            padded = np.zeros((1, prefill_length(len(tokens), self._config.context)), np.int32)
            padded[0, : len(tokens)] = tokens
            cache, scores = self._prefill(padded.shape[1]).run(padded, np.int32(len(tokens)))
            return cache, scores
        cache, scores = decoder.whole_cache(self._config, dtype=self._dtype), None
        for position, token in enumerate(tokens):
            cache, scores = self.token(cache, token, position)
        return cache, scores

    def token(self, cache: Any, token: int, position: int) -> tuple[Any, Any]:
        """The cache with one token more, and the scores of the next."""
        cache, scores = self.decoder.run(cache, np.asarray([token], np.int32), np.int32(position))
        return cache, scores

    def _prefill(self, padded: int) -> Plan:
        if padded not in self._prefills:
            program = prefill_program(self._parameters, self._config, padded)
            self._prefills[padded] = self.planned(program).bind(*self._bound)
        return self._prefills[padded]
