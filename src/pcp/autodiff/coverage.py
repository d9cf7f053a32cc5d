"""What differentiation makes of every operation of StableHLO and CHLO: behind the page of derivatives and the errors."""

from enum import StrEnum

from pcp.ir.bindings import operation_names
from pcp.ops.derivative import REFUSED, RULES
from pcp.ops.record import Kind, kind_of

_PYTHON = "it runs Python code, which cannot be differentiated; give the call a rule of its own"

REFUSED.update(
    {
        f"custom_call.stablehlo.{name}": REFUSED["stablehlo.dynamic_reshape"]
        for name in (
            "dynamic_approx_top_k",
            "dynamic_reduce_window",
            "dynamic_rng_bit_generator",
            "dynamic_top_k",
        )
    }
)
REFUSED.update(
    {
        f"custom_call.{name}": _PYTHON
        for name in (
            "xla_ffi_python_cpu_callback",
            "xla_ffi_python_gpu_callback",
            "xla_ffi_partitioned_python_cpu_callback",
            "xla_python_cpu_callback",
        )
    }
)


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
    if kind_of(name) is Kind.replaced:
        return Coverage.refined if name in REFUSED else Coverage.decomposed
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
    """The table as the page of derivatives shows it: one line for each operation, with the reason where it is refused."""
    lines = ["| operation | derivative |", "|---|---|"]
    for name, kind in coverage().items():
        reason = REFUSED.get(name)
        shown = f"{kind}: {reason}" if reason and kind in (Coverage.refused, Coverage.refined) else str(kind)
        lines.append(f"| `{name.removeprefix('stablehlo.')}` | {shown} |")
    return "\n".join(lines)
