"""IREE's compiler: a process of its own, because a program that it cannot compile may end it."""

import re
from importlib.metadata import version

from pcp.backends.base import CompilationFailed, CompileOptions
from pcp.backends.cache import cache_key, default_cache
from pcp.backends.iree.chips import Chip
from pcp.backends.iree.prepared import with_safe_forms
from pcp.backends.processors import processor
from pcp.backends.target import expect_devices
from pcp.ir import DType, Program
from pcp.ir.bindings import context
from pcp.ir.operations import operations_of
from pcp.ir.toolkit.walking import named_operations

_INSTALL = "pip install 'planetary-compute-protocol[iree]'"
_TYPES = ["--iree-input-demote-f64-to-f32=false", "--iree-input-demote-i64-to-i32=false"]
"""A program means its element types."""
_WITHOUT_F64 = ("vulkan", "metal")
_ERROR = re.compile(r"error: (.*)")
_SHOWN = re.compile(r": %\w+ = |: \"|: #| to target executable for backend")
"""Where it goes on with its own form of the program, lines of it."""
_LONGEST_WORDS = 200
_OPERATION = re.compile(r"'((?:stablehlo|chlo)\.[\w.]+)'|undefined symbol: (\w+)")
"""What it names: an operation, or a function that code for it calls and nobody has, as `tanh` for float64."""


def compiled_for(program: Program, chip: Chip, options: CompileOptions, *, cache: bool) -> bytes:
    """A program as a module of IREE's virtual machine, with code for one chip.

    Raises:
        CompilationFailed: IREE refuses the program, or its compiler is not here.
        TooFewDevices: the program is one of several devices.
    """
    try:
        from iree.compiler.tools import CompilerToolError, compile_str
    except ImportError as error:
        raise CompilationFailed(
            f"IREE's compiler is not installed ({error}): {_INSTALL}, or compile with `pcp compile` on another machine "
            "and run the file here"
        ) from None
    expect_devices(program, 1, str(chip))
    _check(program, chip)
    flags = [*chip.flags, *_TYPES, *(f"--{name}={_text(value)}" for name, value in sorted(options.items()))]
    source = with_safe_forms(program).artifact()

    def compiled() -> bytes:
        try:
            module: bytes = compile_str(source, input_type="stablehlo", extra_args=flags)
        except CompilerToolError as error:
            raise CompilationFailed(_explained(str(error), chip)) from None
        return module

    if not cache:
        return compiled()
    store = default_cache()
    key = cache_key(["iree", version("iree-base-compiler"), *flags, processor(), source])
    kept = store.get(key)
    if kept is None:
        with store.building(key):
            kept = store.get(key)
            if kept is None:
                kept = compiled()
                store.put(key, kept)
    return kept


def _check(program: Program, chip: Chip) -> None:
    """Refuse calls of native code, which only XLA can make, and what IREE computes wrongly.

    Raises:
        CompilationFailed: there is such an operation.
    """
    if chip.kind == "vulkan" and (narrow := _narrow_float(program)):
        raise CompilationFailed(
            f"IREE gives wrong numbers for {narrow} on Vulkan, and the program computes in it (target iree:{chip}): write it "
            "in f32, or run it by XLA"
        )
    module = program.module()
    with context():
        for call in named_operations(module.operation, "stablehlo.custom_call"):
            raise CompilationFailed(
                f"IREE has no stablehlo.custom_call, and the program calls {call.attributes['call_target_name']} "
                f"(target iree:{chip}): run it by XLA, or plan it without that kernel"
            )


def _narrow_float(program: Program) -> str | None:
    """A type of 16-bit floats that an argument or a result of an operation has."""
    specs = [entry.spec for entry in program.arguments]
    specs += [spec for op in operations_of(program) for spec in op.specs if spec is not None]
    return next((spec.dtype for spec in specs if spec.dtype in (DType.f16, DType.bf16)), None)


def _explained(said: str, chip: Chip) -> str:
    """What the compiler says, with the operation that it names."""
    errors = [_SHOWN.split(each)[0][:_LONGEST_WORDS] for each in _ERROR.findall(said)]
    named = _OPERATION.search(said)
    what = f"{named[1] or named[2]} " if named else "the program "
    why = "; ".join(dict.fromkeys(errors[:3])) or f"its compiler ended: {said.strip()[-300:]}"
    without = (
        "in f32: IREE has no f64 there"
        if chip.kind in _WITHOUT_F64 and "f64" in said
        else "without that operation"
    )
    return f"IREE refuses {what}for target iree:{chip}: {why}; run the program by XLA, or write it {without}"


def _text(value: str | int | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
