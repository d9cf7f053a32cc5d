"""What XLA compiles of a program: what it would compute wrongly, slowly or in too much memory is written otherwise."""

from pcp.autodiff.rematerialisation.apart import CHEAP_INSIDE, with_casts_apart, with_gradients_apart
from pcp.backends.angles_kept import with_angles_kept
from pcp.backends.full_precision import with_full_precision
from pcp.backends.nested_blocks import with_blocks_within_bounds
from pcp.backends.reshaped_updates import with_reshaped_arrays_kept
from pcp.backends.whole_powers import with_whole_powers
from pcp.backends.ynnpack import with_propagated_nan, with_wide_sums_as_products
from pcp.ir import Program
from pcp.rewrite.memory.blocks import in_blocks
from pcp.rewrite.memory.linear_losses import without_logits

_WHOLE, _WHOLE_ON_GPU = 16 << 20, 256 << 20
"""Bytes of scores, logits or exponentials that are made at once; more are made in blocks."""
_KEPT = 1 << 20
"""Bytes of a value that gradients of activations and norms may keep beside what these take."""


def for_xla(program: Program, platform: str) -> Program:
    """The program as XLA is given it for a kind of devices."""
    whole = _WHOLE if platform == "cpu" else _WHOLE_ON_GPU
    program = in_blocks(without_logits(program, whole), whole)
    program = with_blocks_within_bounds(with_whole_powers(program))
    if platform == "cuda":
        return with_casts_apart(with_gradients_apart(with_full_precision(program)), _KEPT)
    if platform == "cpu":
        program = with_wide_sums_as_products(with_gradients_apart(program, CHEAP_INSIDE, _KEPT))
        return with_reshaped_arrays_kept(with_propagated_nan(with_angles_kept(program)))
    return program
