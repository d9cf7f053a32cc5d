"""Steps of a model on a device: a few compiled shapes, a cache in pages that each call consumes, tokens drawn inside."""

import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from pcp.backends import Target
from pcp.inference.engine import Answer
from pcp.inference.kept_steps import kept_step
from pcp.inference.readiness import SHORTEST_CHUNK, Beside, Shape, first_shapes, next_width
from pcp.inference.reading import Reads, reading
from pcp.inference.request import NOTHING
from pcp.inference.sampler import draw
from pcp.inference.scheduler import Limits, Part, power_of_two
from pcp.ir import Program, Role
from pcp.ir.tree import map_tree
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters
from pcp.ops.control.loops import fori_loop
from pcp.ops.elementwise import where
from pcp.ops.movement import concatenate, full, iota, repeat, reshape
from pcp.ops.movement.filling import zeros
from pcp.planning import plan
from pcp.planning.compiled import Compiled, compiled
from pcp.tensor import Tensor
from pcp.tracing import spec, specs_of, trace

log = logging.getLogger("pcp.inference")

OF_FEW_ROWS = {"xla_gpu_enable_triton_gemm": True}
"""Options of XLA on a GPU for a step of one token a row: its own products, measured beside the libraries', are faster there.
GPT-2 124M, 8 rows, one H200: 468 us a token, 596 by libraries, which copy weights of an odd number of columns to pad them."""

WORD = 1 << 32


def step_program(parameters: Parameters, config: DecoderConfig | Reads, cache: Any, shape: Shape) -> Program:
    """The Program of a step: `(parameters, cache, tokens, table, whole, real, tell) -> (cache, drawn)`.

    Arguments:
        parameters, cache: arrays or their specs.
        config: the model's sizes, or what reads its texts.
        shape: of the step. `whole` has the columns start, count, and those of `sampler.WHOLE`; the count is that of tokens to
            be drawn where there are several turns, of which nothing but tokens (rows, turns) is told.
    """
    rows, chunk, decoder = shape.rows, shape.chunk, reading(config)

    def one(
        parameters: Any, cache: Any, tokens: Any, table: Any, whole: Any, real: Any, tell: Any, edit: Any
    ) -> Any:
        cache, scores = decoder.read(parameters, cache, tokens, whole[:, 0], whole[:, 1], table, shape.every)
        settings = whole[:, 2:]
        if shape.every:
            scores = reshape(scores, (rows * chunk, -1))
            behind = iota((rows, chunk, 1), 1) * np.array([0, 0, 0, 1], np.int32)
            settings = reshape(settings[:, None, :] + behind, (rows * chunk, 4))
            real = repeat(real, chunk, 0)
        return cache, draw(scores.astype("f32"), settings, real, tell, edit, limits=shape.limited)

    def several(
        parameters: Any, cache: Any, tokens: Any, table: Any, whole: Any, real: Any, _tell: Any, _edit: Any
    ) -> Any:
        def turn(i: Tensor, carry: Any) -> Any:
            cache, tokens, told = carry
            count = (i < whole[:, 1:2]).astype("i32")
            now = concatenate([whole[:, :1] + i, count, whole[:, 2:5], whole[:, 5:] + i], 1)
            cache, drawn = one(parameters, cache, tokens, table, now, real, None, None)
            tokens = reshape(drawn.token, (rows, 1))
            return cache, tokens, where(iota(told.shape, 1) == i, tokens, told)

        told = full((rows, shape.turns), NOTHING, "i32")
        cache, _, told = fori_loop(0, shape.turns, turn, (cache, tokens, told))
        return cache, (told,)

    edit_specs = None
    if shape.edited:
        scores_shape = (shape.draws, decoder.vocabulary)
        edit_specs = (spec(scores_shape, "f32"), spec(scores_shape, "bool"))
    return trace(
        one if shape.turns == 1 else several,
        specs_of(parameters),
        specs_of(cache, Role.state),
        spec((rows, chunk), "i32"),
        spec((rows, shape.width), "i32"),
        spec((rows, 6), "i32"),
        spec((rows, 4), "f32"),
        spec((), "bool"),
        edit_specs,
    )


class Runner:
    """Computes steps of a model.

    Arguments:
        parameters: arrays, perhaps stored in fewer bits. They are placed on the device once.
        config: the model's sizes, or what reads its texts.
        pages: of the cache, with page 0, which is nobody's.
        size: tokens of a page.
        device: where to run; see `plan`.
        tolerance: of plans; None searches nothing.
        fixed_rows: every step has so many rows, so that no text depends on how many run beside it, not in its last bit;
            0 takes powers of two.
        cache: what keys and values are kept in, one of `paged.FORMS`; empty: what is computed in.
    """

    def __init__(
        self,
        parameters: Parameters,
        config: DecoderConfig | Reads,
        pages: int,
        size: int,
        device: str | None = None,
        tolerance: float | None = None,
        fixed_rows: int = 0,
        cache: str = "",
    ) -> None:
        self.decoder, self._size = reading(config, Target.of(device).platform == "cpu"), size
        self._device, self._tolerance, self._fixed_rows = device, tolerance, fixed_rows
        self._parameters, self._specs = parameters, specs_of(parameters)
        of_page = self.decoder.empty_cache(parameters, 1, size, cache)
        self._cache_specs = map_tree(lambda each: spec((pages, *each.shape[1:]), each.dtype), of_page)
        self._plans: dict[Shape, Compiled] = {}
        self._beside: Beside | None = None
        self._bound: Any = None
        self._cache: Any = None

    @property
    def vocabulary(self) -> int:
        """Number of tokens."""
        return self.decoder.vocabulary

    def fresh(self) -> Any:
        """An empty cache, made where it stays: to bring as many zeros there takes longer than a first token."""
        specs = self._cache_specs
        made = trace(lambda: map_tree(lambda each: zeros(each.spec.shape, each.spec.dtype), specs))
        return compiled(made, Target.of(self._device)).call()

    def reset(self) -> None:
        """Begin with an empty cache."""
        self._cache = None

    def shape(self, parts: Sequence[Part]) -> Shape:
        """The compiled shape that parts are padded to."""
        every = any(part.guesses for part in parts)
        chunk = max(len(part.tokens) + len(part.guesses) for part in parts)
        if chunk > 1:
            chunk = power_of_two(chunk) if every else max(power_of_two(chunk), SHORTEST_CHUNK)
        pages = max(-(-_longest(parts) // self._size), self.decoder.least_width(self._size))
        width = min(power_of_two(pages), -(-self.decoder.context // self._size))
        edited = any(part.text.request.sampling.edits or part.text.request.mask is not None for part in parts)
        rows = max(self._fixed_rows, power_of_two(len(parts)))
        turns = power_of_two(max(part.turns for part in parts))
        limited = turns == 1 or any(part.text.request.sampling.limits for part in parts)
        return Shape(
            rows, min(chunk, self.decoder.context), width, every, edited and turns == 1, turns, limited
        )

    def plan(self, shape: Shape) -> Compiled:
        """The plan of a shape, compiled when it is first asked for."""
        if shape not in self._plans and self._beside is not None:
            self._beside.wait(shape)
        if shape not in self._plans:
            self._plans[shape] = self._compiled(shape)
        return self._plans[shape]

    def traced(self, shape: Shape) -> Program:
        """The program of a shape."""
        return step_program(self._specs, self.decoder, self._cache_specs, shape)

    def made(self, shape: Shape) -> Compiled:
        """A plan of a shape within the tolerance; without one, its step as it is run without a search."""
        if self._tolerance is not None:
            return plan(self.traced(shape), self._device, self._tolerance, binds=("parameters",))
        target, specs = Target.of(self._device), (self._specs, self._cache_specs)
        if target.platform == "cuda" and shape.chunk == 1:
            target = target.with_options({**OF_FEW_ROWS, **dict(target.options)})
        facts = self.decoder.identity, shape
        return compiled(kept_step(target, specs, facts, lambda: self.traced(shape)), target)

    def _compiled(self, shape: Shape) -> Compiled:
        found = self.made(shape)
        if self._bound is None:
            self._bound = found.place_first(self._parameters)
            self._parameters = self._specs
        return found.bind(*self._bound)

    def prepare(self, limits: Limits, edited: bool, told: Callable[[int, int], None]) -> None:
        """Compile a few shapes now that compute every step, if not in the least time, and others beside steps from now on.

        Arguments:
            limits: of the steps to come.
            edited: whether scores are changed before they are drawn from where nobody says otherwise.
            told: called with how many are compiled, and how many will be.
        """
        first = first_shapes(limits, self._size, edited, self.decoder.least_width(self._size))
        shapes = list(dict.fromkeys(replace(each, rows=max(each.rows, self._fixed_rows)) for each in first))
        for count, shape in enumerate(shapes):
            told(count, len(shapes))
            self._run_in([], shape, tell=False)  # idle rows write nothing
        told(len(shapes), len(shapes))
        if not self._fixed_rows:  # whose texts do not depend on which shapes are compiled yet
            self._beside = Beside(self._compile_beside)

    def rest(self) -> None:
        """Compile no more beside steps."""
        if self._beside is not None:
            self._beside.close()
            self._beside = None

    def _compile_beside(self, shape: Shape) -> None:
        try:
            self._plans[shape] = self._compiled(shape)
        except Exception:
            log.exception("%s could not be compiled; steps of it are computed in larger ones", shape)
            raise

    def run(self, parts: Sequence[Part]) -> Answer:
        """Read the parts, and draw behind the last token of each, and behind each guess."""
        tell = any(part.text.request.logprobs is not None for part in parts)
        shape = self.shape(parts)
        if self._beside is None:
            return self._run_in(parts, shape, tell)
        wider = next_width(shape, _longest(parts), self._size, self.decoder.context)
        for each in (shape, wider):
            # A search measures, which it cannot beside steps.
            if each is not None and each not in self._plans and self._tolerance is None:
                self._beside.ask(each)
        known = self._known(shape)
        if known is None and len(parts) > 1 and not shape.every:
            alone = [self._known(self.shape([part])) for part in parts]
            if None not in alone:
                return joined(
                    [
                        self._run_in([part], each, tell)
                        for part, each in zip(parts, alone, strict=True)
                        if each
                    ]
                )
        return self._run_in(parts, known or shape, tell)

    def _known(self, shape: Shape) -> Shape | None:
        """The shape that is compiled and computes a step of this one with the least work."""
        return min(
            (each for each in list(self._plans) if each.covers(shape)),
            key=lambda each: each.work,
            default=None,
        )

    def _run_in(self, parts: Sequence[Part], shape: Shape, tell: bool) -> Answer:
        step = self.plan(shape)
        cache = self.fresh() if self._cache is None else self._cache
        self._cache = None  # a call consumes it
        self._cache, drawn = step.call(
            cache, *self._packed(parts, shape), np.bool_(tell), self._edit(parts, shape)
        )
        places = (shape.rows, shape.turns if shape.turns > 1 else shape.chunk if shape.every else 1)
        tokens = np.asarray(drawn[0]).reshape(places)
        if not tell or shape.turns > 1:
            return Answer(tokens)
        logprobs, top, tops = (np.asarray(each) for each in drawn[1:])
        return Answer(tokens, logprobs.reshape(places), top.reshape(*places, -1), tops.reshape(*places, -1))

    def _packed(self, parts: Sequence[Part], shape: Shape) -> tuple[Any, Any, Any, Any]:
        """Tokens, table, whole numbers and real ones of each row; rows without a part are idle."""
        tokens = np.zeros((shape.rows, shape.chunk), np.int32)
        table = np.zeros((shape.rows, shape.width), np.int32)
        whole = np.zeros((shape.rows, 6), np.uint32)
        real = np.zeros((shape.rows, 4), np.float32)
        for row, part in enumerate(parts):
            given, sampling = [*part.tokens, *part.guesses], part.text.request.sampling
            tokens[row, : len(given)] = given
            pages = part.text.pages[: shape.width]
            table[row, : len(pages)] = pages
            seed = sampling.seed
            count = part.turns if shape.turns > 1 else len(given)
            whole[row] = part.start, count, sampling.top_k or 0, seed // WORD, seed % WORD, part.place
            real[row] = sampling.temperature, sampling.top_p, sampling.min_p, sampling.repetition_penalty
        return tokens, table, whole.view(np.int32), real

    def _edit(self, parts: Sequence[Part], shape: Shape) -> Any:
        """What is added to scores, and which of them the repetition penalty is for."""
        if not shape.edited:
            return None
        added = np.zeros((shape.draws, self.vocabulary), np.float32)
        repeated = np.zeros(added.shape, np.bool_)
        each = shape.draws // shape.rows
        for row, part in enumerate(parts):
            rows, sampling, request = (
                slice(row * each, (row + 1) * each),
                part.text.request.sampling,
                part.text.request,
            )
            new = part.text.tokens[len(request.prompt) :]
            if sampling.repetition_penalty != 1:
                repeated[rows, part.text.tokens] = True
            if new and (sampling.presence_penalty or sampling.frequency_penalty):
                tokens, counts = np.unique(new, return_counts=True)
                added[rows, tokens] -= sampling.presence_penalty + sampling.frequency_penalty * counts
            for token, bias in sampling.logit_bias.items():
                added[rows, token] += bias
            if request.mask is not None:
                added[rows] = np.where(request.mask(new), added[rows], -np.inf)
        return added, repeated


def _longest(parts: Sequence[Part]) -> int:
    return max(part.start + len(part.tokens) + len(part.guesses) + part.turns - 1 for part in parts)


def joined(answers: Sequence[Answer]) -> Answer:
    """The answer of a step from those of its parts, each computed alone."""

    def each(name: str) -> Any:
        arrays = [getattr(answer, name) for answer in answers]
        return None if arrays[0] is None else np.concatenate([array[:1] for array in arrays])

    return Answer(each("tokens"), each("logprobs"), each("top"), each("top_logprobs"))
