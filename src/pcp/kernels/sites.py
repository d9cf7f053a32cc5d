"""Sites: the operations of a program for which there are kernels; found, cut out, and replaced.

A site is known by the dataflow digest of its operation in its program, so names, locations and the order of operations do not
change it; two operations that compute the same value are one site.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir import Argument, Builder, Program, Result, Role, Tree
from pcp.ir.bindings import Value, context, ir
from pcp.ir.composites import COMPOSITE, decomposition_of
from pcp.ir.digest import operation_digests
from pcp.ir.signature import describe_signature
from pcp.ir.toolkit.attributes import describe_location
from pcp.ir.toolkit.editing import erase_dead, substitute
from pcp.ir.toolkit.functions import entry_block
from pcp.ir.toolkit.inlining import inline_calls
from pcp.ir.toolkit.regions import values_from_outside
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import walk_block
from pcp.ir.tree import LEAF
from pcp.kernels.kernel import Kernel
from pcp.kernels.registry import family_of
from pcp.tensor import Tensor, building
from pcp.tracing import close_main, open_main


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
    """

    key: str
    family: str
    region: Program
    kernels: tuple[str, ...]
    location: str
    trips: int = 1


def sites_of(program: Program, platform: str) -> tuple[Site, ...]:
    """Every site of a program, in order, with the kernels that apply on a kind of device."""
    module = program.module()
    inline_calls(module)
    keys = operation_digests(module)
    found: dict[str, Site] = {}
    for op in walk_block(entry_block(module)):
        family = family_of(op)
        if family is None or keys[op] in found:
            continue
        names = tuple(name for name, kernel in family.kernels.items() if kernel.applies(op, platform))
        if names:
            place = describe_location(op.location)
            found[keys[op]] = Site(keys[op], family.name, region_of(op), names, place)
    return tuple(found.values())


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
    missing = set(choices) - set(keys.values())
    if missing:
        raise UnknownSite(
            f"program {program.digest[:12]} does not have the site {', '.join(sorted(key[:12] for key in missing))}; "
            "the choices belong to another program"
        )
    # An operation hashes its operands: once a kernel stands before it, no dictionary finds it any more.
    chosen = [(op, choices[keys[op]]) for op in walk_block(block) if keys[op] in choices]
    with context(), building(Builder(module, block)) as builder:
        for op, kernel in chosen:
            _put(kernel, op, builder)
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
        _put(kernel, _only(block), builder)
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


def _put(kernel: Kernel, op: ir.Operation, builder: Builder) -> None:
    with builder.before(op):
        builder.pinned = op.location
        _replace(op, kernel.build(op), kernel)
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
