"""Arrays over several devices, as JAX has them: whole on each, or cut along an axis."""

import functools
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

_NAME = "devices"


@functools.lru_cache(maxsize=256)
def sharding_over(natives: tuple[Any, ...], axis: int | None) -> NamedSharding:
    """Of arrays that each device has whole, or that are cut along an axis, in the order of the devices."""
    cut = () if axis is None else (*([None] * axis), _NAME)
    return NamedSharding(_mesh(natives), PartitionSpec(*cut))  # type: ignore[no-untyped-call]  # it has no types


@functools.lru_cache(maxsize=16)
def _mesh(natives: tuple[Any, ...]) -> Mesh:
    return Mesh(np.array(natives), (_NAME,))


def over(array: Any, sharding: NamedSharding) -> Any:
    """An array over the devices of a sharding; never memory that somebody else has, which a call may take."""
    with jax.enable_x64(True):
        return jax.device_put(array, sharding, may_alias=False)


def is_over(array: Any, sharding: NamedSharding) -> bool:
    """Whether an array lies as a sharding says, each part on its device."""
    return bool(array.sharding == sharding or array.sharding.is_equivalent_to(sharding, array.ndim))
