"""The error of a path that is not for what it is used for."""

from pcp.errors import PCPError


class PathMismatch(PCPError):
    """A Path that belongs to another program, other hardware, or other versions of what it names."""
