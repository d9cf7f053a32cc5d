"""Rematerialisation: values of the forward pass that the backward pass makes again instead of keeping them.

Source: Griewank and Walther, "Evaluating Derivatives", 2nd edition, 2008, chapter 12 (checkpointing); Chen, Xu, Zhang and
Guestrin, "Training Deep Nets with Sublinear Memory Cost", arXiv:1604.06174.
"""

from pcp.autodiff.rematerialisation.checkpointing import may_be_kept, saved_in_blocks
from pcp.autodiff.rematerialisation.emission import write_schedule
from pcp.autodiff.rematerialisation.joint_graph import JointGraph
from pcp.autodiff.rematerialisation.policy import Remat, policy_of
from pcp.ir import Builder
from pcp.ir.bindings import ir
from pcp.ir.toolkit.functions import entry_block

_BOUNDARY = "pcp.backward_begins"


def mark_boundary(builder: Builder) -> None:
    """Say that the backward pass begins here; passes leave the mark where it stands."""
    attributes = {"call_target_name": _BOUNDARY, "has_side_effect": True}
    builder.emit("stablehlo.custom_call", [], [], attributes)


def rematerialise(module: ir.Module, remat: Remat | None) -> None:
    """Make values again in the backward pass of `main` where a policy, or the blocks that the user marked, say so.

    Arguments:
        module: a differentiated program whose boundary is marked; the mark is taken away.
        remat: which values are kept; None keeps all but those of marked blocks.

    Raises:
        UnknownPolicy: `remat` is no policy.
    """
    block = entry_block(module)
    *operations, _ = (op.operation for op in block.operations)
    forward = next(index for index, op in enumerate(operations) if _is_boundary(op))
    operations.pop(forward).erase()
    graph = JointGraph(block, forward)
    allowed = saved_in_blocks(graph, operations)
    policy = policy_of(remat)
    kept = {value for value in allowed if may_be_kept(policy, graph, operations, value)}
    write_schedule(module, block, graph, operations, graph.schedule(kept.__contains__))


def _is_boundary(op: ir.Operation) -> bool:
    return op.name == "stablehlo.custom_call" and _BOUNDARY in str(op.attributes["call_target_name"])
