"""A plan that fits in a number of bytes, as the compiler counts them, at as little recomputation as was found."""

import logging
from collections.abc import Callable

from pcp.autodiff import BudgetUnreachable, ByteBudget, Remat
from pcp.backends import Device
from pcp.ir import Program
from pcp.planning.plan import Plan, plan

log = logging.getLogger("pcp.planning")

_ATTEMPTS = 6


def plan_within(
    size: int | str,
    make: Callable[[Remat | None], Program],
    device: str | Device | None = None,
    *,
    cache: bool = True,
) -> Plan:
    """Compile a program with a gradient in it so that a call takes no more than a number of bytes.

    A budget that `pcp.value_and_grad` is given is compared with an estimate. Here the compiler's own figure decides: where the
    estimate was too low, the program is made again with a smaller budget.

    Arguments:
        size: bytes, or a text like `"2GiB"`, that `plan.memory` may say.
        make: from a `remat` to the program, as `lambda remat: pcp.value_and_grad(loss, remat=remat)`.
        device: as for `pcp.plan`.
        cache: as for `pcp.plan`.

    Raises:
        InvalidByteBudget: `size` is no positive number of bytes.
        BudgetUnreachable: no choice of values to make again fits.
        OutOfMemory, UnknownDevice, CompilationFailed: as `pcp.plan`.
    """
    limit = ByteBudget(size).bytes
    given: ByteBudget | None = None
    peaks: list[int] = []
    for _ in range(_ATTEMPTS):
        made = plan(make(given), device, cache=cache)
        peaks.append(max(use.peak for use in made.memory.values()))
        if peaks[-1] <= limit:
            return made
        # What a budget gave too much of in the last attempt it will give too much of in the next.
        scale = 1.0 if given is None else min(0.95, limit / peaks[-1])
        given = ByteBudget(max(1, int(scale * (limit if given is None else given.bytes))))
        log.info("a plan takes %d bytes of %d; a budget of %d is tried", peaks[-1], limit, given.bytes)
    raise BudgetUnreachable(
        f"no plan that was tried fits in {limit} bytes: the smallest takes {min(peaks)}; give at least that, or use a "
        f"smaller batch"
    )
