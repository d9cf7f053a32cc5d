"""Sites: the operations of a program for which there are kernels; found, cut out, and replaced.

A site is known by the dataflow digest of its operation in its program, so names, locations and the order of operations do not
change it; two operations that compute the same value are one site. A composite is a pattern of several operations, and what is
inside of it are sites, too: they are known by the composite they are in, and a choice covers either the composite or what
is inside.
"""

import functools
import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from pcp.errors import PCPError
from pcp.ir import Argument, Builder, Program, Result, Role, Tree
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE, decomposition_of
from pcp.ir.digest import operation_digests
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.editing import erase_dead, substitute
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls, inline_composites
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ir.tree import LEAF
from pcp.kernels.kernel import Kernel
from pcp.kernels.registry import Family, family_of
from pcp.tensor import Tensor, building
from pcp.tracing import call, close_main, open_main

_Handed = dict[tuple[str, tuple[Value, ...]], dict[str, Tensor]]
"""Residuals by the name of the kernel that handed them on, and the operands that it had."""
_Put = Callable[[ir.Operation, Builder, _Handed], None]


class UnknownSite(PCPError):
    """A choice for a site that the program does not have."""


class BadReplacement(PCPError):
    """A kernel that returned other shapes or element types than the operation it stands for."""


@dataclass(frozen=True, slots=True)
class Site:
    """An operation of a program for which there are kernels.

    Arguments:
        key: the dataflow digest of the operation in its program.
        family: of kernels.
        region: the operation alone, as a Program of its operands.
        kernels: names of those that apply on the device.
        location: where the user wrote it; empty if that is unknown.
        trips: how often it runs in one call, as far as that is known.
        inside: keys of the composites that it is part of, the outermost first; a kernel for one of those leaves it out.
    """

    key: str
    family: str
    region: Program
    kernels: tuple[str, ...]
    location: str
    trips: int = 1
    inside: tuple[str, ...] = ()


def sites_of(program: Program, platform: str) -> tuple[Site, ...]:
    """Every site of a program, in order, those in a composite after it, with the kernels that apply on a kind of device."""
    return _sites(program, platform, {})


def _sites(program: Program, platform: str, known: dict[str, tuple[Site, ...]]) -> tuple[Site, ...]:
    """As `sites_of`.

    Arguments:
        known: sites inside of composites that were looked at, by the digests of their regions.
    """
    module = program.module()
    inline_calls(module)
    keys = operation_digests(module)
    found: dict[str, Site] = {}
    for op in walk_block(entry_block(module)):
        family, key = family_of(op), keys[op]
        if key in found or (family is None and op.name != COMPOSITE):
            continue
        region, place = region_of(op), describe_location(op.location)
        if family is not None:
            fitting = [kernel for kernel in _fitting(family, op, platform) if not kernel.lacks(platform)]
            names = tuple(kernel.name for kernel in fitting)
            if names:
                found[key] = Site(key, family.name, region, names, place)
        if op.name == COMPOSITE:
            if region.digest not in known:
                known[region.digest] = _sites(written_out(region), platform, known)
            for site in known[region.digest]:
                inner = _key_inside(key, site.key)
                around = (key, *(_key_inside(key, each) for each in site.inside))
                found[inner] = replace(site, key=inner, location=site.location or place, inside=around)
    return tuple(found.values())


def written_out(region: Program) -> Program:
    """The region of a composite with what the composite decomposes into, in which composites stay."""
    module = region.module()
    composite = _only(entry_block(module))
    inline_composites(module, lambda op: op != composite)
    inline_calls(module)
    return Program.from_module(module)


def _key_inside(composite: str, key: str) -> str:
    """The key of a site inside of a composite, from its key in what the composite decomposes into."""
    return hashlib.sha256(f"{composite} {key}".encode()).hexdigest()


def _keys_inside(written: Program) -> Iterator[str]:
    """The key of every operation of a program, and of those inside of its composites."""
    module = written.module()
    inline_calls(module)
    keys = operation_digests(module)
    for op in walk_block(entry_block(module)):
        yield keys[op]
        if op.name == COMPOSITE:
            yield from (_key_inside(keys[op], key) for key in _keys_inside(written_out(region_of(op))))


def missing_kernels(program: Program, platform: str) -> dict[str, str]:
    """The kernels that could stand somewhere in a program on a kind of device, if this machine did not lack what they need.

    Returns:
        By name, what it lacks.
    """
    module = program.module()
    inline_calls(module)
    found: dict[str, str] = {}
    for op in walk_block(entry_block(module)):
        family = family_of(op)
        if family is not None and any(kernel.needs for kernel in family.kernels.values()):
            reasons = {kernel.name: kernel.lacks(platform) for kernel in _fitting(family, op, platform)}
            found |= {name: reason for name, reason in reasons.items() if reason}
    return found


def look_at(op: ir.Operation) -> None:
    """Read of an operation what every kernel of its family reads to say whether it applies; what that raises is not caught."""
    family = family_of(op)
    for kernel in family.kernels.values() if family is not None else ():
        kernel.applies(op)


def _fitting(family: Family, op: ir.Operation, platform: str) -> list[Kernel]:
    """The kernels that are for an operation, and for a kind of device."""
    return [kernel for kernel in family.kernels.values() if kernel.is_for(platform) and kernel.applies(op)]


def apply_kernels(program: Program, choices: Mapping[str, Kernel]) -> Program:
    """The program with kernels in the place of sites.

    Arguments:
        program: any Program; it stays as it is.
        choices: a kernel for the key of each site that does not stay as it is.

    Raises:
        UnknownSite: the program has no such site.
        BadReplacement: a kernel returns other types than the operation has.
    """
    if not choices:
        return program
    module = program.module()
    inline_calls(module)
    keys = operation_digests(module)
    block = entry_block(module)
    # An operation hashes its operands: once a kernel stands before it, no dictionary finds it any more.
    chosen: list[tuple[ir.Operation, _Put]] = []
    missing = set(choices) - set(keys.values())
    for op in walk_block(block):
        if keys[op] in choices:
            chosen.append((op, functools.partial(_put, choices[keys[op]])))
        elif op.name == COMPOSITE and missing:
            region = region_of(op)
            written = written_out(region)
            inside = {key: _key_inside(keys[op], key) for key in _keys_inside(written)}
            taken = {key: choices[name] for key, name in inside.items() if name in choices}
            if taken:
                missing -= {inside[key] for key in taken}
                chosen.append((op, functools.partial(_put_written_out, apply_kernels(written, taken))))
    if missing:
        raise UnknownSite(
            f"program {program.digest[:12]} does not have the site {', '.join(sorted(key[:12] for key in missing))}; "
            "the choices belong to another program"
        )
    handed: _Handed = {}
    with context(), building(Builder(module, block)) as builder:
        for op, put in chosen:
            put(op, builder, handed)
    erase_dead(block)
    return Program.from_module(module)


def replaced(region: Program, kernel: Kernel) -> Program:
    """The region of a site, computed by a kernel instead.

    Raises:
        BadReplacement: the kernel returns other types than the operation has.
    """
    module = region.module()
    block = entry_block(module)
    with context(), building(Builder(module, block)) as builder:
        _put(kernel, _only(block), builder, {})
    erase_dead(block)
    return Program.from_module(module)


def region_of(op: ir.Operation) -> Program:
    """An operation alone, as a Program of the values it takes, those from outside its regions last."""
    operands: list[Value] = list(dict.fromkeys([*op.operands, *values_from_outside(op)]))
    specs = [spec_of(value.type) for value in operands]
    with context(), ir.Location.unknown():
        module = ir.Module.create()
        if op.name == COMPOSITE:
            decomposition_of(op).clone(ip=ir.InsertionPoint(module.body))
        main, block = open_main(module, specs)
        builder = Builder(module, block)
        with building(builder):
            copy = op.clone(ip=builder.insertion)
            for value, argument in zip(operands, block.arguments, strict=True):
                substitute(copy, {value: argument})
            results = [Tensor(value, builder) for value in copy.results]
            close_main(main, block, results)
        taken = [Argument(str(i), each, Role.input) for i, each in enumerate(specs)]
        made = [Result(str(i), tensor.spec) for i, tensor in enumerate(results)]
        describe_signature(main, taken, made, _flat(len(taken)), _flat(len(made)))
    return Program.from_module(module)


def _flat(count: int) -> Tree:
    return Tree("tuple", (), (LEAF,) * count)


def _only(block: ir.Block) -> ir.Operation:
    return next(op.operation for op in block.operations)


def _put(kernel: Kernel, op: ir.Operation, builder: Builder, handed: _Handed) -> None:
    operands = tuple(op.operands)
    taken = _residuals_for(kernel, op, handed)
    with builder.before(op):
        builder.pinned = op.location
        found = kernel.build(op, taken)
        count = len(op.results)
        _replace(op, found if not kernel.hands else found[:count], kernel)
        builder.pinned = None
    if kernel.hands and _is_in_main(op):
        handed[kernel.name, operands] = dict(zip(kernel.hands, found[count:], strict=True))


def _residuals_for(kernel: Kernel, op: ir.Operation, handed: _Handed) -> list[Tensor]:
    """What the forward kernel handed on that a gradient takes, whose first operands are those of the forward operation."""
    if not kernel.takes or not _is_in_main(op):
        return []
    forward, *names = kernel.takes
    operands = tuple(op.operands)
    for count in range(len(operands), 0, -1):
        found = handed.get((forward, operands[:count]))
        if found is not None:
            return [found[name] for name in names]
    return []


def _is_in_main(op: ir.Operation) -> bool:
    """Whether what stands at an operation is seen by all that follow."""
    return op.parent is not None and op.parent.name == "func.func"


def _put_written_out(written: Program, op: ir.Operation, builder: Builder, handed: _Handed) -> None:  # noqa: ARG001
    """Put a composite's own operations in its place, some of which kernels compute."""
    with builder.before(op):
        builder.pinned = op.location
        made = call(written, *(Tensor(value, builder) for value in dict.fromkeys(op.operands)))
        for old, new in zip(op.results, made if isinstance(made, tuple) else (made,), strict=True):
            old.replace_all_uses_with(new.value)
        builder.pinned = None


def _replace(op: ir.Operation, found: Sequence[Tensor], kernel: Kernel) -> None:
    expected = [result.type for result in op.results]
    given = [tensor.value.type for tensor in found]
    if given != expected:
        raise BadReplacement(
            f"kernel {kernel.name} returned {', '.join(map(str, given))} in the place of {op.name}, which returns "
            f"{', '.join(map(str, expected))}; expected the same"
        )
    for old, new in zip(op.results, found, strict=True):
        old.replace_all_uses_with(new.value)
