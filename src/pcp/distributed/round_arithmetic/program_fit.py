"""Whether the programs of a run can hand values to each other; what a Worker was sent is not trusted."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.distributed.verification import ProgramRefused
from pcp.ir import DType, Program, TensorSpec, Tree
from pcp.ir.tree import LEAF
from pcp.ir.types import dtype_of
from pcp.training.data.run_data import Shape


@dataclass(frozen=True)
class Arrays:
    """Nested arrays by their nesting, shapes and element types."""

    tree: Tree
    specs: tuple[TensorSpec, ...]

    @staticmethod
    def tuple_of(*parts: "Arrays") -> "Arrays":
        """Several, side by side."""
        return Arrays(
            Tree("tuple", (), tuple(part.tree for part in parts)),
            tuple(entry for part in parts for entry in part.specs),
        )

    @staticmethod
    def taken_by(program: Program) -> "Arrays":
        """The arguments of a program."""
        return Arrays(program.argument_tree, tuple(entry.spec for entry in program.arguments))

    @staticmethod
    def returned_by(program: Program) -> "Arrays":
        """The results of a program."""
        return Arrays(program.result_tree, tuple(entry.spec for entry in program.results))

    def children(self) -> "list[Arrays]":
        """The parts of a nesting."""
        parts, start = [], 0
        for child in self.tree.children:
            parts.append(Arrays(child, self.specs[start : start + child.leaf_count]))
            start += child.leaf_count
        return parts


@dataclass(frozen=True)
class Fragment:
    """What travels of a fragment.

    Arguments:
        vector: its parameters, flat.
        payload: a push.
        change: a change from one version to the next; None where the run sends none.
    """

    vector: Arrays
    payload: Arrays
    change: Arrays | None


COUNT = Arrays(LEAF, (TensorSpec((), DType.i32),))
_OF_A_FRAGMENT = ("flat", "put", "push")


def check_fit(
    programs: Mapping[str, Program], batch: Sequence[Shape], held: Mapping[str, Shape] | None = None
) -> tuple[Fragment, ...]:
    """Make sure that the programs of a run can hand values to each other; see `programs.py`.

    Arguments:
        programs: by name.
        batch: shape and element type of each array of a batch.
        held: of the arrays, by name, that the step takes before its state; None where it takes none.

    Raises:
        ProgramRefused: a program is missing, or takes or returns something else than the others expect.
    """
    for name in ("start", "restart", "step"):
        _require_there(programs, name)
    state, vectors = Arrays.returned_by(programs["start"]), _vectors(programs["start"])
    together = Arrays.tuple_of(*vectors)
    pair = Arrays.tuple_of
    inputs = pair(*(Arrays(LEAF, (TensorSpec(shape, dtype_of(dtype)),)) for shape, dtype in batch))
    expected = {
        "start": (pair(together, COUNT), state),
        "restart": (pair(state, together, COUNT), state),
        "step": (
            pair(*_held_by(programs["step"], held), state, inputs),
            pair(state, _metrics_of(programs["step"])),
        ),
        "clear": (pair(state), state),
    }
    fragments = []
    for number, vector in enumerate(vectors):
        for name in _OF_A_FRAGMENT:
            _require_there(programs, f"{name}.{number}")
        payload = _payload_of(programs, number)
        change = _change_of(programs, number)
        fragments.append(Fragment(vector, payload, change))
        expected |= {
            f"flat.{number}": (pair(state), vector),
            f"put.{number}": (pair(state, vector), state),
            f"mix.{number}": (pair(state, vector), state),
            f"gradient.{number}": (pair(state), vector),
            f"push.{number}": (pair(vector, vector, vector), pair(payload, vector, vector)),
        }
        if f"gossip.{number}" in programs:
            expected[f"gossip.{number}"] = (pair(*[vector] * 5), pair(vector, vector))
        if change is not None:
            expected[f"receive.{number}"] = (pair(vector, change), vector)
    for name, program in programs.items():
        if name not in expected:
            raise ProgramRefused(f"the run has a program {name!r}, but only {len(vectors)} fragments")
        for verb, actual, wanted in (
            ("take", Arrays.taken_by(program), expected[name][0]),
            ("return", Arrays.returned_by(program), expected[name][1]),
        ):
            if actual != wanted:
                raise ProgramRefused(
                    f"the programs of the run do not fit together: {name!r} does not {verb} "
                    "what the others hand on or expect"
                )
    return tuple(fragments)


def _require_there(programs: Mapping[str, Program], name: str) -> None:
    if name not in programs:
        raise ProgramRefused(f"the run lacks the program {name!r}")


def _held_by(step: Program, held: Mapping[str, Shape] | None) -> list[Arrays]:
    """The first argument of a step, if it is to take arrays that stay as they are, and they are these."""
    if held is None:
        return []
    first = next(iter(Arrays.taken_by(step).children()), COUNT)
    wanted = dict(zip(first.tree.names(), first.specs, strict=True))
    given = {name: TensorSpec(shape, dtype_of(dtype)) for name, (shape, dtype) in held.items()}
    if wanted != given:
        raise ProgramRefused("the program 'step' does not take the arrays that the run holds for it")
    return [first]


def _vectors(start: Program) -> list[Arrays]:
    """The fragments that a worker begins with."""
    arguments = Arrays.taken_by(start).children()
    vectors = arguments[0].children() if len(arguments) == 2 and arguments[1] == COUNT else []
    for vector in vectors:
        flat = vector.tree == LEAF and len(vector.specs[0].shape) == 1
        if not flat or vector.specs[0].dtype is not DType.f32:
            vectors = []
            break
    if not vectors:
        raise ProgramRefused("the program 'start' does not take flat fragments and a step number")
    return vectors


def _payload_of(programs: Mapping[str, Program], number: int) -> Arrays:
    """What `push` encodes: a dictionary of arrays, of any shapes."""
    returned = Arrays.returned_by(programs[f"push.{number}"]).children()
    if len(returned) != 3 or not _is_flat_dictionary(returned[0]):
        raise ProgramRefused(f"the program 'push.{number}' does not return a payload and two vectors")
    return returned[0]


def _change_of(programs: Mapping[str, Program], number: int) -> Arrays | None:
    """What `receive` decodes, where there is one."""
    if f"receive.{number}" not in programs:
        return None
    taken = Arrays.taken_by(programs[f"receive.{number}"]).children()
    if len(taken) != 2 or not _is_flat_dictionary(taken[1]):
        raise ProgramRefused(f"the program 'receive.{number}' does not take a vector and a change")
    return taken[1]


def _is_flat_dictionary(arrays: Arrays) -> bool:
    return arrays.tree.kind == "dict" and all(child == LEAF for child in arrays.tree.children)


def _metrics_of(step: Program) -> Arrays:
    """What a training step returns beside its state: a dictionary of arrays, `loss` among them."""
    returned = Arrays.returned_by(step).children()
    metrics = returned[1] if len(returned) == 2 else COUNT
    losses = dict(zip(metrics.tree.keys, metrics.specs, strict=False))
    if not _is_flat_dictionary(metrics) or "loss" not in losses:
        raise ProgramRefused("the program 'step' does not return a state and metrics with a loss")
    if losses["loss"].shape != () or not losses["loss"].dtype.is_float:
        raise ProgramRefused(
            f"the loss that the program 'step' returns is {losses['loss']}; expected a scalar"
        )
    return metrics
