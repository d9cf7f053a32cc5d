"""A model of PyTorch that makes text: of a known family by its weights, any other by its program."""

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.foreign import on_host
from pcp.importers.torch.exporting import torch_package
from pcp.importers.torch.imported import from_torch
from pcp.inference.by_program.decoder import ARRAYS, ProgramDecoder
from pcp.inference.habits import Habits
from pcp.inference.request import Request
from pcp.inference.sampling import Sampling
from pcp.inference.scheduler import power_of_two
from pcp.inference.text_model import TextModel
from pcp.ir import Program
from pcp.ir.tree import flatten
from pcp.models.families import FAMILIES, config_of
from pcp.models.names import from_transformers
from pcp.tracing import spec

LENGTH = 512
"""Tokens that are seen of a model by its program, unless it is told otherwise."""
SHORTEST = 32
_CLASSES = ("ForCausalLM", "LMHeadModel")
_CLOSE = 0.02
"""How much logarithms of probabilities may differ from PyTorch's, in float32; in types of 16 bits ten times that."""


class DiffersFromTorch(PCPError):
    """A model whose tokens, read in chunks, have other scores than PyTorch computes for the whole text."""


def text_module(module: Any, length: int = LENGTH, device: str | None = None) -> TextModel:
    """What makes texts as a module of PyTorch does, in the mode of evaluation; nothing of it is changed.

    A model of transformers of a family in `pcp.models.families` is read by it, with its weights as they lie in memory. Any
    other is imported as a program of `length` tokens, rewritten to read a text in chunks and to keep what later tokens look at,
    and compared with PyTorch on a short text.

    Arguments:
        module: takes tokens (batch, length), and gives scores (batch, length, vocabulary) or those of the last place; or a
            tuple that begins with them, or an object whose `logits` they are.
        length: most tokens of a text with its answer, where it is not of a known family.
        device: where it is compared with PyTorch.

    Raises:
        NotADecoder: the scores of a place depend on more than the tokens up to it, or in a way that is not understood.
        DiffersFromTorch: what is read in chunks has other scores than PyTorch's.
        PCPError: it cannot be imported; see `from_torch`.
    """
    settings = _settings(module)
    habits = _habits(module)
    family = str(settings.get("model_type"))
    if family in FAMILIES and type(module).__name__.endswith(_CLASSES):
        config = config_of(settings, type(module).__name__)
        tensors = {name: on_host(tensor) for name, tensor in module.state_dict().items()}
        return TextModel(from_transformers(tensors, config, None), config, None, habits)
    return _by_program(module, length, habits, device)


def _by_program(module: Any, length: int, habits: Habits, device: str | None) -> TextModel:
    tokens = spec((1, length), "i32")
    named = {"input_ids": tokens} if hasattr(module, "config") else {}
    with _evaluating(module):
        imported = from_torch(module, *([] if named else [tokens]), keywords=named, output=_scores)
    assert isinstance(imported.program, Program)
    held = (imported.weights, imported.buffers) if imported.buffers else (imported.weights,)
    model = TextModel({ARRAYS: flatten(held)[0]}, ProgramDecoder.of(imported.program), None, habits)
    _compare(module, model, device)
    return model


def _compare(module: Any, model: TextModel, device: str | None) -> None:
    """Raises DiffersFromTorch if a short text has other scores than PyTorch gives the whole of it."""
    torch = torch_package()
    prompt = np.random.default_rng(0).integers(0, model.config.vocabulary, 5).tolist()
    with model.engine(device, rows=1) as engine:
        stream = engine.submit(Request(prompt, 3, Sampling(0), logprobs=5, ignore_end=True))
        pieces = list(stream)
    if stream.error is not None:
        raise stream.error
    text = [*prompt, *(piece.token for piece in pieces if piece.token is not None)]
    home = next((each.device for each in module.parameters()), None)
    for seen, piece in enumerate(pieces, len(prompt)):
        with torch.no_grad(), _evaluating(module):
            # Of the whole text, where the module scores all of it: what comes later must change nothing.
            of_all = _scores(module(torch.tensor([text], device=home)))
            told = of_all.reshape(-1, of_all.shape[-1])
            if len(told) == 1:
                told = _scores(module(torch.tensor([text[:seen]], device=home))).reshape(1, -1)
            scores = told[min(seen, len(told)) - 1]
        close = _CLOSE * (1 if scores.dtype.itemsize > 2 else 10)
        wanted = torch.log_softmax(scores.double(), -1).cpu().numpy()
        off = max(abs(wanted[token] - found) for token, found in piece.top)
        if not off <= close:
            raise DiffersFromTorch(
                f"the logarithm of a token's probability is {off:.3g} from PyTorch's behind {seen} tokens; "
                f"expected at most {close:g}. Scores of such a model depend on tokens that come later, or on what a program of "
                "its whole text does not hold; continue texts in PyTorch"
            )


def _scores(returned: Any) -> Any:
    """The scores in what a module returns."""
    if isinstance(returned, Mapping):
        returned = returned["logits"] if "logits" in returned else next(iter(returned.values()))
    elif hasattr(returned, "logits"):
        returned = returned.logits
    return returned[0] if isinstance(returned, tuple | list) else returned


@contextlib.contextmanager
def _evaluating(module: Any) -> Iterator[None]:
    """A module in the mode of evaluation; after it, all that is in it is in the mode it was in."""
    modes = [(each, each.training) for each in module.modules()]
    module.eval()
    try:
        yield
    finally:
        for each, mode in modes:
            each.training = mode


def _settings(module: Any) -> dict[str, Any]:
    config: Any = getattr(module, "config", None)
    return dict(config.to_dict()) if hasattr(config, "to_dict") else {}


def _habits(module: Any) -> Habits:
    """Which tokens end an answer, as the module's generation_config or config say."""
    for kind in ("generation_config", "config"):
        found = getattr(getattr(module, kind, None), "eos_token_id", None)
        ends = tuple(
            each for each in (found if isinstance(found, list) else [found]) if isinstance(each, int)
        )
        if ends:
            return Habits(ends)
    return Habits()


def length_for(module: Any, tokens: int) -> int:
    """The length of a program that is long enough for a text of so many tokens, or as long as the model allows."""
    settings = _settings(module)
    most = [
        settings[name]
        for name in ("max_position_embeddings", "n_positions", "max_seq_len")
        if settings.get(name)
    ]
    wanted = max(power_of_two(tokens), SHORTEST)
    return min(wanted, *most) if most else wanted
