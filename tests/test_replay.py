"""The comparison of programs before and after a rebuilding sees what changed."""

from typing import Any

from tests.replay import differences


def test_every_change_is_seen() -> None:
    before: dict[str, Any] = {
        "a": {"digest": "1", "sites": [["x", "product"]]},
        "b": {"digest": "2"},
        "gone": {},
    }
    now: dict[str, Any] = {"a": {"digest": "1", "sites": []}, "b": {"digest": "3", "bits": []}, "new": {}}
    assert differences(before, before) == []
    assert differences(before, now) == [
        "a: sites was [['x', 'product']], is []",
        "b: bits was None, is []",
        "b: digest was 2, is 3",
        "gone: there is no such program any more",
        "new: there was no such program",
    ]
