"""Plans over several devices: by which layout, and what each device then computes."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pcp.backends import Device, Executable, Target
from pcp.backends.base import CompileOptions
from pcp.backends.target import expect_devices
from pcp.ir import Argument, Program, Result
from pcp.ir.operations import operations_of
from pcp.planning.capacity import check_capacity, human, lower_bound
from pcp.planning.paths.kinds import LAYOUT, Layout, layout_in
from pcp.planning.paths.path import Path
from pcp.planning.pinned import PlanConflict, check_pinned
from pcp.rewrite.layout.rules import RULES, laid_out

Devices = str | Target | Sequence[str | Device]


@dataclass(frozen=True, slots=True)
class Spread:
    """A program compiled for several devices.

    Arguments:
        path: with a layout.
        target: with the options of the path.
        executable: of what each device computes.
        axes: along which each argument is cut over the devices; None where each has all of it.
    """

    path: Path
    target: Target
    executable: Executable
    axes: tuple[int | None, ...]


def over_devices(
    device: object,
    devices: Devices | None,
    options: CompileOptions,
    path: Path | None,
    layout: str | None,
    more: Sequence[object],
) -> Target | None:
    """The devices that compute together, which somebody gave; None where none were given.

    Arguments:
        more: what else was asked for that is for one device.

    Raises:
        PlanConflict: `device` is given, too, or a layout, or a path that has one, and no devices; or more is asked of several.
        InvalidTarget, UnknownDevice: as `Target.over`.
    """
    if devices is None and not (isinstance(device, Target) and device.replicates):
        have = layout_in(path.moves) if isinstance(path, Path) else None
        if have is not None or layout is not None:
            given = (
                f"layout {layout!r}" if have is None else f"a path of {have.rule} over {have.devices} devices"
            )
            raise PlanConflict(
                f"{given} was given and no devices; say which compute together, as devices='cuda:0-1', or leave it out"
            )
        return None
    if devices is not None and device is not None:
        raise PlanConflict(
            f"device {device!r} and devices {devices!r} were given; give `devices` for several that compute together, or "
            "`device` for one"
        )
    target = Target.over(device if devices is None else devices, options)  # type: ignore[arg-type]  # one of them
    if target.replicates and any(each is not None and each != () for each in more):
        raise PlanConflict(
            f"devices {target.places} were given beside a tolerance, binds, mapped, taps or narrows, which are for one device "
            "so far; leave these out"
        )
    return target


def spread(
    program: Program, target: Target, path: Path | None, layout: str | None, limit: int, *, cache: bool
) -> Spread:
    """A program compiled for several devices, by a path or a layout, or by the layout that cuts least and fits in memory.

    Raises:
        InvalidLayout, UnevenBatch: as `laid_out`.
        PlanConflict: the path is of another number of devices, or has other options than the target.
        PathMismatch: it is another program's, or of other hardware or versions.
        OutOfMemory: it does not fit in the memory of each device.
        CompilationFailed: the compiler refuses the program.
        TooFewDevices: the program has collectives of its own.
    """
    expect_devices(program, 1, target.places)
    count = len(target.devices)
    if path is not None:
        check_layout(path, layout, target)
        check_pinned(path, program, target, None, dict(target.options))
        return _compiled(program, target, path, limit, cache=cache)
    rules = RULES if layout is None else (layout,)
    plain = Path.plain(program, dict(target.options), target.backend)
    for rule in rules:
        laid_out(program, rule, count)  # which says why not, where it cannot
        path = plain.having(LAYOUT.name, [LAYOUT.move(Layout(rule, count))]).suited(program, target)
        if rule == rules[-1] or lower_bound(path.applied(program)).peak <= limit:
            found = _compiled(program, target, path, limit if rule == rules[-1] else None, cache=cache)
            if found.executable.memory.peak <= limit:
                return found
    raise AssertionError("the last layout is compiled or refused")


def check_layout(path: Path, layout: str | None, target: Target) -> None:
    """Look whether a path is for the devices of a target.

    Raises:
        PlanConflict: it is not.
    """
    have = layout_in(path.moves)
    if have is None or have.devices != len(target.devices) or layout not in (None, have.rule):
        was = "one device" if have is None else f"{have.rule} over {have.devices} devices"
        raise PlanConflict(
            f"the path is for {was}, and {len(target.devices)} devices were given: {target.places}"
            f"{'' if layout is None else f', with layout {layout!r}'}; give what the path is for, or plan again without it"
        )


def _compiled(program: Program, target: Target, path: Path, limit: int | None, *, cache: bool) -> Spread:
    target = path.home(target)
    local = path.applied(program)
    if limit is not None:
        check_capacity(local, lower_bound(local), target, limit)
    results = cut_axes(program.results, local.results)
    executable = target.compile_replicas(local, results, cache=cache)
    if limit is not None:
        check_capacity(local, executable.memory, target, limit)
    return Spread(path, target, executable, cut_axes(program.arguments, local.arguments))


def cut_axes(
    whole: Sequence[Argument] | Sequence[Result], local: Sequence[Argument] | Sequence[Result]
) -> tuple[int | None, ...]:
    """Along which axis each array of a program is cut, of which a device has the local one."""
    wide, narrow = ([entry.spec.shape for entry in entries] for entries in (whole, local))
    pairs = zip(wide, narrow, strict=True)
    return tuple(
        next((axis for axis, (x, y) in enumerate(zip(a, b, strict=True)) if x != y), None) for a, b in pairs
    )


_SENT: dict[str, Callable[[int, int, int], int]] = {
    "all_reduce": lambda taken, _, count: 2 * taken * (count - 1) // count,
    "reduce_scatter": lambda taken, _, count: taken * (count - 1) // count,
    "all_gather": lambda _, made, count: made * (count - 1) // count,
}
"""Bytes that a device sends for a collective of so many devices, of the bytes that it takes and makes, in a ring."""


def sent_bytes(local: Program, count: int) -> dict[str, tuple[int, int]]:
    """By the name of a collective: how many the program of a device has, and how many bytes they make it send in a call.

    Those in loops count once.
    """
    found: dict[str, tuple[int, int]] = {}
    for op in operations_of(local):
        if op.name in _SENT:
            made = op.bytes
            taken = made * count if op.name == "reduce_scatter" else made
            times, sent = found.get(op.name, (0, 0))
            found[op.name] = times + 1, sent + _SENT[op.name](taken, made, count)
    return found


def described_layout(program: Program, path: Path, local: Program, executable: Executable) -> list[str]:
    """Who holds what, what devices send each other, and what was measured of other layouts: lines of a plan."""
    layout = layout_in(path.moves)
    if layout is None:
        return []
    axes = cut_axes(program.arguments, local.arguments)
    parts = [entry for entry, axis in zip(program.arguments, axes, strict=True) if axis is not None]
    shown = ", ".join(entry.name for entry in parts[:4]) + (
        f" and {len(parts) - 4} more" if len(parts) > 4 else ""
    )
    size = sum(entry.spec.bytes for entry in parts)
    whole = sum(entry.spec.bytes for entry in program.arguments) - size
    sent = sent_bytes(local, layout.devices)
    counts = ", ".join(f"{times} {name} {human(each)}" for name, (times, each) in sent.items())
    lines = [
        f"  devices     {layout.devices}, each has 1/{layout.devices} of {shown}, {human(size)} in all, and all of the other "
        f"{len(axes) - len(parts)} arguments, {human(whole)}",
        f"              each sends {human(sum(each for _, each in sent.values()))} a call: {counts or 'nothing'}",
    ]
    lines += [f"              {note}" for note in getattr(executable, "notes", ())]
    computed = laid_out(program, layout.rule, layout.devices).whole
    if computed:
        more = f" and {len(computed) - 3} more" if len(computed) > 3 else ""
        lines.append(f"              every device computes all of: {'; '.join(computed[:3])}{more}")
    return lines
