"""The tolerance: what the error of a result is, and when results are within a tolerance.

The error of a result y is its forward error, ||y - y64|| / ||y64||, where y64 is what exact arithmetic gives, estimated as
the module `reference` says. A slice of y along an axis is also judged: its error is ||y_i - y64_i|| divided by the larger of
||y64_i|| and the mean norm of the slices along that axis, so that one zeroed row of 20,000 shows. Results are within a
tolerance if every error is at most that, and every error of a slice at most `SLICES` times that.

Three kinds of results are judged otherwise, and a plan names them:

- An integer or boolean result is judged by the share of its elements that differ.
- A gradient or update of a training step that is zero in exact arithmetic, and that no rewrite knows to be, is judged on the
  scale of its group: the root mean square over the elements of the group's tensors that the plain path meets. It is taken for
  zero if the plain path itself misses it at the tolerance, or if its own root mean square is less than 2^-24 of that.
- What the user ignores is left out.

State is judged by what is added to the part of it that stays, so that an update does not hide behind the parameter that it is
added to, nor a gradient behind its moment: m' - beta m is as wrong as the gradient. How much stays a program says of each
argument (`Argument.kept`); where it says nothing, all of it. Of state of 16 bits, the squares of round(y64) - y64 are taken off
those of y - y64: what no way to store it avoids is no error of it.
"""

import enum
from collections.abc import Sequence
from dataclasses import dataclass

SLICES = 10.0
"""How many times the tolerance the error of a slice may be."""
USUAL_TOLERANCE = 1e-2
"""At which results are judged where no tolerance is given: paths that are explored, and sites alone."""


class Judged(enum.StrEnum):
    """What the error of a result is relative to."""

    norm = "its norm"
    group = "the scale of its group"
    share = "the number of its elements"


@dataclass(frozen=True, slots=True)
class ResultError:
    """How wrong one result is.

    Arguments:
        error: relative to what `judged` says.
        plain: the same of the plain path.
        slice_error: the largest of any slice; 0 for integers, and where there are no slices.
        plain_slice: the same of the plain path.
        slice: which slice that is, as `axis 0, index 17`; empty where there is none.
        judged: what the errors are relative to.
        missed: the plain path's error relative to the result's own norm, where `judged` is the group.
    """

    name: str
    error: float
    plain: float
    slice_error: float = 0.0
    plain_slice: float = 0.0
    slice: str = ""
    judged: Judged = Judged.norm
    missed: float = 0.0

    @property
    def least_tolerance(self) -> float:
        """The smallest tolerance that it is within."""
        return least_tolerance(self.error, self.slice_error)

    @property
    def least_plain(self) -> float:
        """The smallest tolerance that the plain path's result is within."""
        return least_tolerance(self.plain, self.plain_slice)


def least_tolerance(error: float, slice_error: float) -> float:
    """The smallest tolerance that a result with these errors is within."""
    return max(error, slice_error / SLICES)


def worst(errors: Sequence[ResultError]) -> ResultError | None:
    """The result that needs the largest tolerance; None if there are none."""
    return max(errors, key=lambda each: each.least_tolerance, default=None)
