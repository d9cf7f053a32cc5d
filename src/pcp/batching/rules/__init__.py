"""The batched forms that need a driver: those of control flow and composites; importing this enters them.

Those of operations stand in their records, in `pcp.ops`.
"""

from pcp.batching.rules import composites, control

__all__ = ["composites", "control"]
