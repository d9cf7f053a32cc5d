"""What differentiation makes of every operation of StableHLO and CHLO: behind `docs/derivatives.md` and the errors."""

from enum import StrEnum

from pcp.autodiff.rule import RULES
from pcp.ir.bindings import operation_names
from pcp.ir.toolkit.legalisation import DEPRECATED, DYNAMIC

_SHAPES = (
    "its shape is only known when the program runs; make the sizes constants, so that shapes can be refined"
)
_CHANNEL = "derivatives cannot follow what leaves the program through a channel; use a collective operation"
_QUANTISED = "quantised numbers cannot be differentiated; convert to floats, or train with reduce_precision"
_FUTURE = "asynchronous operations have no derivative; use the synchronous operation"

REFUSED: dict[str, str] = {
    "stablehlo.async_start": _FUTURE,
    "stablehlo.async_done": _FUTURE,
    "stablehlo.collective_reduce": "only one replica has its result; use all_reduce",
    "stablehlo.send": _CHANNEL,
    "stablehlo.recv": _CHANNEL,
    "stablehlo.set_dimension_size": _SHAPES,
    "stablehlo.uniform_quantize": _QUANTISED,
    "stablehlo.uniform_dequantize": _QUANTISED,
    "chlo._asin_acos_kernel": "it is a step inside the expansion of asin and acos; differentiate those",
    "chlo.ragged_dot": "it has no form without custom kernels; write it as a sum of masked products, as JAX does on a CPU",
    "chlo.scan": "it has no form that XLA compiles yet; write it as a while loop",
    **{f"stablehlo.{name}": _SHAPES for name in DYNAMIC},
    **{
        f"custom_call.stablehlo.{name}": _SHAPES
        for name in (
            "dynamic_approx_top_k",
            "dynamic_reduce_window",
            "dynamic_rng_bit_generator",
            "dynamic_top_k",
        )
    },
    **{
        f"custom_call.{name}": "it runs Python code, which cannot be differentiated; give the call a rule of its own"
        for name in (
            "xla_ffi_python_cpu_callback",
            "xla_ffi_python_gpu_callback",
            "xla_ffi_partitioned_python_cpu_callback",
            "xla_python_cpu_callback",
        )
    },
}
"""Why an operation has no derivative; the error says so."""

_WRITTEN_OUT = ("composite", "get_tuple_element", "tuple", *DEPRECATED)
DECOMPOSED = frozenset(f"stablehlo.{name}" for name in _WRITTEN_OUT)
"""Operations that are replaced by others before anything is differentiated."""

REFINED = frozenset(f"stablehlo.{name}" for name in DYNAMIC)
"""Operations that are replaced by others if their shapes are constants of the program, and refused if not."""


class Coverage(StrEnum):
    """What differentiation makes of an operation."""

    rule = "rule"
    zero = "zero by definition"
    decomposed = "by decomposition"
    refined = "by decomposition where its shapes are constants"
    target = "by the rule of its target"
    refused = "refused"
    unknown = "unknown"


def coverage_of(name: str) -> Coverage:
    """What differentiation makes of an operation, as `stablehlo.add`, `chlo.erf` or `custom_call.TARGET`."""
    if name in DECOMPOSED:
        return Coverage.decomposed
    if name in REFINED:
        return Coverage.refined
    if name == "stablehlo.custom_call":
        return Coverage.target
    if name in RULES:
        return Coverage.zero if RULES[name] is None else Coverage.rule
    return Coverage.refused if name in REFUSED else Coverage.unknown


def coverage() -> dict[str, Coverage]:
    """What differentiation makes of every operation of this jaxlib, and of every custom call that has a rule or a reason."""
    return {name: coverage_of(name) for name in sorted({*operation_names(), *RULES, *REFUSED})}


def reason_against(name: str) -> str:
    """Why an operation without a rule has no derivative."""
    return REFUSED.get(name, "there is no rule for it")


def as_markdown() -> str:
    """The table as `docs/derivatives.md` shows it: one line for each operation, with the reason where it is refused."""
    lines = ["| operation | derivative |", "|---|---|"]
    for name, found in coverage().items():
        reason = REFUSED.get(name)
        shown = (
            f"{found}: {reason}" if reason and found in (Coverage.refused, Coverage.refined) else str(found)
        )
        lines.append(f"| `{name.removeprefix('stablehlo.')}` | {shown} |")
    return "\n".join(lines)
