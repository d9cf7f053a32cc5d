"""What tests of planning share: an empty database, and a Bench that makes up what it measures."""

from pathlib import Path

import pytest
from tests.planning.fake_bench import FakeBench, add_family, use


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where a profile database may be made."""
    return tmp_path / "profile.sqlite"


@pytest.fixture
def bench(monkeypatch: pytest.MonkeyPatch) -> FakeBench:
    """What searches measure with, and its families of kernels."""
    add_family(monkeypatch)
    return use(FakeBench(), monkeypatch)
