"""From settings to what is trained: data, model, and the programs of a run."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.models import gpt2
from pcp.optimizers import AdamW, WarmupCosine, adamw
from pcp.tracing import spec, specs_of, trace
from pcp.training.batches import Batches
from pcp.training.byte_pairs import BytePairTokenizer
from pcp.training.config import InvalidTrainingConfig, TrainingConfig
from pcp.training.corpus import Corpus, load_corpus
from pcp.training.run_folder import RunFolder
from pcp.training.step import TrainingStep, training_step
from pcp.training.token_file import TokenFile, write_token_file
from pcp.training.tokenizer import ByteTokenizer, CharacterTokenizer, Tokenizer, Tokens
from pcp.training.validation import mean_loss, validation_windows

TOKENIZERS: dict[str, Callable[[Corpus, int], Tokenizer]] = {
    "characters": lambda corpus, _: CharacterTokenizer.of_text(corpus.text),
    "bytes": lambda *_: ByteTokenizer(),
    "bpe": lambda corpus, vocabulary: BytePairTokenizer.train(corpus.text, vocabulary),
}
"""How each tokenizer that a run may name is made, from the corpus and the vocabulary wanted."""


@dataclass(frozen=True)
class Recipe:
    """Everything a run trains with. Equal settings and data give equal programs, parameters and batches everywhere.

    Arguments:
        config: the settings.
        model: the sizes of the model.
        tokens: the corpus as numbers.
    """

    config: TrainingConfig
    model: gpt2.GPT2Config
    tokens: TokenFile

    @cached_property
    def parameters(self) -> gpt2.Parameters:
        """The parameters before the first step."""
        return gpt2.initial_parameters(self.model, self.config.seed)

    @cached_property
    def optimizer(self) -> AdamW:
        """AdamW with warm-up and cosine."""
        c = self.config
        schedule = WarmupCosine(c.learning_rate, c.warmup_steps, c.steps, c.final_learning_rate)
        return adamw(schedule, betas=(c.beta1, c.beta2), weight_decay=c.weight_decay)

    @cached_property
    def loss(self) -> Program:
        """The loss of one micro-batch: `(parameters, tokens, targets) -> scalar`."""
        return self._program(gpt2.loss, "loss", self.config.batch // self.config.accumulate)

    @cached_property
    def step(self) -> TrainingStep:
        """The training step: `(state, (tokens, targets)) -> (state, metrics)`."""
        c = self.config
        return training_step(
            self.loss, self.optimizer, clip_norm=c.clip_norm or None, accumulate=c.accumulate, remat=c.remat
        )

    @cached_property
    def evaluation(self) -> Program:
        """The losses of validation windows: `(parameters, tokens, targets) -> (windows,)`."""
        return self._program(gpt2.window_losses, "window_losses", self.evaluation_batch)

    @property
    def evaluation_batch(self) -> int:
        """Validation windows evaluated together: as many as make a quarter of a million logits' rows, at most 128."""
        return max(1, min(128, 2**14 // self.model.context))

    @cached_property
    def batches(self) -> Batches:
        """The one sequence of training batches of the run."""
        c = self.config
        return Batches(self.tokens.training, c.batch, self.model.context, c.seed, self.model.vocabulary)

    @property
    def tokens_per_step(self) -> int:
        """Tokens that one step of one worker trains on."""
        return self.config.batch * self.model.context

    def validation_loss(self, evaluate: Callable[..., Any]) -> float:
        """The mean loss over the whole validation part, in nats.

        Arguments:
            evaluate: runs `evaluation` with parameters bound: `(tokens, targets) -> (windows,)`.
        """
        windows = validation_windows(self.tokens.validation, self.model.context, self.evaluation_batch)
        return mean_loss((chunk, np.asarray(evaluate(chunk.inputs, chunk.targets))) for chunk in windows)

    def _program(self, function: Callable[..., Any], name: str, batch: int) -> Program:
        model, sequence = self.model, spec((batch, self.model.context), "i32")

        def traced(parameters: Any, tokens: Any, targets: Any) -> Any:
            return function(parameters, tokens, targets, model)

        traced.__name__ = name
        return trace(traced, specs_of(self.parameters), sequence, sequence)


def prepare(folder: RunFolder) -> Recipe:
    """Read the data of a run into its folder, or find it there, and put together what is trained.

    Raises:
        MissingCorpus, EmptyCorpus, TinyCorpus, CorpusUnavailable: the data cannot be had or is too small.
        InvalidConfiguration: the model has no such name.
    """
    config = folder.config()
    model = gpt2.configuration(config.model)
    if not folder.tokenizer_file.exists():
        corpus = load_corpus(config.data)
        tokenizer = _tokenizer(config, corpus)
        write_token_file(folder.token_file, _encoded(corpus, tokenizer), tokenizer.vocabulary_size)
        folder.write_tokenizer(tokenizer)
    tokens = TokenFile.open(folder.token_file)
    recipe = Recipe(config, dataclasses.replace(model, vocabulary=tokens.vocabulary_size), tokens)
    _ = recipe.batches  # refuses a corpus that is too small before anything is compiled
    next(validation_windows(tokens.validation, model.context, recipe.evaluation_batch))
    return recipe


def _tokenizer(config: TrainingConfig, corpus: Corpus) -> Tokenizer:
    make = TOKENIZERS.get(config.tokenizer)
    if make is None:
        raise InvalidTrainingConfig(
            f"tokenizer is {config.tokenizer!r}; expected one of {', '.join(TOKENIZERS)}"
        )
    return make(corpus, config.vocabulary)


def _encoded(corpus: Corpus, tokenizer: Tokenizer) -> Tokens:
    # Bytes need not be text.
    return (
        tokenizer.encode_bytes(corpus.data)
        if isinstance(tokenizer, ByteTokenizer)
        else tokenizer.encode(corpus.text)
    )
