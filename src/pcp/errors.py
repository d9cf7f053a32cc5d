"""The root of every exception that PCP raises on purpose, and what messages share."""

from collections.abc import Iterable


class PCPError(Exception):
    """Something was given that PCP cannot use; the message says what, what was expected and what to do."""


def nearest(given: object, names: Iterable[str]) -> str:
    """Of names the one that was probably meant, as a question to put into a message; nothing where none is near."""
    import difflib  # only who made a mistake waits for it

    bare = {str(name).lstrip("-"): str(name) for name in names}
    near = difflib.get_close_matches(str(given).lstrip("-"), list(bare), 1, cutoff=0.65)
    return f" (did you mean {bare[near[0]]!r}?)" if near else ""
