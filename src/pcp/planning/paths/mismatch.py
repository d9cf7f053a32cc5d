"""The error of a path that is not for what it is used for."""

from pcp.backends import backend_names
from pcp.errors import PCPError


class PathMismatch(PCPError):
    """A Path that belongs to another program, other hardware, or other versions of what it names."""


def expect_backend(name: str, said: str) -> None:
    """Look whether a backend is registered here.

    Arguments:
        said: who asks for it, as the beginning of a message.

    Raises:
        PathMismatch: it is not; the message lists those that are.
    """
    if name not in backend_names():
        raise PathMismatch(
            f"{said} is not here; there are: {', '.join(backend_names())}; plan again for one of them, or register it with "
            "pcp.backends.register_backend(name, 'module:Class') first"
        )
