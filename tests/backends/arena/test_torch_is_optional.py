"""PyTorch, a provider of the arena, where it is not installed: what asks for it says what is missing, all else goes on."""

import os
import subprocess
import sys

import pytest

import pcp
from pcp.backends import Placement, Target, UnknownBackend, registry
from pcp.planning.conditions import places_of
from pcp.planning.placing.operations import operations_in

MODULE = "pcp.backends.arena.torch"
MISSING = (
    r"backend 'torch' cannot be imported from .*: it computes by PyTorch, which is not installed; install it as "
    r"https://pytorch.org says for this machine"
)


@pytest.fixture
def no_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if it were not installed, and nothing had been imported that needs it."""
    for name in [name for name in sys.modules if name.startswith(f"{MODULE}.")]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "torch", None)
    monkeypatch.setattr(registry, "_made", registry._made.__wrapped__)  # none is known yet


def test_nothing_imports_it_before_a_program_is_planned_for_it() -> None:
    code = (
        "import sys, pcp; pcp.plan(pcp.trace(pcp.tanh, pcp.spec((3,), 'f32')), 'arena:cpu'); pcp.backends.backend_names(); "
        "from importlib.util import find_spec; find_spec('torch') and pcp.Target.of('torch:cpu'); "
        "assert 'torch' not in sys.modules"
    )
    environment = {**os.environ, "PYTHONPATH": ":".join(sys.path)}
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60, env=environment)


@pytest.mark.usefixtures("no_torch")
def test_a_device_of_it_says_what_is_missing() -> None:
    with pytest.raises(UnknownBackend, match=MISSING):
        pcp.plan(pcp.trace(pcp.tanh, pcp.spec((3,), "f32")), "torch:cpu")


@pytest.mark.usefixtures("no_torch")
def test_a_path_that_names_it_says_what_is_missing() -> None:
    program = pcp.trace(lambda x: pcp.exp(pcp.tanh(x)), pcp.spec((3,), "f32"))
    placement = Placement.of(dict.fromkeys(operations_in(program).keys[:1], "torch:cpu:0"))
    whole = pcp.Path.plain(program, {}, "torch")
    placed = pcp.Path.plain(program).placed(placement)
    for path in (whole, placed):
        with pytest.raises(UnknownBackend, match=MISSING):
            pcp.plan(program, path=path)


@pytest.mark.usefixtures("no_torch")
def test_any_device_leaves_it_out(monkeypatch: pytest.MonkeyPatch) -> None:
    here = {name: registry._LOCATIONS[name] for name in ("xla", "arena", "torch")}
    monkeypatch.setattr(registry, "_LOCATIONS", here)
    assert places_of("any") == (None, [Target.of("arena:cpu:0")])
