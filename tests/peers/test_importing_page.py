"""The page on importing, with the blocks marked `py`, which need packages that only the parity tests have."""

from pathlib import Path
from typing import Any

import pytest
from tests.docs.test_snippets import ROOT, blocks, run

PAGE = ROOT / "docs" / "importing.md"


def test_the_page_runs_with_all_its_blocks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    namespace: dict[str, Any] = {"__name__": "__main__"}
    found = [block for block in blocks(PAGE) if block.language in ("python", "py")]
    assert {block.language for block in found} == {"python", "py"}
    for block in found:
        run(block, PAGE.name, namespace)
