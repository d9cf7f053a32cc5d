"""The models whose training steps are compared on a GPU, and at which sizes."""

import dataclasses
from dataclasses import dataclass

from pcp.models.config import DecoderConfig
from pcp.models.published import CONFIGURATIONS

VOCABULARY = 50304
"""GPT-2's, padded to a multiple of 64, as all who train it do."""


@dataclass(frozen=True, slots=True)
class Sizes:
    """A model as it is timed and as it is judged.

    Arguments:
        config: of the model.
        batch: sequences, at most; each contestant takes half as many until it fits.
        judged_layers: how deep the step is whose errors are known: float32 without kernels needs much more memory.
        judged_batch: its sequences.
    """

    config: DecoderConfig
    batch: int
    judged_layers: int
    judged_batch: int

    @property
    def judged(self) -> DecoderConfig:
        """The model that is judged."""
        return dataclasses.replace(self.config, layers=self.judged_layers)

    @property
    def judges_itself(self) -> bool:
        """Whether errors are those of the step that is timed; then all contestants fit in memory together, too."""
        return self.judged_layers == self.config.layers and self.judged_batch == self.batch


def _padded(name: str) -> DecoderConfig:
    return dataclasses.replace(CONFIGURATIONS[name], vocabulary=VOCABULARY)


MODELS = {
    "gpt2": Sizes(_padded("gpt2"), 32, 12, 32),
    "gpt2-1.5b": Sizes(_padded("gpt2-xl"), 32, 4, 2),
    "llama-1b": Sizes(dataclasses.replace(CONFIGURATIONS["llama-1b"], context=4096), 8, 2, 1),
}


def overridden(
    sizes: Sizes,
    layers: int | None,
    width: int | None,
    context: int | None,
    vocabulary: int | None,
    batch: int | None,
) -> Sizes:
    """The same model smaller or larger; heads keep their width, and the batch is judged too if all of the model is."""
    config = sizes.config
    changes: dict[str, int] = {}
    if width is not None:
        old, changes["width"] = config.width, width
        changes["heads"] = max(1, config.heads * width // old)
        changes["key_value_heads"] = max(1, config.key_value_heads * width // old)
        changes["hidden"] = max(8, config.hidden * width // old)
    for name, value in (("layers", layers), ("context", context), ("vocabulary", vocabulary)):
        if value is not None:
            changes[name] = value
    config = dataclasses.replace(config, **changes)
    size = batch or sizes.batch
    judged_layers = config.layers if sizes.judges_itself else min(sizes.judged_layers, config.layers)
    return Sizes(config, size, judged_layers, size if sizes.judges_itself else min(sizes.judged_batch, size))
