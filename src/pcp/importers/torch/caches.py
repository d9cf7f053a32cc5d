"""Models of transformers without the cache of keys and values that they return unasked."""

import contextlib
import sys
from collections.abc import Iterator
from typing import Any


@contextlib.contextmanager
def without_caches(module: Any) -> Iterator[None]:
    """Set `use_cache` of all configurations in a module to False, and back again afterwards.

    A call that asks for `use_cache=True` itself is not changed.

    Arguments:
        module: anything; only configurations of transformers are touched, and only if it was imported by somebody else.
    """
    changed = [config for config in _configurations(module) if getattr(config, "use_cache", None)]
    for config in changed:
        config.use_cache = False
    try:
        yield
    finally:
        for config in changed:
            config.use_cache = True


def _configurations(module: Any) -> list[Any]:
    kind = getattr(sys.modules.get("transformers"), "PretrainedConfig", None)
    if kind is None or not hasattr(module, "modules"):
        return []
    held = [value for inner in module.modules() for value in vars(inner).values() if isinstance(value, kind)]
    return list({id(config): config for config in held}.values())
