"""The text of a corpus, whole in memory, for programs that train without a run's folder."""

from pcp.training.data.kinds.kind import Gives, UnknownKind
from pcp.training.data.kinds.source import DEFAULT_CORPUS, find_source
from pcp.training.data.kinds.table import accepted


def load_text(data: str = DEFAULT_CORPUS, field: str = "") -> str:
    """The characters of a corpus; documents have a line break between them.

    Arguments:
        data: as `pcp train --data` takes it.
        field: of records: the one that holds their text.

    Raises:
        MissingCorpus, EmptyCorpus, NotAFile, UnknownKind, MixedKinds: see `find_source`.
        CorpusNotText, RowUnreadable, FieldMissing: see `Source.texts`.
    """
    source = find_source(data, field)
    if source.gives not in (Gives.text, Gives.records):
        name = source.parts[0].kind.name
        raise UnknownKind(
            f"{data} is {name}, which is no text; give a text, or records with a field\n{accepted()}"
        )
    return "\n".join("".join(pieces) for pieces in source.texts(source.parts + source.validation))
