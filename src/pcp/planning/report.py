"""What a plan says of its path: what runs at each class of sites, why, and what it costs in time, error and memory."""

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from pcp.backends.registry import DEFAULT
from pcp.ir import Argument, Result
from pcp.planning.capacity import human
from pcp.planning.judging.tolerance import SLICES
from pcp.planning.measuring.measurement import Judgement, Measurement
from pcp.planning.measuring.significance import undisturbed
from pcp.planning.paths.kinds import EQUAL, OPTION, STORED, ZEROS, by_kind, changes_of, words_of
from pcp.planning.paths.path import Path
from pcp.planning.search.found import UNMEASURABLE, Found, Prediction
from pcp.planning.search.tuning import MeasuredClass
from pcp.rewrite.row import Effect


def described(path: Path, found: Found | None, tolerance: float | None) -> list[str]:
    """Lines for people; the first names the path, then come the classes of sites, the costliest first.

    Arguments:
        found: what the search for it came to; None if there was none.
    """
    if found is None or tolerance is None:
        return _unsearched(path)
    cost = _cost(path, found.measurement) if found.prediction is None else _predicted_cost(found.prediction)
    lines = [f"  path        {_named(path)}: {cost}"]
    lines += [] if path.is_plain else [f"  changes     {_CHANGES[_changes(path)]}"]
    lines += _apart(path)
    first, *further = _errors(found, tolerance)
    lines += [f"  error       {first}", *(f"              {each}" for each in further)]
    if found.measurement is not None and found.measurement.peak_bytes is not None:
        lines.append(
            f"  memory      {human(found.measurement.peak_bytes)} at most in one call when it was measured"
        )
    count = sum(len(each.sites.sites) for each in found.classes)
    lines.append(
        f"  sites       {count}, in {len(found.classes)} classes: kernel, time of a call against the plain operation, error"
    )
    for each in found.classes:
        lines += _class(each, found)
    lines += [f"  note        {note}" for note in found.notes]
    if not found.complete and UNMEASURABLE not in found.notes:
        lines.append(
            f"  note        not everything was measured; plan again with a larger budget to go on{_left_out(found)}"
        )
    return lines


def _left_out(found: Found) -> str:
    """What kernels might save that there was no time for, at sites that are computed as they are written."""
    left = [each for each in found.classes if each.might_save and not found.kernel_at(each.sites)]
    if not left:
        return ""
    left.sort(key=lambda each: -each.might_save)
    shown = ", ".join(f"{each.sites.family} at {each.sites.uses} sites" for each in left[:_SHOWN])
    more = f" and {len(left) - _SHOWN} more" if len(left) > _SHOWN else ""
    saved = math.fsum(each.might_save for each in left)
    return (
        f": by what they compute, kernels might save {saved:.0%} of the time of all sites, of {shown}{more}"
    )


def as_json(path: Path, found: Found | None, tolerance: float | None) -> dict[str, Any]:
    """The same as values of JSON."""
    row = found.measurement if found is not None else None
    return {
        "path": path.digest,
        "plain": path.is_plain,
        "changes": str(_changes(path)),
        "equal": None if path.equal is None else asdict(path.equal),
        "stored": dict(path.stored),
        "parts": path.parts,
        "bound": len(path.bound),
        "tolerance": tolerance,
        "error": None if row is None else row.error,
        "predicted": None if found is None or found.prediction is None else asdict(found.prediction),
        "plain_error": None if row is None else row.plain_error,
        "judgement": None if row is None or row.judgement is None else asdict(row.judgement),
        "seconds": undisturbed(row.seconds) if row is not None and row.seconds else None,
        "plain_seconds": undisturbed(row.plain_seconds) if row is not None and row.plain_seconds else None,
        "peak_bytes": None if row is None else row.peak_bytes,
        "measurements": 0 if found is None else found.measured,
        "complete": found is None or found.complete,
        "notes": [] if found is None else found.notes,
        "classes": [] if found is None else [_class_json(each, found) for each in found.classes],
    }


def seconds(value: float) -> str:
    """A time as people write it."""
    for limit, unit, scale in ((1e-3, "us", 1e6), (1.0, "ms", 1e3)):
        if value < limit:
            return f"{value * scale:.3g} {unit}"
    return f"{value:.3g} s"


def _unsearched(path: Path) -> list[str]:
    if path.is_plain:
        return ["  path        plain: no tolerance was given, so nothing was searched", *_apart(path)]
    further = words_of([move for move in path.moves if move.kind not in _APART])
    if not path.choices and not path.prepared:
        shown = ", ".join(["as it is written", *further])
        return [f"  path        {_named(path)}: {shown}", *_apart(path)]
    counts = Counter(choice.kernel for choice in path.choices.values())
    kernels = ", ".join(f"{count} {name}" for name, count in counts.most_common())
    shown = "; ".join([kernels or "simplified only", *further])
    return [f"  path        {_named(path)}, as given: {shown}", *_apart(path)]


_CHANGES = {
    Effect.exact: "nothing: the results are those of the plain path, bit for bit",
    Effect.reassociating: "sums may be added up in another order",
    Effect.lowers_precision: "some numbers are kept in fewer bits",
}
_SHOWN = 3
_APART = (OPTION.name, EQUAL.name, ZEROS.name, STORED.name)
"""Kinds of moves that have a line each."""


def _changes(path: Path) -> Effect:
    return Effect.exact if path.is_plain else changes_of(path.moves)


def _apart(path: Path) -> list[str]:
    return [
        f"  {kind.name:<12}{' '.join(words_of(some))}"
        for kind, some in by_kind(path.moves)
        if kind.name in _APART
    ]


def _named(path: Path) -> str:
    name = "plain" if path.is_plain else path.digest[:12]
    return name if path.backend == DEFAULT else f"{name} by {path.backend}"


def _cost(path: Path, row: Measurement | None) -> str:
    if row is None or not row.seconds:
        is_plain = path.is_plain or (row is not None and row.failure is None and row.error is not None)
        return "no other path was found to be faster" if is_plain else "not measured"
    plain, mine = undisturbed(row.plain_seconds), undisturbed(row.seconds)
    return (
        f"{plain / mine:.2f} times as fast as the plain path ({seconds(mine)} against {seconds(plain)}, "
        f"{len(row.seconds)} calls of each in turn)"
    )


def _predicted_cost(prediction: Prediction) -> str:
    return (
        f"predicted, not measured: its sites should take {prediction.ratio:.2f} of their plain time "
        f"({prediction.measured} classes of sites were measured, {prediction.similar} are like others that were)"
    )


def _errors(found: Found, tolerance: float) -> list[str]:
    """What is known of the error, of which result it is, and how it was judged."""
    row = found.measurement
    if found.prediction is not None:
        return [
            f"not measured; predicted to be at most {found.prediction.error:.1e}, from sites alone; the tolerance is "
            f"{tolerance:g}; plan with a budget to measure it"
        ]
    if not tolerance:
        return ["none: the bits of the plain path are asked for"]
    if row is None or row.error is None:
        return [f"not measured; the tolerance is {tolerance:g}"]
    judgement = row.judgement or Judgement()
    of = f" in result {judgement.result}" if judgement.result else ""
    slices = f" in {judgement.slice}" if judgement.slice else ""
    lines = [
        f"{row.error:.2e} of at most {tolerance:g}{of}; the plain path has {row.plain_error or 0.0:.1e}",
        f"of a slice {judgement.slice_error:.2e} of at most {SLICES * tolerance:g}{slices}; "
        f"the plain path has {judgement.plain_slice:.1e}",
    ]
    if judgement.reference == "float32":
        lines.append("against float32 in full precision; what that misses is estimated and added")
    if judgement.grouped:
        shown = ", ".join(f"{name} (missed by {missed:.1e})" for name, missed in judgement.grouped[:4])
        more = f" and {len(judgement.grouped) - 4} more" if len(judgement.grouped) > 4 else ""
        lines.append(
            f"on the scale of their group, because the plain path misses them or they are nothing beside it: {shown}{more}"
        )
    for name, part in judgement.shares:
        lines.append(f"result {name} differs in {part:.2g} of its elements")
    if judgement.ignored:
        lines.append(f"ignored, as asked for: {', '.join(judgement.ignored)}")
    return lines


def _class(each: MeasuredClass, found: Found) -> list[str]:
    chosen = found.kernel_at(each.sites)
    place = each.sites.sites[0].location
    where = f"  at {place}" if place else ""
    row = each.rows.get(chosen)
    times = ""
    if row is not None and row.seconds:
        times = f"  {seconds(row.typical)} against {seconds(undisturbed(row.plain_seconds))}, error {row.error or 0.0:.1e}"
    elif chosen in each.forecasts:
        times = f"  predicted to take {each.forecasts[chosen].ratio:.2f} of the plain operation's time"
    elif each.plain_seconds:
        times = f"  {seconds(each.plain_seconds)}"
    lines = [f"    {each.sites}: {chosen or 'plain'}{times}{where}"]
    others = [f"{other} {_outcome(row)}" for other, row in each.rows.items() if other != chosen]
    if others:
        lines.append(f"      measured too: {'; '.join(others)}")
    by_reason: dict[str, list[str]] = {}
    for kernel, reason in each.skipped.items():
        by_reason.setdefault(reason, []).append(kernel)
    lines += [f"      not measured: {', '.join(kernels)}: {reason}" for reason, kernels in by_reason.items()]
    return lines


def _outcome(row: Measurement) -> str:
    if row.failure is not None:
        return f"failed ({row.failure})"
    return f"{seconds(row.typical)}, error {row.error if row.error is not None else float('nan'):.1e}"


def _class_json(each: MeasuredClass, found: Found) -> dict[str, Any]:
    chosen = found.kernel_at(each.sites)

    def entry(row: Measurement) -> dict[str, Any]:
        return {
            "seconds": row.typical if row.seconds else None,
            "plain_seconds": undisturbed(row.plain_seconds) if row.plain_seconds else None,
            "error": row.error,
            "failure": row.failure,
        }

    return {
        "region": each.sites.digest,
        "computes": each.sites.signature,
        "uses": each.sites.uses,
        "locations": list(dict.fromkeys(site.location for site in each.sites.sites if site.location)),
        "kernel": chosen or None,
        "measured": {name: entry(row) for name, row in each.rows.items()},
        "skipped": each.skipped,
        "might_save": 0.0 if chosen else each.might_save,
    }


def listed_entries(entries: Sequence[Argument | Result]) -> str:
    """The first few arguments or results of a plan."""
    shown = [
        f"{entry.name}: {entry.spec}"
        + (" donated" if isinstance(entry, Argument) and entry.alias is not None else "")
        for entry in entries[:4]
    ]
    return ", ".join(shown + [f"and {len(entries) - 4} more"] * (len(entries) > 4)) or "nothing"
