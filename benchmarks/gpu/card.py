"""The GPU that contestants share, each in a process of its own."""

import os

from pcp import backends


def is_here(device: str) -> bool:
    """Whether there is such a device.

    Whoever asks makes a client of it. That must not take most of the GPU's memory, as JAX's clients do: contestants would find
    none. They may use nearly all of it, as PyTorch does.
    """
    os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")
    os.environ.setdefault("XLA_PYTHON_CLIENT_MEM_FRACTION", "0.95")
    return device.partition(":")[0] in {each.kind for each in backends.devices()}
