"""The canonical form of a program, in which its sites are looked for, whoever wrote it.

Channels of images stand last. What depends on no argument is computed, where it says which keys a query sees; masks are true
where a key is seen; products are over axes that are not joined; then plain forms get their names, and keys that are repeated
for several heads stand once.
"""

from pcp.ir import Program
from pcp.rewrite.canonical import groups, joined, selections
from pcp.rewrite.canonical.channels import with_channels_last
from pcp.rewrite.canonical.masks import with_known_masks
from pcp.rewrite.driver import rewrite
from pcp.rewrite.raising import raised


def canonical(program: Program) -> Program:
    """The program in canonical form.

    Arguments:
        program: any Program; it stays as it is.

    Returns:
        A Program with the same arguments, and the same results by IEEE 754.
    """
    ready = rewrite(with_known_masks(with_channels_last(program)), (*selections.ROWS, *joined.ROWS))
    return rewrite(raised(ready), groups.ROWS)
