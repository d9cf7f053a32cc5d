"""Optional packages: imported when first used, with a message that says how to install what is missing."""

import importlib
from typing import Any

from pcp.errors import PCPError


class MissingExtra(PCPError):
    """Something was asked for that needs a package which is not installed."""


def import_extra(module: str, extra: str, purpose: str) -> Any:
    """Import a module of an optional package.

    Arguments:
        extra: the extra of this distribution that installs it.
        purpose: what needs it, as the subject of the message's sentence.

    Raises:
        MissingExtra: the module is not installed.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        raise MissingExtra(
            f"{purpose} needs the package {module!r}, which is not installed. "
            f"Install it with: pip install 'planetary-compute-protocol[{extra}]'"
        ) from error
