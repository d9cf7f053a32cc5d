"""Sites: the operations of a program for which there are kernels; found, cut out, and replaced.

A site is known by the dataflow digest of its operation in its program, so names, locations and the order of operations do not
change it; two operations that compute the same value are one site. A composite is a pattern of several operations, and what is
inside of it are sites, too: they are known by the composite they are in, and a choice covers either the composite or what
is inside.
"""

import functools
import hashlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from pcp.autodiff.loops.trips import trips_around
from pcp.errors import PCPError
from pcp.ir import Builder, Program
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE
from pcp.ir.digest import operation_digests
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.editing import erase_dead
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.walking import walk_block
from pcp.kernels.groups import Group, groups_in, users_between
from pcp.kernels.kernel import Kernel
from pcp.kernels.regions import only_operation, region_of, written_out
from pcp.kernels.registry import Family, family_of
from pcp.tensor import Tensor, building
from pcp.tracing import call

_Handed = dict[tuple[tuple[str, ...], tuple[Value, ...]], tuple[ir.Block, Sequence[Tensor]]]
"""Residuals by their names, and the operands of the operation that they are of; and the block that they stand in."""
_Put = Callable[[ir.Operation, Builder, _Handed], None]


class UnknownSite(PCPError):
    """A choice for a site that the program does not have."""


class OverlappingSites(PCPError):
    """Choices for two sites that have an operation in common, or that wait for each other."""


class BadReplacement(PCPError):
    """A kernel that returned other shapes or element types than the operation it stands for."""


@dataclass(frozen=True, slots=True)
class Site:
    """An operation of a program, or several, for which there are kernels.

    Arguments:
        key: the dataflow digest of the operation in its program, or one made of several operations' digests.
        family: of kernels.
        region: the operations alone, as a Program of their operands.
        kernels: names of those that apply on the device.
        location: where the user wrote it; empty if that is unknown.
        trips: how often it runs in one call; a loop of which that is not known counts as one trip.
        inside: keys of the composites that it is part of, the outermost first.
        takes: keys of the operations that a kernel computes here.
        hides: keys of those among them whose results are not there any more then.
        reads: of several operations, keys of those that make what they take.
        pair: of a gradient, the forward operation and it, as a Program of their operands; None where there is none.
        lacks: what this machine lacks for further kernels, by their names.
    """

    key: str
    family: str
    region: Program
    kernels: tuple[str, ...]
    location: str
    trips: int = 1
    inside: tuple[str, ...] = ()
    takes: frozenset[str] = frozenset()
    hides: frozenset[str] = frozenset()
    reads: frozenset[str] = frozenset()
    pair: Program | None = None
    lacks: Mapping[str, str] = field(default_factory=dict, compare=False)


class Devices(Protocol):
    """What a program is to run on: a `pcp.Target`, of whose devices kernels ask the kind."""

    @property
    def platform(self) -> str: ...


Place = Devices | str


def sites_of(program: Program, target: Place, *, bare: bool = False, builds: bool = True) -> tuple[Site, ...]:
    """Every site of a program, in order, those in a composite after it, with the kernels that apply on a target.

    Arguments:
        target: a `pcp.Target`, or a kind of device, as `"cuda"`, of which none need be here.
        bare: whether operations of a family count, too, for which none of its kernels applies.
        builds: whether native libraries are built of which a kernel needs one; if not, each counts as one that can be had.
    """
    return _sites(program, target if isinstance(target, str) else target.platform, {}, bare, builds)


def _sites(
    program: Program, platform: str, known: dict[str, tuple[Site, ...]], bare: bool, builds: bool
) -> tuple[Site, ...]:
    """As `sites_of`.

    Arguments:
        known: sites inside of composites that were looked at, by the digests of their regions.
    """
    module = program.module()
    inline_calls(module)
    keys = operation_digests(module)
    block = entry_block(module)
    sites: dict[str, Site] = {}
    forward: dict[tuple[str, tuple[Value, ...]], ir.Operation] = {}
    loops: dict[ir.Operation, int] = {}
    for op in walk_block(block):
        family, key = family_of(op), keys[op]
        if family is not None and family.gradient:
            forward[family.gradient, tuple(op.operands)] = op
        if key in sites or (family is None and op.name != COMPOSITE):
            continue
        region, place, trips = region_of(op), describe_location(op.location), trips_around(op, loops)
        if family is not None:
            names, lacks = _kernels_for(family, op, platform, builds)
            if names or bare:
                pair = None
                if any(family.kernels[name].takes for name in names):
                    partners = (forward.get((family.name, each)) for each in _beginnings(op))
                    partner = next(filter(None, partners), None)
                    pair = None if partner is None else region_of(partner, op)
                sites[key] = Site(
                    key,
                    family.name,
                    region,
                    names,
                    place,
                    trips,
                    takes=frozenset({key}),
                    pair=pair,
                    lacks=lacks,
                )
        if op.name == COMPOSITE:
            if region.digest not in known:
                known[region.digest] = _sites(written_out(region), platform, known, bare, builds)
            for site in known[region.digest]:
                inner = _key_inside(key, site.key)
                around = (key, *(_key_inside(key, each) for each in site.inside))
                takes, hides, reads = (
                    frozenset(_key_inside(key, each) for each in some)
                    for some in (site.takes, site.hides, site.reads)
                )
                sites[inner] = replace(
                    site,
                    key=inner,
                    location=site.location or place,
                    trips=trips * site.trips,
                    inside=around,
                    takes=takes,
                    hides=hides,
                    reads=reads,
                )
    for group in groups_in(block):
        region, place = group.region(program, block), describe_location(group.last.location)
        inner_module = region.module()
        names, lacks = _kernels_for(group.family, only_operation(entry_block(inner_module)), platform, builds)
        if names or bare:
            key = group.key(keys)
            sites[key] = Site(
                key,
                group.family.name,
                region,
                names,
                place,
                trips_around(group.last, loops),
                takes=group.takes(keys),
                hides=group.hides(keys),
                reads=group.reads(keys),
                lacks=lacks,
            )
    return tuple(sites.values())


def _kernels_for(
    family: Family, op: ir.Operation, platform: str, builds: bool
) -> tuple[tuple[str, ...], dict[str, str]]:
    """The kernels of a family that can stand in the place of an operation, by name, and what the machine lacks for others."""
    fitting = family.fitting(op, platform)
    lacks = {kernel.name: reason for kernel in fitting if (reason := kernel.lacks(platform, builds=builds))}
    return tuple(kernel.name for kernel in fitting if kernel.name not in lacks), lacks


def _key_inside(composite: str, key: str) -> str:
    """The key of a site inside of a composite, from its key in what the composite decomposes into."""
    return hashlib.sha256(f"{composite} {key}".encode()).hexdigest()


def _keys_inside(written: Program) -> Iterator[str]:
    """The key of every operation and group of a program, and of those inside of its composites."""
    module = written.module()
    inline_calls(module)
    keys = operation_digests(module)
    for op in walk_block(entry_block(module)):
        yield keys[op]
        if op.name == COMPOSITE:
            yield from (_key_inside(keys[op], key) for key in _keys_inside(written_out(region_of(op))))
    yield from (group.key(keys) for group in groups_in(entry_block(module)))


def missing_kernels(sites: Iterable[Site]) -> dict[str, list[str]]:
    """The kernels that could stand at sites, if this machine did not lack what they need.

    Arguments:
        sites: bare ones among them.

    Returns:
        Their names, by what they lack.
    """
    reasons = {name: reason for site in sites for name, reason in site.lacks.items()}
    return {
        each: [name for name in reasons if reasons[name] == each] for each in dict.fromkeys(reasons.values())
    }


def look_at(op: ir.Operation) -> None:
    """Read of an operation what every kernel of its family reads to say whether it applies; what that raises is not caught."""
    family = family_of(op)
    for kernel in family.kernels.values() if family is not None else ():
        kernel.applies(op)


def apply_kernels(program: Program, choices: Mapping[str, Kernel]) -> Program:
    """The program with kernels in the place of sites.

    Arguments:
        program: any Program; it stays as it is.
        choices: a kernel for the key of each site that does not stay as it is.

    Raises:
        UnknownSite: the program has no such site.
        OverlappingSites: two of the sites have an operation in common.
        BadReplacement: a kernel returns other types than the operation has.
    """
    if not choices:
        return program
    module = program.module()
    inline_calls(module)
    keys = operation_digests(module)
    block = entry_block(module)
    # An operation hashes its operands: once a kernel stands before it, no dictionary finds it any more.
    chosen: list[tuple[int, ir.Operation, _Put]] = []
    order: dict[ir.Operation, int] = {}
    missing = set(choices) - set(keys.values())
    grouped = [(group, group.key(keys)) for group in groups_in(block)] if missing else []
    grouped = [(group, key) for group, key in grouped if key in missing]
    missing -= {key for _, key in grouped}
    for place, op in enumerate(walk_block(block)):
        order[op] = place
        if keys[op] in choices:
            chosen.append((place, op, functools.partial(_put, choices[keys[op]])))
        elif op.name == COMPOSITE and missing:
            region = region_of(op)
            written = written_out(region)
            inside = {key: _key_inside(keys[op], key) for key in _keys_inside(written)}
            taken = {key: choices[name] for key, name in inside.items() if name in choices}
            if taken:
                missing -= {inside[key] for key in taken}
                chosen.append((place, op, functools.partial(_put_written_out, apply_kernels(written, taken))))
    if missing:
        raise UnknownSite(
            f"program {program.digest[:12]} does not have the site {', '.join(sorted(key[:12] for key in missing))}; "
            "the choices belong to another program"
        )
    _check_apart(grouped, [keys[op] for _, op, _ in chosen], keys)
    places = [order[group.last] for group, _ in grouped]
    handed: _Handed = {}
    with context(), building(Builder(module, block)) as builder:
        composites = _composites([group for group, _ in grouped], builder)
        for place, op, (_, key) in zip(places, composites, grouped, strict=True):
            chosen.append((place, op, functools.partial(_put, choices[key])))
        for _, op, put in sorted(chosen, key=lambda each: each[0]):
            put(op, builder, handed)
    erase_dead(block)
    return Program.from_module(module)


def _composites(groups: Sequence[Group], builder: Builder) -> list[ir.Operation]:
    """Put a composite in the place of each of these groups.

    Raises:
        OverlappingSites: two of them wait for each other.
    """
    composites = []
    for group in groups:  # all of them, before any value is another
        with builder.before(group.last):
            builder.pinned = group.last.location
            composites.append(group.emit(builder, group.inputs))
            builder.pinned = None
    for group, op in zip(groups, composites, strict=True):
        users = users_between(op.operands, group.results)
        if users is None:
            raise OverlappingSites(
                f"kernels were chosen for sites of {', '.join(sorted({each.family.name for each in groups}))} that wait for "
                "each other's results; choose for one of them"
            )
        for user in users:
            user.move_before(group.last)
        for old, new in zip(group.results, op.results, strict=True):
            old.replace_all_uses_with(new)
    return composites


def _check_apart(
    grouped: Sequence[tuple[Group, str]], others: Sequence[str], keys: Mapping[ir.Operation, str]
) -> None:
    """Look whether no operation is computed by two kernels.

    Raises:
        OverlappingSites: one is.
    """
    taken = dict.fromkeys(others, "")
    for group, key in grouped:
        for each in group.takes(keys):
            if taken.get(each, key) != key:
                raise OverlappingSites(
                    f"kernels were chosen for site {key[:12]} of {group.family.name} and for {(taken[each] or each)[:12]}, "
                    "which have an operation in common; choose for one of them"
                )
            taken[each] = key


def replaced(region: Program, kernel: Kernel) -> Program:
    """The region of a site, computed by a kernel instead.

    Raises:
        BadReplacement: the kernel returns other types than the operation has.
    """
    module = region.module()
    block = entry_block(module)
    with context(), building(Builder(module, block)) as builder:
        _put(kernel, only_operation(block), builder, {})
    erase_dead(block)
    return Program.from_module(module)


def _put(kernel: Kernel, op: ir.Operation, builder: Builder, handed: _Handed) -> None:
    taken = _residuals_for(kernel, op, handed)
    with builder.before(op):
        builder.pinned = op.location
        results = kernel.build(op, taken)
        count = len(op.results)
        operands = tuple(kernel.hands_to(op, results[:count])) if kernel.hands else ()
        _replace(op, results if not kernel.hands else results[:count], kernel)
        builder.pinned = None
    if kernel.hands:
        handed[kernel.hands, operands] = ir.InsertionPoint(op).block, results[count:]


def _residuals_for(kernel: Kernel, op: ir.Operation, handed: _Handed) -> Sequence[Tensor]:
    """What a forward kernel handed on in the same block that a gradient takes."""
    if not kernel.takes:
        return ()
    offers = filter(None, (handed.get((kernel.takes, operands)) for operands in _beginnings(op)))
    block = ir.InsertionPoint(op).block
    return next((residuals for around, residuals in offers if around == block), ())


def _beginnings(op: ir.Operation) -> Iterator[tuple[Value, ...]]:
    """What the operands of the forward operation may be, of a gradient: its own first ones, most of them first."""
    operands = tuple(op.operands)
    return (operands[:count] for count in range(len(operands), 0, -1))


def _put_written_out(written: Program, op: ir.Operation, builder: Builder, handed: _Handed) -> None:  # noqa: ARG001
    """Put a composite's own operations in its place, some of which kernels compute."""
    with builder.before(op):
        builder.pinned = op.location
        results = call(written, *(Tensor(value, builder) for value in dict.fromkeys(op.operands)))
        for old, new in zip(op.results, results if isinstance(results, tuple) else (results,), strict=True):
            old.replace_all_uses_with(new.value)
        builder.pinned = None


def _replace(op: ir.Operation, results: Sequence[Tensor], kernel: Kernel) -> None:
    expected = [result.type for result in op.results]
    types = [tensor.value.type for tensor in results]
    if types != expected:
        raise BadReplacement(
            f"kernel {kernel.name} returned {', '.join(map(str, types))} in the place of {op.name}, which returns "
            f"{', '.join(map(str, expected))}; expected the same"
        )
    for old, new in zip(op.results, results, strict=True):
        old.replace_all_uses_with(new.value)
