"""The text of a corpus, whole in memory, for programs that train without a run's folder."""

from pcp.training.data.kinds.source import DEFAULT_CORPUS, find_source


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
    return "\n".join("".join(pieces) for pieces in source.texts(source.parts + source.validation))
