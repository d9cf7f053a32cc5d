"""Plans that make no run possible."""

from dataclasses import replace
from typing import Any

import pytest

from pcp.distributed.coordinator import InvalidRunConfig, decode, encode
from tests.distributed.coordinator.desk import CONFIG


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"workers": 0}, "workers is 0; it must be at least 1"),
        ({"batches": 0}, "batches is 0; it must be at least 1"),
        ({"round_batches": -1}, "round_batches is -1; it must be at least 0"),
        ({"checkpoint_every": 0}, "checkpoint_every is 0; it must be at least 1"),
        ({"quorum": 0.0}, "quorum is 0.0; it is a fraction of the round: above 0, at most 1"),
        ({"quorum": 1.5}, "quorum is 1.5"),
        ({"heartbeat_seconds": 0.0}, "heartbeat_seconds is 0.0; it must be positive"),
    ],
)
def test_an_impossible_plan_is_named(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidRunConfig, match=message):
        replace(CONFIG, **changes)


def test_a_plan_survives_the_log() -> None:
    assert decode(encode(CONFIG)) == CONFIG
