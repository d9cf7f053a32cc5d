"""The program of a chunk, from that of whole texts."""

from collections.abc import Sequence
from typing import Any

from pcp.inference.by_program.axes import NotADecoder
from pcp.inference.by_program.chunking import Chunking, Places
from pcp.inference.by_program.rules import RULES
from pcp.ir import Program, TensorSpec
from pcp.ir.toolkit.functions import main_of
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.regions import block_operations, returned_by
from pcp.ops.movement import reshape
from pcp.tensor import Tensor, current_builder
from pcp.tracing import spec, trace


def chunk_program(program: Program, chunk: int, held: Sequence[TensorSpec], queries: int = 0) -> Program:
    """The Program `(parameters, tokens, start, held) -> (kept, scores)` of a chunk of one text.

    Arguments:
        program: `(weights.., tokens (1, length)) -> scores (1, length, vocabulary)`, or with buffers behind the weights.
        chunk: how many tokens.
        held, queries: what is held of a text, each (length, ...), and where queries stand, as `kept_of` says.

    Returns:
        Tokens are (1, chunk), `start` is the place of the first. `kept` is the chunk's part of what is held, each (chunk, ...);
        scores are (1, chunk, vocabulary).

    Raises:
        NotADecoder: the scores of a place are no function of the tokens up to it, in a form that is understood.
    """
    return _traced(program, chunk, held, queries)


def kept_of(program: Program) -> tuple[list[TensorSpec], int]:
    """What has to be held of a text that a program scores, each (length, ...), and the side of products where queries stand.

    Raises:
        NotADecoder: as `chunk_program`.
    """
    length = program.arguments[-1].spec.shape[1]
    queries = 0
    try:
        made = _traced(program, 1, None, queries)
    except NotADecoder as left:
        queries = 1
        try:
            made = _traced(program, 1, None, queries)
        except NotADecoder:
            raise left from None
    kept = [TensorSpec((length, *each.spec.shape[1:]), each.spec.dtype) for each in made.results[:-1]]
    return kept, queries


def _traced(program: Program, chunk: int, held: Sequence[TensorSpec] | None, queries: int) -> Program:
    length = program.arguments[-1].spec.shape[1]
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    (block,) = main_of(module).regions[0].blocks

    def read(parameters: list[Tensor], tokens: Tensor, start: Tensor, kept: Any) -> Any:
        walk = Chunking(
            current_builder(), length, start, chunk, None if held is None else kept, RULES, queries
        )
        for argument, tensor in zip(block.arguments, (*parameters, tokens), strict=True):
            walk.known[argument] = tensor.value
        walk.places[block.arguments[len(parameters)]] = Places(1)
        for op in block_operations(block):
            walk.push(op)
        (scores,) = returned_by(block)
        if scores not in walk.places or walk.places[scores].others is not None:
            raise NotADecoder(
                "the program's result has no scores for each place, of shape (1, length, vocabulary); import the model with "
                'output="logits", or what its own name for the scores is'
            )
        return walk.kept, reshape(Tensor(walk.known[scores], current_builder()), (1, chunk, -1))

    entries = program.arguments
    return trace(
        read,
        [spec(entry.spec.shape, entry.spec.dtype, "weight") for entry in entries[:-1]],
        spec((1, chunk), entries[-1].spec.dtype),
        spec((), "i32"),
        [spec(each.shape, each.dtype) for each in held or ()],
    )
