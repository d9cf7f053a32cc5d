"""Operations replaced by others that say the same, by the passes of StableHLO."""

from pcp.ir.bindings import ir, run_passes
from pcp.ir.toolkit.walking import every_operation

DEPRECATED = ("broadcast", "create_token", "cross-replica-sum", "dot", "unary_einsum")
"""Operations of StableHLO that a pass replaces by others."""


DYNAMIC = (
    "dynamic_broadcast_in_dim", "dynamic_conv", "dynamic_gather", "dynamic_iota", "dynamic_pad", "dynamic_reshape",
    "real_dynamic_slice",
)  # fmt: skip
"""Operations of StableHLO that a pass replaces by others where the shapes in their operands are constants."""


def legalise_chlo(module: ir.Module) -> None:
    """Replace, in place, operations of CHLO, which have no portable form, by what they are made of in StableHLO."""
    run_passes(module, "builtin.module(func.func(chlo-legalize-to-stablehlo))")


def legalise(module: ir.Module) -> None:
    """Replace, in place, deprecated operations and those of dynamic shape whose shapes are constants of the program."""
    names = {op.name.removeprefix("stablehlo.") for op in every_operation(module.operation)}
    if names.intersection(DEPRECATED):
        run_passes(module, "builtin.module(func.func(stablehlo-legalize-deprecated-ops))")
    if names.intersection(DYNAMIC):
        run_passes(
            module, "builtin.module(stablehlo-refine-shapes,func.func(stablehlo-canonicalize-dynamism))"
        )
