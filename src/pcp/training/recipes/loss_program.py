"""A loss that came as a file: which of its arguments are parameters, which are the batch, and what the first parameters are.

Roles say it where PCP or an importer wrote the program. A `.mlir` file from elsewhere has none: there, the arguments for which
weights are given are the parameters, and the others are the batch.
"""

import io
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import Argument, Program, Role
from pcp.ir.program import load
from pcp.ir.program_file import write_atomically
from pcp.ir.tree import LEAF, flatten
from pcp.ops.elementwise import convert
from pcp.symbolic.program import SymbolicProgram
from pcp.tensor import Tensor, as_tensor
from pcp.tracing import call, spec, specs_of, trace
from pcp.training.data.array_file import read_array_file
from pcp.training.data.safetensors_file import write_arrays
from pcp.training.recipes.random_weights import RANDOM, random_weights
from pcp.training.recipes.shifted_labels import moves_labels

Array = np.ndarray[Any, Any]

_LISTED = 6

KEY = "random_key"
"""The name of the last argument of a loss that draws random numbers."""


class UnreadableLoss(PCPError):
    """The file of a loss is not there, or cannot be read."""


class NotATrainableLoss(PCPError):
    """A program that is no loss of parameters and a batch."""


class MissingWeights(PCPError):
    """A loss is to be trained, and nothing says what its parameters begin with."""


class WrongWeights(PCPError):
    """Weights that are not those of the loss: others, or of other shapes or element types."""


@dataclass(frozen=True)
class LossProgram:
    """A loss and its first parameters.

    Arguments:
        program: `(parameters, *arrays of the batch) -> scalar`, or a pair of a scalar and a dictionary of metrics.
        parameters: nested as the program takes them.
        weight_names: of the parameters, in the file that they came from, in the order of their nesting.
        batch: the arguments that are the batch, in order, as the loss's own file names and types them.
        positions: of these among all arguments.
        constants: arrays that were given with the weights and are not trained, such as buffers of a PyTorch module.
        held: arrays that are the second argument, nested, and stay as they are; None where there are none.
        buffers: arrays that are the second argument, nested, whose successors the loss returns before itself; None where there
            are none.
        buffer_names: of these, in the file that they came from.
        draws: whether the last argument is a key, from which the loss draws random numbers, and no part of the batch.
        evaluation: the loss that validation runs, without a key; None where it is the same.
    """

    program: Program
    parameters: Any
    weight_names: tuple[str, ...]
    batch: tuple[Argument, ...]
    positions: tuple[int, ...]
    constants: Mapping[str, Array]
    held: Any = None
    buffers: Any = None
    buffer_names: tuple[str, ...] = ()
    draws: bool = False
    evaluation: Program | None = None

    @property
    def leading(self) -> int:
        """How many arguments stand before those that are the batch."""
        return len(self.program.arguments) - len(self.batch) - self.draws

    @property
    def batch_size(self) -> int:
        """Samples in a batch: the first axis that all arrays of the batch share."""
        return self.batch[0].spec.shape[0]

    @property
    def context(self) -> int | None:
        """Tokens in a window where the batch is tokens and targets; None where it is something else."""
        return self.batch[0].spec.shape[1] if _is_text(self.batch) else None

    def describe_batch(self) -> str:
        """The arguments that are the batch, for messages."""
        return _listed(self.batch)

    def write_weights(self, path: Path, parameters: Any, buffers: Any = None) -> None:
        """Write nested parameters and buffers, and the constants, to a safetensors file under the names of those given."""
        leaves = map(np.asarray, flatten(parameters)[0] + flatten(buffers)[0])
        file = io.BytesIO()
        names = self.weight_names + (() if buffers is None else self.buffer_names)
        write_arrays(file, dict(self.constants) | dict(zip(names, leaves, strict=True)))
        write_atomically(path, file.getbuffer())


def read_loss(path: Path, weights: Path | None, tokens: bool = False, seed: int = 0) -> LossProgram:
    """Read a loss and its weights, and find out what is what.

    Arguments:
        path: a file that Program.save wrote, MLIR text or bytecode, or a portable artifact.
        weights: a safetensors or `.npz` file whose arrays have the names of arguments; or `Path("random")`, which draws them
            as `random_weights` says.
        tokens: whether the batch is to be tokens and targets in i32, whatever integers the loss takes them as. A loss that
            moves its labels by one token itself is then given the tokens as labels.
        seed: of random weights.

    Raises:
        UnreadableLoss: there is no such file.
        NotAProgram, CorruptProgram, NewerProgram, InvalidProgram: it holds no program.
        NotATrainableLoss: it holds a program that is no loss.
        MissingWeights: `weights` is None.
        UnreadableFile, WrongWeights: the weights cannot be read, or do not fit.
    """
    try:
        program = load(path)
    except OSError as error:
        raise UnreadableLoss(f"cannot read the loss {path}: {error.strerror or error}") from None
    if isinstance(program, SymbolicProgram):
        sizes = ", ".join(f"{name}=8" for name in program.symbols)
        raise NotATrainableLoss(
            f"{path} is a loss whose sizes {', '.join(program.symbols)} are open; a run has one size of its batches: save "
            f"program.at({sizes}), with numbers of your own, and train that"
        )
    _check_result(program, path)
    if weights is None:
        raise MissingWeights(
            f"{path} is trained from weights that a file holds: save them under the names of the arguments, with "
            f"safetensors.numpy.save_file(arrays, 'weights.safetensors'), and give --weights weights.safetensors; "
            f"or draw them, with --weights {RANDOM}. "
            f"The program takes {_listed(program.arguments)}"
        )
    arrays = _random(program, path, seed) if weights == Path(RANDOM) else read_array_file(weights)
    keys = _weights_by_argument(program, arrays, path, weights)
    trained = _trained(program, keys)
    for index, key in keys.items():
        _check_weight(program.arguments[index], key, arrays[key], weights, index in trained)
    draws = draws_numbers(program)
    positions = tuple(index for index in range(len(program.arguments) - draws) if index not in keys)
    batch = tuple(program.arguments[index] for index in positions)
    _check_batch(batch, path)
    chosen = {index: (keys[index], arrays[keys[index]]) for index in trained}
    constants = {index: (key, arrays[key]) for index, key in keys.items() if index not in trained}
    if any(program.arguments[index].role is Role.state for index in constants):
        return _changing(program, path, chosen, constants, batch, "i32" if tokens else None)
    moved = tokens and _is_text(batch) and _moves_labels(program, {**chosen, **constants}, positions)
    return _arranged(program, chosen, constants, batch, positions, "i32" if tokens else None, moved, draws)


def draws_numbers(program: Program) -> bool:
    """Whether the last argument of a loss is a key of random numbers."""
    last = program.arguments[-1] if program.arguments else None
    return (
        last is not None
        and last.role is Role.input
        and (last.name, last.spec) == (KEY, spec((2,), "u32").spec)
    )


def _is_text(batch: tuple[Argument, ...]) -> bool:
    """Whether a batch is tokens and targets: two arrays of integers of one shape (batch, context)."""
    specs = [entry.spec for entry in batch]
    integers = len(specs) == 2 and all(len(s.shape) == 2 and s.dtype.is_integer for s in specs)
    return integers and specs[0].shape == specs[1].shape


def _moves_labels(
    program: Program, arrays: Mapping[int, tuple[str, Array]], positions: tuple[int, ...]
) -> bool:
    values = [arrays[index][1] if index in arrays else None for index in range(len(program.arguments))]
    return moves_labels(program, values, *positions)


def _changing(
    program: Program,
    path: Path,
    weights: Mapping[int, tuple[str, Array]],
    buffers: Mapping[int, tuple[str, Array]],
    batch: tuple[Argument, ...],
    dtype: str | None,
) -> LossProgram:
    """A loss `(parameters, buffers, *batch)` that returns `(buffers, loss)`."""
    first, second, *others = program.argument_tree.children
    count = first.leaf_count
    in_order = [*weights, *buffers] == list(range(count + second.leaf_count)) and len(weights) == count
    if not in_order or not all(child == LEAF for child in others):
        raise NotATrainableLoss(
            f"{path} takes {program.argument_tree}, with a state in it; expected parameters, nested, then the state, nested, "
            "then one array of the batch after another"
        )
    nested = first.unflatten(a for _, a in weights.values()), second.unflatten(a for _, a in buffers.values())
    taken = [spec(entry.spec.shape, dtype or entry.spec.dtype) for entry in batch]

    def loss(parameters: Any, held: Any, *arrays: Tensor) -> Any:
        converted = [convert(x, entry.spec.dtype) for x, entry in zip(arrays, batch, strict=True)]
        return call(program, parameters, held, *converted)

    if any(own.spec != entry.spec for own, entry in zip(taken, batch, strict=True)):
        program = trace(loss, specs_of(nested[0]), specs_of(nested[1], Role.state), *taken)
    positions = tuple(range(len(program.arguments) - len(batch), len(program.arguments)))
    names = [tuple(name for name, _ in group.values()) for group in (weights, buffers)]
    return LossProgram(program, nested[0], names[0], batch, positions, {}, None, nested[1], names[1])


def _check_result(program: Program, path: Path) -> None:
    _check_state(program, path)
    tree, results = program.result_tree, program.results
    if any(entry.role is Role.state for entry in program.arguments) and len(tree.children) == 2:
        results = results[tree.children[0].leaf_count :]  # the successors of the state stand first
        tree = tree.children[1]
    is_pair = (
        tree.kind == "tuple"
        and len(tree.children) == 2
        and (tree.children[0], tree.children[1].kind) == (LEAF, "dict")
    )
    if not (tree == LEAF or is_pair) or results[0].spec.shape != () or not results[0].spec.dtype.is_float:
        returned = ", ".join(str(entry.spec) for entry in results[:_LISTED]) or "nothing"
        raise NotATrainableLoss(
            f"{path} is not a loss: it returns {returned}; a loss returns one floating-point scalar, or a pair of one and a "
            "dictionary of metrics"
        )


def _check_state(program: Program, path: Path) -> None:
    """Refuse a state that is not the second argument, all of it."""
    roles = {entry.name: entry.role for entry in program.arguments}
    states = [name for name, role in roles.items() if role is Role.state]
    counts = [child.leaf_count for child in program.argument_tree.children[:2]]
    second = list(roles)[counts[0] : sum(counts)] if len(counts) == 2 else []
    if states and states != second:
        raise NotATrainableLoss(
            f"{path} is not a loss: its argument {states[0]} is a state that it also returns; expected as such is only the "
            "second argument, after the parameters, as running means are. Export the model in evaluation mode, in which it "
            "updates nothing itself, or give what changes as the second argument"
        )


def _random(program: Program, path: Path, seed: int) -> dict[str, Array]:
    """Random weights under the names of their arguments, where the program shows which these are."""
    entries, marked = program.arguments, _marked(program)
    first = program.argument_tree.children[0] if entries else LEAF
    indices = marked or [index for index, entry in enumerate(entries) if entry.spec.dtype.is_float]
    batch = tuple(entry for index, entry in enumerate(entries) if index not in indices)
    if not marked and not _is_text(batch):
        raise WrongWeights(
            f"{path} does not say which of its arguments are weights, so none can be drawn: --weights {RANDOM} needs a loss of "
            "floating-point weights and two arrays of integers of shape (batch, context), tokens and targets; this one takes "
            f"{_listed(entries)}. Give --weights a file with an array for each weight"
        )
    constants = [entries[index] for index in marked if first != LEAF and index >= first.leaf_count]
    if constants:
        raise WrongWeights(
            f"{path} takes constants beside its weights, which cannot be drawn: {_listed(constants)}; give --weights a file "
            "with an array for each weight and each constant"
        )
    drawn = random_weights(program, indices, seed)
    return {entries[index].name if marked else f"arg{index}": array for index, array in drawn.items()}


def _marked(program: Program) -> list[int]:
    """The arguments that roles say are weights."""
    entries = program.arguments
    marked = [index for index, entry in enumerate(entries) if entry.role is not Role.input]
    if len(marked) < len(entries):
        return marked
    # Traced with arrays throughout: roles say nothing.
    first = program.argument_tree.children[0] if entries else LEAF
    return [] if first == LEAF else list(range(first.leaf_count))


def _weights_by_argument(
    program: Program, arrays: Mapping[str, Array], path: Path, weights: Path
) -> dict[int, str]:
    """The name among `arrays` of every argument that is a parameter."""
    entries = program.arguments
    marked = _marked(program)
    short = [name for child in program.argument_tree.children for name in child.names()]
    keys: dict[int, str] = {}
    for index in marked or range(len(entries)):
        names = [entries[index].name, *short[index : index + 1], f"arg{index}"]
        key = next((name for name in names if name in arrays and name not in keys.values()), None)
        if key is not None:
            keys[index] = key
    missing = [entries[index] for index in marked if index not in keys]
    unexpected = [name for name in arrays if name not in keys.values()]
    if not missing and not unexpected and keys:
        return keys
    said = [f"it lacks {_listed(missing)}"] if missing else []
    said += [f"it has {_some(unexpected)}, which the program does not take"] if unexpected else []
    said += [f"the program takes {_listed(entries)}"] if not marked else []
    raise WrongWeights(f"{weights} does not hold the weights of {path}: {'; '.join(said) or 'it is empty'}")


def _trained(program: Program, keys: Mapping[int, str]) -> list[int]:
    """The arguments that are parameters, among those for which there are arrays."""
    first = program.argument_tree.children[0]
    front = range(first.leaf_count)
    # Nested parameters stand in front, as in `pcp.training_step`; what follows them, such as buffers, is constant.
    return list(front) if first != LEAF and all(index in keys for index in front) else list(keys)


def _check_weight(entry: Argument, key: str, array: Array, weights: Path, is_trained: bool) -> None:
    if is_trained and not entry.spec.dtype.is_float:
        raise WrongWeights(
            f"{weights} holds {key!r}, but the argument {entry.name} is {entry.spec}, and only floating-point arguments can "
            "be trained; leave it out of the weights, or make it a constant of the program"
        )
    wanted = (entry.spec.shape, entry.spec.dtype.numpy)
    if (array.shape, array.dtype) != wanted:
        raise WrongWeights(
            f"{weights} holds {key!r} as {array.dtype}{list(array.shape)}; the program takes "
            f"{wanted[1]}{list(wanted[0])}"
        )


def _check_batch(batch: tuple[Argument, ...], path: Path) -> None:
    sizes = {entry.spec.shape[0] if entry.spec.shape else None for entry in batch}
    if len(sizes) != 1 or sizes & {None, 0}:
        raise NotATrainableLoss(
            f"{path} takes no batch: every argument that is not a parameter must have the samples along its first "
            f"axis, the same number in each; found {_listed(batch)}"
        )


def _arranged(
    program: Program,
    weights: Mapping[int, tuple[str, Array]],
    constants: Mapping[int, tuple[str, Array]],
    batch: tuple[Argument, ...],
    positions: tuple[int, ...],
    dtype: str | None,
    tokens_as_labels: bool,
    draws: bool,
) -> LossProgram:
    """The loss as `(parameters, *batch)`: as it is where that is how it is nested, so that nothing about it changes."""
    first, *others = program.argument_tree.children
    in_front = first != LEAF and sorted(weights) == list(range(first.leaf_count))
    if in_front:
        parameters = first.unflatten(array for _, array in weights.values())
        names = tuple(name for name, _ in weights.values())
    else:
        parameters = dict(weights.values())
        names = tuple(sorted(parameters))
    taken = [spec(entry.spec.shape, dtype or entry.spec.dtype) for entry in batch]
    same = all(own.spec == entry.spec for own, entry in zip(taken, batch, strict=True))
    if (
        in_front
        and same
        and not constants
        and not tokens_as_labels
        and all(child == LEAF for child in others)
    ):
        return LossProgram(program, parameters, names, batch, positions, {}, draws=draws)
    places = list(weights) if in_front else sorted(weights, key=lambda index: weights[index][0])

    def loss(weights: Any, *arrays: Tensor) -> Any:
        leaves = dict(zip(places, flatten(weights)[0], strict=True))
        leaves |= {index: as_tensor(array) for index, (_, array) in constants.items()}
        drawn = dict(enumerate(arrays[len(batch) :], len(program.arguments) - draws))
        taken = arrays[:1] * 2 if tokens_as_labels else arrays[: len(batch)]
        leaves |= {
            i: convert(x, e.spec.dtype) for i, x, e in zip(positions, taken, batch, strict=True)
        } | drawn
        return call(program, *program.argument_tree.unflatten(leaves[index] for index in sorted(leaves)))

    traced = trace(loss, parameters, *taken, *[spec((2,), "u32")] * draws)
    return LossProgram(traced, parameters, names, batch, positions, dict(constants.values()), draws=draws)


def _listed(entries: Any) -> str:
    return _some([f"{entry.name}: {entry.spec}" for entry in entries])


def _some(names: list[str]) -> str:
    rest = len(names) - _LISTED
    return (", ".join(names[:_LISTED]) or "nothing") + (f" and {rest} more" if rest > 0 else "")
