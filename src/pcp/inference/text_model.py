"""A model that makes text: parameters, sizes and tokenizer, from the folder of a run."""

import dataclasses
from collections.abc import Iterator
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.inference.generate import generate
from pcp.inference.sampling import Sampling
from pcp.models.config import DecoderConfig
from pcp.models.parameters import Parameters
from pcp.models.published import CONFIGURATIONS, configuration
from pcp.training.checkpoint import CheckpointNotFound
from pcp.training.data.tokenizer import Tokenizer, decode_stream
from pcp.training.run_folder import RunFolder, load_state


class NoTextFromALoss(PCPError):
    """Text is asked of a run that trains a loss from a file."""


@dataclass(frozen=True, slots=True)
class TextModel:
    """What text needs.

    Arguments:
        parameters: arrays, nested as `initial_parameters` of its model makes them.
        config: the sizes of the model.
        tokenizer: text to tokens and back.
    """

    parameters: Parameters
    config: DecoderConfig
    tokenizer: Tokenizer

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
        return TextModel(state["params"], config, tokenizer)

    def continuation(
        self,
        prompt: str,
        count: int,
        sampling: Sampling,
        device: str,
        weights: str = "",
        tolerance: float | None = None,
    ) -> Iterator[str]:
        """Yield the text of `count` new tokens; a token that ends inside a character waits for the next.

        Raises:
            NotQuantisable, ToleranceUnreachable, InvalidTolerance: see `generate`.
            UnknownCharacter, EmptyPrompt: the prompt has characters that the tokenizer lacks, or none.
        """
        start = self.tokenizer.encode(prompt).tolist()
        new = generate(self.parameters, self.config, start, count, sampling, device, weights, tolerance)
        yield from decode_stream(self.tokenizer, new)
