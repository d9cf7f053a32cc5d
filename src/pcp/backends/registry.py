"""Which backends and devices there are, found by name."""

import functools
import os

from pcp.backends.base import Backend, Device, UnknownDevice


@functools.cache
def backend(name: str = "xla") -> Backend:
    """The backend of that name; it is imported when first asked for, because jax takes its time.

    Raises:
        UnknownDevice: there is none.
    """
    if name != "xla":
        raise UnknownDevice(f"{name!r} is not a backend; the only one is xla")
    from pcp.backends.xla import XLABackend

    return XLABackend()


def devices() -> list[Device]:
    """Every device of this machine that a Program can be compiled for."""
    return backend().devices()


def device(name: str | Device | None = None) -> Device:
    """The device called `cpu:0` or `cuda:1`; without a number the first of its kind.

    Without a name it is the one that the environment variable `PCP_DEVICE` names, or `cpu:0`.

    Raises:
        UnknownDevice: it is not there; the message lists those that are.
    """
    if isinstance(name, Device):
        return name
    name = os.environ.get("PCP_DEVICE", "cpu:0") if name is None else name
    found = {str(entry): entry for entry in devices()}
    wanted = name if ":" in name else f"{name}:0"
    if wanted not in found:
        raise UnknownDevice(f"{name!r} is not a device of this machine; choose one of: {', '.join(found)}")
    return found[wanted]
