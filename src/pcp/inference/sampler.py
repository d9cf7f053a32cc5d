"""Tokens drawn from scores, as part of the program that makes the scores.

Noise is a function of seed, position and token: 20 rounds of Threefry in integers, the same on every machine and whatever else
is in the batch, then a Gumbel variable in float32, whose logarithms agree to their rounding. A token is drawn as the one whose
scaled score and noise are largest together, so a verified guess is accepted exactly when it is what would have been drawn.

Source: Gumbel, "Statistical Theory of Extreme Values", 1954; Maddison, Tarlow and Minka, "A* Sampling", 2014, section 2.
"""

import math
from typing import NamedTuple

from pcp.inference.request import MOST_LOGPROBS, NOTHING
from pcp.ir import DType
from pcp.ops.control.branches import cond
from pcp.ops.elementwise import bitcast, convert, exp, log, log1p, minimum, where
from pcp.ops.indexing.along_axis import take_along_axis
from pcp.ops.movement import broadcast_to, iota
from pcp.ops.reductions.cumulative import cumsum
from pcp.ops.reductions.primitives import any_, max_, min_, sum_
from pcp.ops.sorting.sorting import top_k
from pcp.ops.threefry import threefry
from pcp.tensor import Tensor

CANDIDATES = 256
"""Most tokens that `top_k`, `top_p` and `min_p` look at; the rest of a vocabulary has no chance then."""

WHOLE = ("top_k", "seed_high", "seed_low", "position")
REAL = ("temperature", "top_p", "min_p", "repetition")


class Drawn(NamedTuple):
    """What is drawn for each row.

    Arguments:
        token: (rows,) i32; `NOTHING` where scores are no numbers.
        logprob: of the token, before penalties and temperature, (rows,) f32; 0 where nothing is told.
        top: the most likely tokens, the best first, (rows, at most 20) i32.
        top_logprobs: theirs.
    """

    token: Tensor
    logprob: Tensor
    top: Tensor
    top_logprobs: Tensor


def draw(
    scores: Tensor,
    whole: Tensor,
    real: Tensor,
    tell: Tensor | None,
    edit: tuple[Tensor, Tensor] | None = None,
    limits: bool = True,
) -> Drawn:
    """Draw a token for each row; no vocabulary is sorted.

    Arguments:
        scores: (rows, vocabulary) f32.
        whole: the columns of `WHOLE`, (rows, 4) i32: candidates, or 0 for all; the two words of the seed; the token's place.
        real: the columns of `REAL`, (rows, 4) f32; a temperature of 0 takes the best.
        tell: whether logprobs are wanted, bool; None: never.
        limits: whether any row is limited to its best tokens. If not, nothing depends on a condition.
        edit: what is added to scores, (rows, vocabulary) f32, and whether the repetition penalty is applied, bool.
    """
    rows, vocabulary = scores.shape
    settings = {name: whole[:, place : place + 1] for place, name in enumerate(WHOLE)}
    shares = {name: real[:, place : place + 1] for place, name in enumerate(REAL)}
    wanted = scores
    if edit is not None:
        added, repeated = edit
        penalty = shares["repetition"]
        wanted = where(repeated, where(scores > 0, scores / penalty, scores * penalty), scores) + added
    best = _first_best(wanted, iota((rows, vocabulary), 1))
    hot = shares["temperature"] > 0
    scaled = (wanted - max_(wanted, 1, keepdims=True)) / where(hot, shares["temperature"], 1.0)
    limited = hot & ((settings["top_k"] > 0) | (shares["top_p"] < 1) | (shares["min_p"] > 0))
    key = (bitcast(settings["seed_high"], DType.u32), bitcast(settings["seed_low"], DType.u32))

    def noisy(at: Tensor, tokens: Tensor) -> Tensor:
        return _first_best(at + _gumbel(key, settings["position"], tokens), tokens)

    def among_all() -> Tensor:
        return noisy(scaled, iota((rows, vocabulary), 1))

    def among_candidates() -> Tensor:
        at, tokens = top_k(scaled, min(CANDIDATES, vocabulary))
        return noisy(_kept(at, scaled, settings["top_k"], shares["top_p"], shares["min_p"]), tokens)

    if limits:
        free = cond(any_(hot & ~limited), among_all, lambda: best)
        token = where(hot, where(limited, cond(any_(limited), among_candidates, lambda: best), free), best)
    else:
        token = where(hot, among_all(), best)
    count = min(MOST_LOGPROBS, vocabulary)

    def told() -> tuple[Tensor, Tensor, Tensor]:
        logprobs = _log_softmax(scores)
        tops, tokens = top_k(logprobs, count)
        return take_along_axis(logprobs, token, 1), tokens, tops

    def untold() -> tuple[Tensor, Tensor, Tensor]:
        nothing = broadcast_to(shares["temperature"] * 0, (rows, count))
        return nothing[:, :1], broadcast_to(best * 0, (rows, count)), nothing

    logprob, top, top_logprobs = untold() if tell is None else cond(tell, told, untold)
    largest = max_(scores, 1)
    return Drawn(where(largest == largest, token[:, 0], NOTHING), logprob[:, 0], top, top_logprobs)


def _first_best(values: Tensor, tokens: Tensor) -> Tensor:
    """The smallest token among those of the largest value, (rows, 1); 0 of a row that is no number."""
    largest = max_(values, 1, keepdims=True)
    found = min_(where(values == largest, tokens, 2**31 - 1), 1, keepdims=True)
    return where(found == 2**31 - 1, 0, found)


def _kept(at: Tensor, scaled: Tensor, most: Tensor, share: Tensor, least: Tensor) -> Tensor:
    """Scaled scores of candidates, the best first; -inf for those that `top_k`, `top_p` and `min_p`, in this order, drop."""
    ranked = (most == 0) | (iota(at.shape, 1) < most)
    weight = where(ranked, exp(at), 0.0)
    whole = where(most == 0, sum_(exp(scaled), 1, keepdims=True), sum_(weight, 1, keepdims=True))
    before = cumsum(weight, 1) - weight
    return where(ranked & (before < share * whole) & (exp(at) >= least), at, -math.inf)


def _gumbel(key: tuple[Tensor, Tensor], position: Tensor, tokens: Tensor) -> Tensor:
    place = broadcast_to(convert(position, DType.u32), tokens.shape)
    word, _ = threefry(key, place, convert(tokens, DType.u32))
    # Large noise comes from small uniform numbers, of which float32 has many.
    uniform = minimum((convert(word, DType.f32) + 0.5) * 2.0**-32, 1 - 2.0**-24)
    return -log(-log1p(-uniform))


def _log_softmax(scores: Tensor) -> Tensor:
    shifted = scores - max_(scores, 1, keepdims=True)
    return shifted - log(sum_(exp(shifted), 1, keepdims=True))
