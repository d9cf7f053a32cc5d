"""Whether a loss moves its labels by one token itself, as the models of transformers do, and so wants the tokens as labels.

A loss of tokens and targets takes the next token of each place as its target. One that moves its labels inside would be trained
on the token after the next. Two things tell such a loss: nothing that it computes has the first label in it, which the
operations show; and the last token changes nothing, which two runs show. A loss that leaves out the first place of both has
only the first of these.
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from pcp.ir import Program
from pcp.ir.bindings import Value, ir
from pcp.ir.toolkit.attributes import integer_of, integers_of
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.planning import plan

LOG = logging.getLogger("pcp.training.recipes.shifted_labels")

Places = np.ndarray[Any, Any]
_ELSEWHERE = -1
_SEED = 4


def moves_labels(program: Program, arguments: Sequence[Any], tokens: int, labels: int) -> bool:
    """Whether a loss of tokens and labels moves the labels by one itself.

    Arguments:
        arguments: an array for each of its arguments in order; those of tokens and labels may be None.
        tokens, labels: which arguments these are, of shape (batch, context).
    """
    key = (program.digest, tokens, labels)
    if key not in _known:
        _known[key] = not _first_label_counts(program, labels) and not _last_token_counts(
            program, arguments, tokens, labels
        )
        if _known[key]:
            LOG.warning(
                "this loss moves its labels by one token itself: it is given the tokens as labels, so that it learns the next "
                "token of each but the last"
            )
    return _known[key]


_known: dict[tuple[str, int, int], bool] = {}
"""A loss is read several times before a run begins, and compiling it takes long."""


def leaves_out(
    program: Program, weights: Sequence[Any], tokens: int, labels: int, ignored: int = -100
) -> bool:
    """Whether a causal loss leaves out labels of a number, as PyTorch's does: then later tokens so labelled change nothing.

    Arguments:
        weights: an array for each of its arguments before the tokens.
        tokens, labels: which arguments these are, of shape (batch, context).
    """
    shape = program.arguments[tokens].spec.shape
    half = max(1, shape[1] // 2)
    text = np.random.default_rng(_SEED).integers(0, 2, shape)
    other, learnt = text.copy(), text.copy()
    text[:, half:], other[:, half:] = 0, 1
    learnt[:, half - (shape[1] > 2) :] = ignored
    first, second = _losses(program, [*weights, None, None], tokens, labels, (text, other), learnt)
    return bool(np.isfinite(first)) and bool(np.isclose(first, second, rtol=1e-6, atol=0))


def _losses(
    program: Program,
    arguments: Sequence[Any],
    tokens: int,
    labels: int,
    texts: Sequence[Places],
    learnt: Places,
) -> list[float]:
    """The loss of each of some texts with the same labels."""
    run = plan(program).run
    losses = []
    for text in texts:
        leaves = list(arguments)
        leaves[tokens] = text.astype(program.arguments[tokens].spec.dtype.numpy)
        leaves[labels] = learnt.astype(program.arguments[labels].spec.dtype.numpy)
        result = run(*program.argument_tree.unflatten(leaves))
        losses.append(float(np.asarray(result[0] if isinstance(result, tuple) else result)))
    return losses


def _last_token_counts(program: Program, arguments: Sequence[Any], tokens: int, labels: int) -> bool:
    """Whether the loss is another where the last token of each row is."""
    text = np.random.default_rng(_SEED).integers(0, 2, program.arguments[tokens].spec.shape)
    other = text.copy()
    other[:, -1] = 1 - other[:, -1]
    first, second = _losses(program, arguments, tokens, labels, (text, other), text)
    return first != second


def _first_label_counts(program: Program, labels: int) -> bool:
    """Whether an operation that computes something, and does not only move elements, takes a first label of a row."""
    module = program.module()
    inline_composites(module)
    inline_calls(module)
    block = entry_block(module)
    erase_dead(block)
    argument = block.arguments[labels]
    shape = spec_of(argument.type).shape
    places: dict[Value, Places] = {argument: np.broadcast_to(np.arange(shape[1]), shape)}
    for view in block.operations:
        op = view.operation
        if not any(value in places for value in _taken(op)):
            continue
        moved = _MOVED.get(op.name.removeprefix("stablehlo."))
        if moved is not None:
            places[op.results[0]] = moved(op, [_places(places, value) for value in op.operands])
        elif any((places[value] == 0).any() for value in _taken(op) if value in places):
            return True
    return False


def _taken(op: ir.Operation) -> Iterator[Value]:
    """What an operation and those in its regions take."""
    yield from op.operands
    for region in op.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield from _taken(inner.operation)


def _places(known: dict[Value, Places], value: Value) -> Places:
    return known[value] if value in known else np.full(spec_of(value.type).shape, _ELSEWHERE)


def _sliced(op: ir.Operation, operands: list[Places]) -> Places:
    bounds = (integers_of(op.attributes[name]) for name in ("start_indices", "limit_indices", "strides"))
    return operands[0][tuple(slice(*each) for each in zip(*bounds, strict=True))]


def _padded(op: ir.Operation, operands: list[Places]) -> Places:
    names = ("edge_padding_low", "edge_padding_high", "interior_padding")
    low, high, inner = (integers_of(op.attributes[name]) for name in names)
    sizes = [(size - 1) * (gap + 1) + 1 for size, gap in zip(operands[0].shape, inner, strict=True)]
    wide = np.full(sizes, _ELSEWHERE)
    wide[tuple(slice(None, None, gap + 1) for gap in inner)] = operands[0]
    kept = wide[tuple(slice(max(-a, 0), n - max(-b, 0)) for a, b, n in zip(low, high, sizes, strict=True))]
    widths = [(max(a, 0), max(b, 0)) for a, b in zip(low, high, strict=True)]
    return np.pad(kept, widths, constant_values=_ELSEWHERE)


def _broadcast(op: ir.Operation, operands: list[Places]) -> Places:
    shape, axes = spec_of(op.results[0].type).shape, integers_of(op.attributes["broadcast_dimensions"])
    sizes = [operands[0].shape[axes.index(axis)] if axis in axes else 1 for axis in range(len(shape))]
    order = sorted(range(len(axes)), key=axes.__getitem__)
    return np.broadcast_to(operands[0].transpose(order).reshape(sizes), shape)


_MOVED: dict[str, Callable[[ir.Operation, list[Places]], Places]] = {
    "broadcast_in_dim": _broadcast,
    "concatenate": lambda op, operands: np.concatenate(operands, integer_of(op.attributes["dimension"])),
    "convert": lambda _, operands: operands[0],
    "pad": _padded,
    "reshape": lambda op, operands: operands[0].reshape(spec_of(op.results[0].type).shape),
    "slice": _sliced,
    "transpose": lambda op, operands: operands[0].transpose(integers_of(op.attributes["permutation"])),
}
"""Operations that only move elements, as done with the places that elements have in their rows."""
