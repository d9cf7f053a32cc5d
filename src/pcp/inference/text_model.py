"""A model that makes text: parameters, sizes and tokenizer, from the folder of a run."""

import dataclasses
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pcp.backends import Target
from pcp.errors import PCPError
from pcp.inference.engine import Engine
from pcp.inference.guessing import DraftMismatch, DraftModel, Guesser, PromptLookup
from pcp.inference.habits import Habits
from pcp.inference.pages import Pages
from pcp.inference.reading import Reads, reading
from pcp.inference.request import Request
from pcp.inference.runner import Runner
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import Limits, Scheduler, power_of_two
from pcp.ir.tree import flatten
from pcp.models.config import DecoderConfig
from pcp.models.paged import FORMS
from pcp.models.parameters import Parameters, quantised
from pcp.models.published import CONFIGURATIONS, configuration
from pcp.nn.quantised import NotQuantisable
from pcp.training.checkpoint import CheckpointNotFound
from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.tokenizer import Tokenizer
from pcp.training.run_folder import RunFolder, load_state


class NoTextFromALoss(PCPError):
    """Text is asked of a run that trains a loss from a file."""


class UnknownCache(PCPError):
    """A form of caches that there is not."""


class NoTokenizer(PCPError):
    """A text is given to a model that has no tokenizer."""


GUESSES = 3
"""Tokens that a draft model guesses at once, unless it is told otherwise."""

TURNS, TURNING = 16, ("cuda",)
"""Tokens that a call draws one after another, and the kinds of devices where it does."""

CACHE_BYTES = 4 << 30
"""Most memory that a cache takes unless it is told otherwise, and unless one text alone needs more."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What text needs.

    Arguments:
        parameters: arrays, nested as `initial_parameters` of its model makes them.
        config: the sizes of the model, or what reads its texts where it is not written by PCP.
        tokenizer: text to tokens and back; None for a model that is only given tokens.
        habits: where answers end, and how they are drawn if nobody says otherwise.
    """

    parameters: Parameters
    config: DecoderConfig | Reads
    tokenizer: Tokenizer | None = None
    habits: Habits = field(default_factory=Habits)
    _held: dict[Any, "_Compiled"] = field(default_factory=dict, init=False, repr=False, compare=False)

    @staticmethod
    def of_run(folder: RunFolder) -> "TextModel":
        """The model of the newest checkpoint of a run.

        Raises:
            NoTextFromALoss: the run trains a loss from a file.
            NotARun: the run was stopped before its data was read.
            CheckpointNotFound: the run was stopped before its first checkpoint.
        """
        if folder.loss_file.exists():
            raise NoTextFromALoss(
                f"{folder.path} trains the loss {folder.config().model}, and a loss does not say how its model makes text; "
                f"`pcp generate` knows only {', '.join(CONFIGURATIONS)}. To make text, load {folder.trained_file} in the "
                "framework that the loss came from"
            )
        tokenizer = folder.tokenizer()
        try:
            _, state, _ = load_state(folder)
        except CheckpointNotFound:
            raise CheckpointNotFound(
                f"There is no checkpoint in {folder.checkpoints}: the run was stopped before its first one. "
                f"Train on with: pcp train --resume {folder.path}"
            ) from None
        config = configuration(folder.config().model)
        config = dataclasses.replace(config, vocabulary=tokenizer.vocabulary_size)
        return TextModel(state["params"], config, tokenizer, Habits.of(folder.path, tokenizer))

    def engine(
        self,
        device: str | None = None,
        weights: str = "",
        tolerance: float | None = None,
        rows: int = 8,
        page: int = 16,
        pages: int | None = None,
        chunk: int = 512,
        most_waiting: int = 1024,
        guesses: int = 0,
        invariant: bool = False,
        prepared: Callable[[int, int], None] | None = None,
        cache: str = "",
        draft: "TextModel | None" = None,
        turns: int | None = None,
    ) -> Engine:
        """An engine that answers many requests at once. What is compiled stays with the model for the next engine.

        Arguments:
            device: where to run; see `plan`.
            weights: `bf16`, `int8` or `int4`: how matrices are stored, see `nn.quantise`; empty as they are.
            tolerance: of the plans, beside exact arithmetic on weights as they are stored; see `plan`. None searches nothing:
                native kernels then read stored weights and attend, where there are any.
            rows: most texts at once.
            page: tokens of a page of the cache.
            pages: of the cache; None for whole contexts of all rows, in at most 4 GiB.
            chunk: most tokens of prompts that one step reads.
            most_waiting: with so many waiting, another request is refused.
            guesses: tokens that are guessed from what the text said before, and verified at once; texts stay the same, but for
                scores that round otherwise in a program of more tokens.
            invariant: always compute `rows` rows, so that a text does not depend on what runs beside it, not in its last bit.
            prepared: compile what answers anything at once before this returns, and other shapes beside steps; called with how
                many of the first are compiled, and how many will be. Texts then differ by rounding with what is compiled. None
                compiles each shape when a step first needs it.
            draft: a smaller model of the same tokens, which guesses; `guesses` is how many at once, 3 if not given.
            cache: `f32`, `bf16` or `int8`, the latter with a scale for each token and head: what keys and values are kept in;
                empty: what is computed in.
            turns: most tokens that a call of the model draws one after another, a power of two: on a GPU a call takes longer
                than a token of a small model. Behind an end, a stop text or a reader who leaves, so many tokens are computed in
                vain. None: 16 on a GPU if nothing is guessed, else 1.

        Raises:
            UnknownCache: there is no such form of caches.
            DraftMismatch: the tokens of the draft are others.
            NotQuantisable: there is no such form of weights, or a matrix does not fit it.
            ToleranceUnreachable, InvalidTolerance: of the plans, at the first request.
        """
        if cache not in ("", *FORMS):
            raise UnknownCache(f"caches cannot be kept in {cache!r}; choose one of {', '.join(FORMS)}")
        if draft is not None:
            _check_draft(self, draft)
        taken = [self._acquired(device, weights, tolerance, rows, page, pages, invariant, cache)]
        (compiled,) = taken
        several = TURNS if Target.of(device).platform in TURNING and not guesses and draft is None else 1
        limits = Limits(self.config.context, rows, chunk, several if turns is None else turns)
        guesser: Guesser | None = PromptLookup(guesses) if guesses else None

        def done() -> None:
            for each in taken:
                each.done()

        try:
            if draft is not None:
                taken.append(
                    smaller := draft._acquired(device, weights, tolerance, rows, page, None, invariant, cache)
                )
                most = min(draft.config.context, self.config.context)
                guesser = DraftModel(smaller.runner, smaller.pages, most, guesses or GUESSES, chunk)
            if prepared is not None:
                compiled.runner.prepare(limits, self.habits.drawing({}).edits, prepared)
        except BaseException:
            done()
            raise
        scheduler = Scheduler(limits, compiled.pages)
        return Engine(
            compiled.runner, scheduler, self.tokenizer, self.habits.ends, most_waiting, guesser, done
        )

    def _acquired(self, *how: Any) -> "_Compiled":
        """What is compiled in a way, which is the caller's until it is done."""
        compiled = self._held.get(how)
        if compiled is None or not compiled.free.acquire(blocking=False):
            compiled = self._compiled(*how)
            compiled.free.acquire()
            self._held[how] = compiled
        return compiled

    def _compiled(
        self,
        device: str | None,
        weights: str,
        tolerance: float | None,
        rows: int,
        page: int,
        pages: int | None,
        invariant: bool,
        cache: str,
    ) -> "_Compiled":
        if (weights or cache) and not isinstance(self.config, DecoderConfig):
            raise NotQuantisable(
                f"weights={weights!r} and cache={cache!r} were given for a model whose program is all that is known of it; "
                "expected neither: which of its arrays are matrices of products, and which keys, is not told"
            )
        parameters = quantised(self.parameters, weights) if weights else self.parameters
        a_context = -(-self.config.context // page)
        if pages is None:
            of_page = reading(self.config).empty_cache(parameters, 1, page, cache)
            fits = CACHE_BYTES // sum(leaf.nbytes for leaf in flatten(of_page)[0])
            pages = 1 + max(min(rows * a_context, fits), a_context)
        fixed = power_of_two(rows) if invariant else 0
        runner = Runner(parameters, self.config, pages, page, device, tolerance, fixed, cache)
        return _Compiled(runner, Pages(pages, page))

    def tokens_of(self, prompt: str | Sequence[int]) -> Sequence[int]:
        """The tokens of a prompt, a text behind those that its tokenizer puts before one, as transformers and a server have it.

        Raises:
            UnknownCharacter: it has characters that the tokenizer lacks.
            NoTokenizer: it is a text, and the model has no tokenizer.
        """
        if not isinstance(prompt, str):
            return prompt
        if self.tokenizer is None:
            raise NoTokenizer("a text was given to a model without a tokenizer; give token numbers")
        if isinstance(self.tokenizer, BytePairTokenizer):
            return self.tokenizer.encode_prompt(prompt)
        tokens: list[int] = self.tokenizer.encode(prompt).tolist()
        return tokens

    def continuation(
        self,
        prompt: str,
        count: int,
        sampling: Sampling | None = None,
        device: str | None = None,
        weights: str = "",
        tolerance: float | None = None,
        ignore_end: bool = False,
        cache: str = "",
    ) -> Iterator[str]:
        """Yield the text of up to `count` new tokens, piece by piece; when the context is full, its last half is read again.

        Arguments:
            sampling: how tokens are drawn; None: as the model's makers recommend, else the default.
            ignore_end: go on behind tokens that end an answer.
            device, weights, tolerance, cache: see `engine`.

        Raises:
            NotQuantisable, ToleranceUnreachable, InvalidTolerance: see `engine`.
            UnknownCharacter, EmptyPrompt: the prompt has characters that the tokenizer lacks, or none.
        """
        drawing = sampling or self.habits.drawing({})
        request = Request(self.tokens_of(prompt), count, drawing, ignore_end=ignore_end, slide=True)
        with self.engine(device, weights, tolerance, rows=1, cache=cache) as engine:
            stream = engine.submit(request)
            for piece in stream:
                yield piece.text
            if stream.error is not None:
                raise stream.error.__cause__ or stream.error


@dataclass(frozen=True, slots=True)
class _Compiled:
    """Programs and a cache, and who may use them: one engine at a time."""

    runner: Runner
    pages: Pages
    free: threading.Lock = field(default_factory=threading.Lock)

    def done(self) -> None:
        """Let another engine have it."""
        self.runner.rest()
        self.free.release()


def _check_draft(model: TextModel, draft: TextModel) -> None:
    """Raises DraftMismatch if two models have other tokens."""
    sizes = model.config.vocabulary, draft.config.vocabulary
    texts = [each.tokenizer.to_json() for each in (model, draft) if each.tokenizer is not None]
    if sizes[0] != sizes[1] or len(set(texts)) > 1:
        what = "other tokenizers" if sizes[0] == sizes[1] else f"{sizes[0]:,} and {sizes[1]:,} tokens"
        raise DraftMismatch(
            f"the model and its draft have {what}; a draft guesses tokens of the model, so give one that was trained with the "
            "same tokenizer"
        )
