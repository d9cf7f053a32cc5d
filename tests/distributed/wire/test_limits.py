"""Limits as a run's settings name them."""

from pathlib import Path
from typing import Any

import pytest

from pcp.distributed.algorithm_choice import check_settings
from pcp.distributed.wire import BadWireLimits, WireLimits
from pcp.training.recipes.config import TrainingConfig, read_config


def test_a_run_s_file_states_some_and_leaves_the_others(tmp_path: Path) -> None:
    path = tmp_path / "run.toml"
    path.write_text("workers = 2\nsteps = 100\n[wire]\nstrangers = 64\nmessages_per_second = 50\n")
    config = TrainingConfig().replaced(**read_config(path))
    check_settings(config)
    assert WireLimits.of(config.wire) == WireLimits(strangers=64, messages_per_second=50)
    assert WireLimits.of({}) == WireLimits()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"stranger": 3}, "there is no limit 'stranger'; choose one of connect_seconds, .*strangers"),
        ({"strangers": 2.5}, "the limit strangers is 2.5; expected a whole number above 0"),
        ({"strangers": True}, "the limit strangers is True; expected a whole number"),
        ({"transfer_threads": 0}, "the limit transfer_threads is 0; expected a whole number above 0"),
        ({"stall_seconds": "1 s"}, "the limit stall_seconds is '1 s'; expected a number above 0"),
        ({"idle_seconds": float("inf")}, "the limit idle_seconds is inf; expected a number above 0"),
    ],
)
def test_limits_that_do_not_exist_or_cannot_work(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(BadWireLimits, match=message):
        check_settings(TrainingConfig(wire=settings))
