"""Named sites: plain forms of softmax, normalisation, attention, cross entropy, pooling and activations become composites.

The larger patterns come first, because attention and cross entropy hold a softmax.
"""

from pcp.ir import Program
from pcp.rewrite.driver import rewrite
from pcp.rewrite.raising.activations import name_activations
from pcp.rewrite.raising.attention import RAISE_ATTENTION, READ_MASKS
from pcp.rewrite.raising.cross_entropy import RAISE_CROSS_ENTROPY
from pcp.rewrite.raising.normalisation import (
    RAISE_BATCH_NORM,
    RAISE_BATCH_NORM_AND_RELU,
    RAISE_BIASED_NORMALISATION,
    RAISE_NORMALISATION,
    RAISE_UNSCALED_NORMALISATION,
)
from pcp.rewrite.raising.pooling import RAISE_MAX_POOL
from pcp.rewrite.raising.softmax import RAISE_LOG_SOFTMAX, RAISE_LOG_SUM_EXP, RAISE_SOFTMAX

PHASES = (
    (READ_MASKS, RAISE_ATTENTION, *RAISE_CROSS_ENTROPY, RAISE_MAX_POOL),
    RAISE_BATCH_NORM_AND_RELU,
    (RAISE_BATCH_NORM,),
    (RAISE_LOG_SOFTMAX, RAISE_SOFTMAX, RAISE_BIASED_NORMALISATION),
    (RAISE_NORMALISATION, RAISE_LOG_SUM_EXP),
    (RAISE_UNSCALED_NORMALISATION,),
)


def raised(program: Program) -> Program:
    """The program with a composite `pcp.NAME` in the place of every plain form that is known.

    Each composite is decomposed by a function that is the plain form which stood there, so results do not change by a bit.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program with the same arguments, results and digest.
    """
    for rows in PHASES:
        program = rewrite(program, rows)
    return name_activations(program)
