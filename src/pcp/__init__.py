"""PCP, the Planetary Compute Protocol: one StableHLO program, run the fastest way, on one device or many.

What `pcp` offers stands in `interface`, and is imported when it is first asked for: so each command and each process of a run
imports only what it needs.
"""

import importlib

TYPE_CHECKING = False  # as in `typing`, which takes longer to import than all of this

if TYPE_CHECKING:
    from pcp.interface import *
else:

    def __getattr__(name: str) -> object:
        # `from pcp import *` asks for `__all__`.
        if name.startswith("_") and name != "__all__":
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib.util import find_spec

        if find_spec(f"{__name__}.{name}") is not None:
            return importlib.import_module(f"{__name__}.{name}")
        offered = _offered()
        if name == "__all__":
            return list(offered)
        if name not in offered:
            instead = importlib.import_module(f"{__name__}.ops.families.absent").instead_of(name)
            why = "" if instead is None else f": {instead}"
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}{why}")
        globals().update(offered)
        return offered[name]

    def __dir__() -> list[str]:
        return sorted(_offered())

    def _offered() -> dict[str, object]:
        interface = importlib.import_module(f"{__name__}.interface")
        return {name: value for name, value in vars(interface).items() if not name.startswith("_")}
