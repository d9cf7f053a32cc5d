"""What tests of planning share: an empty database, and a Bench that makes up what it measures."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.planning.fake_bench import FakeBench, add_family, use

from pcp.planning import conditions
from pcp.planning.measuring.bench import Bench


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a profile database may be made."""
    return tmp_path / "profile.sqlite"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    """What searches measure with, and its families of kernels."""
    add_family(monkeypatch)
    return use(FakeBench(), monkeypatch)


@pytest.fixture(scope="module")
def child() -> Iterator[Bench]:
    """A real one, whose child process serves all tests of a file that ask for it: to start one takes a second."""
    with Bench() as bench:
        yield bench


@pytest.fixture
def one_child(child: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    """Searches measure with that child, and start none."""
    monkeypatch.setattr(conditions, "Bench", lambda: contextlib.nullcontext(child))
