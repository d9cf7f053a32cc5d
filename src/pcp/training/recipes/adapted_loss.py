"""A loss of low-rank matrices beside weights that stay, as PCP wrote it into the folder of a run."""

from pathlib import Path

from pcp.ir.program import load
from pcp.ir.tree import LEAF
from pcp.training.data.array_file import read_array_file
from pcp.training.data.safetensors_file import map_arrays
from pcp.training.recipes.loss_program import LossProgram, WrongWeights, draws_numbers


def read_adapted(path: Path, weights: Path, held: Path) -> LossProgram:
    """Read a loss `(weights, held, *batch)` that PCP wrote, of weights beside others that stay.

    Arguments:
        held: a safetensors file of those, which is read where it lies.

    Raises:
        NotAProgram, CorruptProgram, NewerProgram, InvalidProgram: the loss cannot be read.
        UnreadableFile, WrongWeights: the weights cannot be read, or are others.
    """
    program = load(path)
    first, second, *others = program.argument_tree.children
    groups = []
    for tree, file, arrays in ((first, weights, read_array_file(weights)), (second, held, map_arrays(held))):
        if sorted(tree.names()) != sorted(arrays):
            raise WrongWeights(f"{file} does not hold the weights of {path}; begin the run again")
        groups.append(tree.unflatten(arrays[name] for name in tree.names()))
    draws = draws_numbers(program)
    positions = tuple(range(first.leaf_count + second.leaf_count, len(program.arguments) - draws))
    batch = tuple(program.arguments[place] for place in positions)
    assert all(child == LEAF for child in others)
    return LossProgram(program, groups[0], tuple(first.names()), batch, positions, {}, groups[1], draws=draws)
