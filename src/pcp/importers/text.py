"""Models that make text, by what a user names, and the texts that they make."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.foreign import is_module
from pcp.importers.gguf import is_gguf, read_gguf
from pcp.importers.transformers_folder import read_transformers_folder
from pcp.inference.request import Request, Stream
from pcp.inference.sampling import Sampling
from pcp.inference.text_model import TextModel
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.recipes.written_model import write_model
from pcp.training.run_folder import RunFolder

_EXPECTED = (
    "give the folder of a run that `pcp train` made, such as runs/gpt2-nano, or a folder with a model that "
    "transformers saved (config.json, model.safetensors, tokenizer.json), or a GGUF file"
)

_PROGRAM = "is a program, without weights and tokenizer; `pcp run` runs it on arrays"
_WEIGHTS = "holds weights only; config.json and a tokenizer must be beside them"

# The ending of a file's name -> what the file is.
_FILES = {
    ".mlir": _PROGRAM,
    ".mlirbc": _PROGRAM,
    ".pcp": _PROGRAM,
    ".safetensors": _WEIGHTS,
    ".npz": _WEIGHTS,
    ".bin": _WEIGHTS,
    ".toml": "holds the settings of a run; `pcp train --config` trains it",
}


class NoTextModel(PCPError):
    """A path at which there is no model that makes text."""


def generate(
    model: Any,
    prompts: str | Sequence[int] | Sequence[str] | Sequence[Sequence[int]],
    count: int = 300,
    sampling: Sampling | None = None,
    *,
    stop: Sequence[str] = (),
    ignore_end: bool = False,
    device: str | None = None,
    weights: str = "",
    tolerance: float | None = None,
    rows: int = 8,
    cache: str = "",
    draft: Any = None,
    guesses: int = 0,
) -> Any:
    """Continue texts with a model, many at once; each answer is what it would be alone.

    Arguments:
        model: of `open_model`, or the folder or the module of PyTorch that it would be given. A model that is kept is compiled
            once.
        prompts: a text or a list of texts; or token numbers, or a list of those.
        count: most new tokens of each. When the context is full, its last half is read again.
        sampling: how tokens are drawn; None: as the model's generation_config.json recommends, else the default.
        stop: texts that end an answer.
        ignore_end: go on behind the model's end tokens, of which the first otherwise ends an answer.
        device, weights, tolerance, cache: see `TextModel.engine`.
        rows: most texts at once.
        draft: a smaller model of the same tokens, or its folder, which guesses; answers stay the same.
        guesses: see `TextModel.engine`.

    Returns:
        What follows each prompt, in their order: a text for a text, a list of tokens for tokens, a list of them for a list.

    Raises:
        NoTextModel: there is no model that makes text.
        EmptyPrompt, InvalidSampling, TokenOutOfRange, UnknownCharacter: of a prompt, or of the settings.
        NotQuantisable, ToleranceUnreachable, InvalidTolerance: see `TextModel.engine`.
    """
    alone = isinstance(prompts, str) or (
        len(prompts) > 0 and not isinstance(prompts[0], str) and np.ndim(prompts[0]) == 0
    )
    asked: Sequence[Any] = [prompts] if alone else prompts
    opened = _opened(model, asked, count, device)
    drawing = sampling or opened.habits.drawing({})
    requests = [
        Request(opened.tokens_of(each), count, drawing, stop, ignore_end=ignore_end, slide=True)
        for each in asked
    ]
    if not requests:
        return []
    with opened.engine(
        device,
        weights,
        tolerance,
        min(rows, len(requests)),
        most_waiting=len(requests),
        guesses=guesses,
        draft=None if draft is None else _opened(draft, asked, count, device),
        cache=cache,
    ) as engine:
        streams = [engine.submit(request) for request in requests]
        answers = [
            _answer(stream, isinstance(each, str)) for stream, each in zip(streams, asked, strict=True)
        ]
    return answers[0] if alone else answers


def _opened(model: Any, asked: Sequence[Any], count: int, device: str | None) -> TextModel:
    if isinstance(model, TextModel):
        return model
    if not is_module(model):
        return open_model(Path(model))
    from pcp.importers.text_module import length_for, text_module

    longest = max((len(each) for each in asked), default=0)
    return text_module(model, length_for(model, longest + count), device)


def _answer(stream: Stream, as_text: bool) -> str | list[int]:
    pieces = list(stream)
    if stream.error is not None:
        raise stream.error.__cause__ or stream.error
    if as_text:
        return "".join(piece.text for piece in pieces)
    return [piece.token for piece in pieces if piece.token is not None]


def open_model(path: Path) -> TextModel:
    """The model of a run, of a folder that transformers wrote, or in a GGUF file.

    Raises:
        NoTextModel: there is nothing at the path, a file, or a folder of something else.
        PCPError: the model there cannot be used; see `TextModel.of_run`, `read_transformers_folder` and `read_gguf`.
    """
    if not path.exists():
        raise NoTextModel(f"there is no folder {path}; {_EXPECTED}. PCP downloads no models")
    if is_gguf(path):
        return read_gguf(path)
    if not path.is_dir():
        raise NoTextModel(f"{path} {_FILES.get(path.suffix, 'is a file')}. Instead, {_EXPECTED}")
    if not (path / "config.json").exists():
        runs = sorted(inner.parent for inner in path.glob("*/config.json"))
        hint = f". Folders in it that may hold a model: {', '.join(map(str, runs[:6]))}" if runs else ""
        raise NoTextModel(f"{path} holds no model: there is no config.json in it; {_EXPECTED}{hint}")
    if holds_transformers_model(path):
        return read_transformers_folder(path)
    run = RunFolder.open(path)
    if run.source_folder.exists():
        return read_transformers_folder(write_model(run, run.model_folder))
    return TextModel.of_run(run)
