"""A model in a folder made ready to be served: its engine, its template, its habits, the files that it was mapped from."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from pcp.errors import PCPError
from pcp.importers.gguf import is_gguf, template_of
from pcp.importers.text import open_model
from pcp.inference.request import Request, Serves
from pcp.inference.text_model import TextModel
from pcp.serving.model import ServedModel
from pcp.serving.weights_watch import WeightsWatch
from pcp.training.data.chat.template import NoChatTemplate, Written, written_in
from pcp.training.recipes.model_folder import holds_transformers_model
from pcp.training.run_folder import RunFolder


class NoTokens(PCPError):
    """A model without a tokenizer, which no text can be asked of."""


class WrongVocabulary(PCPError):
    """A tokenizer with tokens that the model has no scores for."""


@dataclass(frozen=True, slots=True)
class Settings:
    """How a model is served.

    Arguments:
        name: under which clients ask for it; empty for that of its folder.
        device, weights, tolerance, rows, cache: see `TextModel.engine`.
        prepared, guesses: see `TextModel.engine`.
        draft: the folder of a smaller model of the same tokens, which guesses; None: none does.
        chat_template: `plain`, a file with a template in Jinja, or empty for the model's own.
    """

    name: str
    device: str
    weights: str = ""
    tolerance: float | None = None
    rows: int = 8
    chat_template: str = ""
    prepared: Callable[[int, int], None] | None = None
    cache: str = ""
    draft: Path | None = None
    guesses: int = 0


def opened(path: Path, settings: Settings) -> tuple[TextModel, ServedModel]:
    """The model at a path, ready to be served.

    Raises:
        WrongVocabulary: the tokenizer is another model's.
        NoTextModel, NoTokens: there is no model that makes text.
        TemplateRefused, ChatTemplateUnreadable: its template is none.
        PCPError: it cannot be used; see `open_model` and `TextModel.engine`.
    """
    model = open_model(path)
    if model.tokenizer is None:
        raise NoTokens(
            f"{path} has no tokenizer, and a server is asked in texts; write tokenizer.json beside the weights"
        )
    tokens, scores = model.tokenizer.vocabulary_size, model.config.vocabulary
    if tokens > scores:
        raise WrongVocabulary(
            f"the tokenizer in {path} has {tokens:,} tokens, and the model knows {scores:,}: they are not of one model. Put "
            "the tokenizer beside the weights that it was trained with, or resize the model's embeddings and save it again"
        )
    template: Written | None = None
    why = ""
    try:
        template = _template(path, settings.chat_template)
    except NoChatTemplate as error:
        why = str(error)
    watch = WeightsWatch(_mapped(path))
    engine = model.engine(
        settings.device,
        settings.weights,
        settings.tolerance,
        rows=settings.rows,
        prepared=settings.prepared,
        cache=settings.cache,
        guesses=settings.guesses,
        draft=None if settings.draft is None else open_model(settings.draft),
    )
    name = settings.name or path.resolve().name
    config = model.config
    _warm(engine)
    served = ServedModel(
        name, engine, model.tokenizer, config.context, config.vocabulary, model.habits, template, why, watch
    )
    return model, served


def _warm(engine: Serves) -> None:
    """Have the programs of a first answer compiled before anybody waits for one.

    Raises:
        PCPError: the model cannot run.
    """
    stream = engine.submit(Request([0], 2, ignore_end=True))
    for _ in stream:
        pass
    if stream.error is not None:
        engine.close(drain=False)
        raise stream.error


def _template(path: Path, chosen: str) -> Written:
    if not is_gguf(path):
        return written_in(_folder_of(path), chosen)
    found = template_of(path)
    if found is None or chosen:
        found = written_in(path, chosen)
    return found


def _mapped(path: Path) -> list[Path]:
    """The files that the weights of a model may be views of."""
    if is_gguf(path):
        return [path]
    folder = _folder_of(path)
    return sorted(folder.glob("*.safetensors")) if holds_transformers_model(folder) else []


def _folder_of(path: Path) -> Path:
    """Where the tokenizer and its template lie: the folder itself, or that which a run was made of."""
    if holds_transformers_model(path):
        return path
    run = RunFolder.open(path)
    return run.model_folder if run.source_folder.exists() else path
