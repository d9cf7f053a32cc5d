"""What tests of processes need: that they import this very source, and tiny runs."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from pcp.distributed.wire.blobs import BlobStore
from pcp.training.recipes.recipe import Recipe
from tests.distributed.tiny_run import tiny_recipe

SOURCE = Path(__file__).parents[2] / "src"


@pytest.fixture(scope="session", autouse=True)
def _children_import_this_source() -> Iterator[None]:
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(SOURCE)
    yield
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before


@pytest.fixture(scope="session")
def recipe(tmp_path_factory: pytest.TempPathFactory) -> Recipe:
    """A tiny run, not to be changed."""
    return tiny_recipe(tmp_path_factory.mktemp("recipe"))


@pytest.fixture
def store(tmp_path: Path) -> BlobStore:
    """An empty store of blobs."""
    return BlobStore(tmp_path / "blobs")
