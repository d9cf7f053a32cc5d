"""Large programs that paths make, kept on disk beside compiled forms: to prepare one, and to put hundreds of kernels in, takes
seconds."""

from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

from pcp.backends.cache import cache_key, default_cache
from pcp.ir import Program
from pcp.ir.program_file import code_digest
from pcp.kernels import Kernel
from pcp.kernels.features import KINDS, features_of

LARGE = 1 << 18
"""Bytes of a program for which what is made of it is kept; of a smaller one it is made sooner than it is found."""


class _Chosen(Protocol):
    """A path."""

    @property
    def digest(self) -> str: ...

    def kernels(self) -> Mapping[str, Kernel]: ...


def kept(path: _Chosen, program: Program, make: Callable[[], Program]) -> Program:
    """What a path makes of a program, as the same code and kernels made it before on a machine with the same features.

    Arguments:
        make: makes it where that was not so.
    """
    if len(program.bytecode) < LARGE:
        return make()
    kernels = sorted({(each.name, each.version, each.artifact.digest) for each in path.kernels().values()})
    features = [sorted(features_of(kind)) for kind in sorted(KINDS)]
    return kept_form(program, "applied", (path.digest, kernels, features), make)


def kept_form(program: Program, what: str, facts: object, make: Callable[[], Program]) -> Program:
    """What is made of a program, as the same code made it before with the same versions.

    Arguments:
        what: is made.
        facts: that it depends on beside the program and the code, as `repr` shows them.
        make: makes it where that was not so.
    """
    if len(program.bytecode) < LARGE:
        return make()
    versions = [version_of(each) for each in ("jax", "jaxlib", "egglog")]
    store = default_cache()
    key = cache_key([what, program.bytecode, repr(facts), code_digest(), repr(versions)])
    bytecode = store.get(key)
    if bytecode is None:
        form = make()
        store.put(key, form.bytecode)
        return form
    return program if bytecode == program.bytecode else Program(bytecode)


def version_of(package: str) -> str:
    """The version of a package; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
