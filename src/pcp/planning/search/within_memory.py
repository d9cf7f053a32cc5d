"""The fastest path that fits in memory that was asked for."""

import time
from dataclasses import replace

from pcp.planning.capacity import human
from pcp.planning.fitting import Fit, MemoryUnreachable, fitted
from pcp.planning.search.found import Found
from pcp.planning.search.search import Search, ToleranceUnreachable


def within_memory(found: Found, search: Search, limit: int) -> Found:
    """The fastest that fits in memory: what was found, with values computed again; or a path that takes less as it is.

    A path that computes values again is judged like every other. Where there is no time to measure it, it is taken only if no
    other fits.

    Raises:
        MemoryUnreachable: nothing that was tried fits.
        ToleranceUnreachable: what fits was measured to be too wrong.
    """
    whole, evidence = search.whole, search.evidence
    rival = search.known_within(limit)
    took = 0 if rival is None else whole.target.compile(rival.path.applied(whole.program)).memory.peak
    if took > limit:  # the figure of the compiler in this process decides
        rival = None
    trouble: list[str] = []
    unreachable: MemoryUnreachable | None = None
    for path in dict.fromkeys((replace(found.path, recomputation=None), whole.plain)):
        began = time.monotonic()
        try:
            fit = fitted(whole.program, path, whole.target, limit)
        except MemoryUnreachable as error:
            unreachable = error if unreachable is None or error.least < unreachable.least else unreachable
            continue
        finally:
            if evidence.budget:  # for measurements; nothing was measured meanwhile
                evidence.budget += time.monotonic() - began
        if fit.path == found.path and _took(found) <= limit:
            return replace(found, fit=fit)
        row = None if fit.path.is_plain else whole.measured(fit.path, evidence)
        if row is not None and not whole.accepts(row, limit):
            trouble.append(
                f"path {fit.path.digest[:12]}, which fits in memory, is not used: {row.failure or 'it is too wrong'}"
            )
            continue
        if rival is not None and (
            row is None or rival.measurement is None or rival.measurement.ratio <= row.ratio
        ):
            break
        if row is None and not fit.path.is_plain:
            trouble.append(f"what fits in memory was not measured: {evidence.trouble}")
        return replace(
            search.as_found(fit.path, row),
            fit=fit, measured=evidence.measured, notes=[*found.notes, *trouble], complete=found.complete and row is not None,
        )  # fmt: skip
    if rival is not None:
        return replace(rival, fit=Fit(rival.path, limit, took, took), notes=[*found.notes, *trouble])
    if unreachable is not None and not trouble:
        raise unreachable
    raise ToleranceUnreachable(
        f"what was tried of program {whole.program.digest[:12]} in {human(limit)} misses the tolerance of {whole.tolerance:g}: "
        f"{'; '.join(trouble)}; give more memory, or a larger tolerance"
    )


def _took(found: Found) -> int:
    """The bytes that a path took when it was measured, if it was."""
    return 0 if found.measurement is None else found.measurement.peak_bytes or 0
