"""Kernels from outside that a user has added: kept by their content, and lowered to StableHLO for the sites of a program."""

from pcp.planning.added.store import Added as Added
from pcp.planning.added.store import CannotAdd as CannotAdd
from pcp.planning.added.store import NotAdded as NotAdded
from pcp.planning.added.store import Store as Store
from pcp.planning.added.store import register_added as register_added
