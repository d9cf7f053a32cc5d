"""Every name of `jax.numpy` is one of `pcp`, with the same defaults, or stands in a table with what to write instead."""

import inspect
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import pytest

import pcp
from pcp import nn
from pcp.ops.families.absent import ABSENT, page, reason_without

NAMES = [name for name in dir(jnp) if not name.startswith("_") and name not in ("linalg", "fft")]
FUNCTIONS = [
    name for name in NAMES if callable(getattr(jnp, name)) and hasattr(getattr(jnp, name), "__name__")
]
PAGE = Path(__file__).parents[3] / "docs/reference/numpy_names.md"


def ours_of(module: Any, name: str) -> Any:
    return (
        getattr(pcp.ops, name, None)
        if module is pcp and hasattr(pcp.ops, name)
        else getattr(module, name, None)
    )


def defaults_of(function: Any) -> dict[str, Any]:
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:  # a class without a signature
        return {}
    return {entry.name: entry.default for entry in parameters if entry.default is not entry.empty}


def test_every_name_is_there_or_has_something_in_its_place() -> None:
    shown = set(dir(pcp))
    missing = [name for name in NAMES if name not in shown and name not in ABSENT]
    assert not missing, f"add them to pcp, or to pcp.ops.families.absent: {missing}"
    # pcp.load and pcp.trace are others.
    assert sorted(ABSENT.keys() & shown) == ["load", "trace"]
    assert list(ABSENT) == sorted(ABSENT)


def test_three_hundred_functions_are_there() -> None:
    shown = set(dir(pcp)) - ABSENT.keys()
    functions = [name for name in FUNCTIONS if not inspect.isclass(getattr(jnp, name))]
    assert sum(name in shown for name in functions) >= 300


@pytest.mark.parametrize(
    ("theirs", "ours", "prefix"),
    [(jnp, pcp, ""), (jnp.linalg, pcp.linalg, "linalg."), (jnp.fft, pcp.fft, "fft.")],
)
def test_defaults_are_the_same(theirs: Any, ours: Any, prefix: str) -> None:
    wrong = []
    names = FUNCTIONS if theirs is jnp else [name for name in dir(theirs) if not name.startswith("_")]
    for name in names:
        function = ours_of(ours, name)
        if name in ABSENT and not (name == "trace" or prefix):
            continue
        if inspect.isclass(getattr(theirs, name)) or not callable(function):
            wrong += [] if inspect.isclass(getattr(theirs, name)) else [f"{prefix}{name} is not there"]
            continue
        mine = defaults_of(function)
        for parameter, default in defaults_of(getattr(theirs, name)).items():
            same = parameter in mine and (
                mine[parameter] == default or (default is None and mine[parameter] is False)
            )
            if not same and reason_without(prefix + name, parameter) is None:
                wrong.append(f"{prefix}{name}({parameter}={default}): {mine.get(parameter, 'is not there')}")
    assert not wrong, "\n".join(wrong)


def test_an_absent_name_says_what_to_write() -> None:
    with pytest.raises(
        AttributeError,
        match=r"'pcp' has no attribute 'histogram2d': histograms are of one variable; write pcp.bincount",
    ):
        _ = pcp.histogram2d
    with pytest.raises(AttributeError, match=r"'vectorize': .*write pcp.vmap"):
        _ = pcp.vectorize
    with pytest.raises(AttributeError, match=r"module 'pcp' has no attribute 'tensro'$"):
        _ = pcp.tensro


def test_what_is_written_instead_is_there() -> None:
    """Names of pcp in the table exist."""
    text = " ".join(other for _, other in ABSENT.values())
    for path in re.findall(r"pcp\.([\w.]+)", text):
        found: Any = pcp
        for part in path.rstrip(".").split("."):
            found = getattr(found, part)


def test_the_page_is_the_table() -> None:
    assert PAGE.read_text("utf-8") == page(), (
        "write it anew: python -c 'from pcp.ops.families.absent import page; print(page(), end=\"\")'"
    )


def test_activations_of_jax_take_their_settings_in_its_order_with_its_defaults() -> None:
    names = [name for name in dir(jax.nn) if inspect.isfunction(getattr(nn, name, None))]
    assert len(names) >= 30
    for name in names:
        theirs, ours = defaults_of(getattr(jax.nn, name)), defaults_of(getattr(nn, name))
        theirs.pop("dtype", None)  # of JAX its widest float
        shared = {entry: default for entry, default in theirs.items() if entry in ours}
        assert {entry: ours[entry] for entry in shared} == shared, name
        assert [entry for entry in ours if entry in shared] == list(shared), name
        # What JAX takes first, a caller may give by its place.
        assert list(theirs)[:1] == list(ours)[:1] or "dtype" in ours, name
