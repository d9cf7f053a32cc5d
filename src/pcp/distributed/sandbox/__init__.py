"""Processes that meet bytes from the network, confined so that they cannot harm who started them.

`policy` says what a process may do and starts it; `jail` is its first file. It applies `limits`, then `landlock` (which files),
then `seccomp` (which system calls), each where the kernel has it, and only then imports what it is to run. `usage` is what it
takes of the disk, which its parent looks at.
"""

from pcp.distributed.sandbox.policy import NotConfined, Policy, Protection, is_confined, protection
from pcp.distributed.sandbox.usage import taken

__all__ = ["NotConfined", "Policy", "Protection", "is_confined", "protection", "taken"]
