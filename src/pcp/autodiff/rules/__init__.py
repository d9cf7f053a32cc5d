"""The derivatives that need a driver: those of control flow and composites; importing this enters them.

Those of operations stand in their records, in `pcp.ops`.
"""

from pcp.autodiff.rules import annotations, branches, composites, loops

__all__ = ["annotations", "branches", "composites", "loops"]
