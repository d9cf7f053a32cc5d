"""Conversations as rows of tokens and labels: labels are the tokens of answers, and -100 elsewhere."""

import logging
from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import numpy.typing as npt

from pcp.training.data.byte_pairs import BytePairTokenizer
from pcp.training.data.chat.messages import messages_of
from pcp.training.data.chat.template import ChatTemplate, Piece
from pcp.training.data.kinds.records import Record
from pcp.training.data.samples import TooFewSamples
from pcp.training.data.tokenizer import Tokenizer

log = logging.getLogger("pcp.training.data.chat.conversations")

IGNORED = -100
"""The label of a token that is not learnt, as PyTorch has it."""

Rows = npt.NDArray[np.int32]


def encoded_conversations(
    records: Iterable[tuple[str, Record]],
    field: str,
    template: ChatTemplate,
    tokenizer: Tokenizer,
    length: int,
) -> tuple[Rows, Rows]:
    """Rows for a loss that moves its labels by one token itself; `moved` makes them those of one that does not.

    A conversation of more than `length` tokens is cut after these; one without an answer in them is left out. Shorter ones are
    filled up with token 0, whose label is -100.

    Arguments:
        records: and where each stands.
        field: of the messages; empty for one of the usual names.
        length: tokens in a row.

    Returns:
        Tokens and labels, both i32[conversations, length].

    Raises:
        RowUnreadable: a record holds no messages with an answer.
        ChatTemplateUnreadable: the template refuses them.
        TooFewSamples: no conversation has an answer within the length.
    """
    tokens, labels, cut, left_out = [], [], 0, 0
    for row, answers in _rows(records, field, template, tokenizer):
        cut += row.size > length
        row, answers = row[:length], answers[:length]
        if not answers[1:].any():  # the first token of a row is nobody's next
            left_out += 1
            continue
        tokens.append(np.pad(row, (0, length - row.size)))
        labels.append(
            np.pad(np.where(answers, row, IGNORED), (0, length - row.size), constant_values=IGNORED)
        )
    if cut:
        log.warning(
            "%d of %d conversations are longer than %d tokens, and cut there; %d have no answer before, and are left out",
            cut,
            len(tokens) + left_out,
            length,
            left_out,
        )
    if not tokens:
        raise TooFewSamples(
            f"no conversation has an answer within {length} tokens; give a larger context, or shorter conversations"
        )
    return np.stack(tokens), np.stack(labels)


def moved(tokens: Rows, labels: Rows) -> tuple[Rows, Rows]:
    """The same for a loss that takes as the target of each place the token after it."""
    last = np.full((len(labels), 1), IGNORED, np.int32)
    return tokens, np.concatenate([labels[:, 1:], last], axis=1)


def _rows(
    records: Iterable[tuple[str, Record]], field: str, template: ChatTemplate, tokenizer: Tokenizer
) -> Iterator[tuple[Rows, npt.NDArray[np.bool_]]]:
    for place, record in records:
        for pieces in template.pieces(messages_of(record, field, place)):
            yield encode_pieces(pieces, tokenizer)


def encode_pieces(pieces: Sequence[Piece], tokenizer: Tokenizer) -> tuple[Rows, npt.NDArray[np.bool_]]:
    """The tokens of a conversation, and which of them end in an answer."""
    text = "".join(piece.text for piece in pieces)
    if isinstance(tokenizer, BytePairTokenizer):
        tokens, places = tokenizer.encode_with_places(text)
    else:
        each = [tokenizer.encode(character).size for character in text]
        tokens, places = tokenizer.encode(text), np.repeat(np.arange(len(text)), each)
    answers = np.repeat([piece.is_answer for piece in pieces], [len(piece.text) for piece in pieces])
    return tokens.astype(np.int32), answers[np.minimum(places, max(len(text), 1) - 1)]
