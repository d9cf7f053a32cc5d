"""Programs over several devices compute what they compute on one: eight virtual processors, in one process for all tests."""

import json
import os
import subprocess
import sys
from typing import Any

import pytest

from pcp.distributed.algorithm_choice import check_settings
from pcp.training.recipes.config import InvalidTrainingConfig, TrainingConfig

pytestmark = pytest.mark.cpu
RULES = ("dp", "zero1", "fsdp")
STEPS = ("perceptron", "attending", "normalised", "convolved")


@pytest.fixture(scope="module")
def found() -> Any:
    flags = f"{os.environ.get('XLA_FLAGS', '')} --xla_force_host_platform_device_count=8"
    child = subprocess.run(
        [sys.executable, "-m", "tests.planning.several_devices_child"],
        env={**os.environ, "XLA_FLAGS": flags},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert not child.returncode, child.stderr[-4000:]
    return json.loads(child.stdout)


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("name", STEPS)
def test_a_training_step_is_the_same_on_four_devices(found: Any, name: str, rule: str) -> None:
    result = found[name][rule]
    assert result["error"] < 2e-5
    assert result["devices"] == 4
    assert f": as it is written, {rule} over 4 devices" in result["text"]
    assert "on cpu:0, cpu:1, cpu:2, cpu:3 by xla" in result["text"]


def test_data_parallel_reduces_each_gradient_once_and_gathers_nothing(found: Any) -> None:
    for name in ("perceptron", "attending"):
        result = found[name]["dp"]
        assert set(result["collectives"]) == {"all_reduce"}
        assert result["cut"] == 2  # the batch
    result = found["perceptron"]["dp"]
    assert result["collectives"]["all_reduce"] == 6  # five gradients and the loss
    assert (
        "\n  devices     4, each has 1/4 of batch.0, batch.1, 416 bytes in all, and all of the other 17 "
        in result["text"]
    )
    assert "\n              each sends 1.1 KiB a call: 6 all_reduce 1.1 KiB\n" in result["text"]
    assert "every device computes all of: " not in result["text"]
    assert "several_devices_child.py" in found["convolved"]["dp"]["text"].partition("computes all of: ")[2]


def test_state_that_is_cut_takes_less_memory_and_its_gradients_are_scattered(found: Any) -> None:
    for name in ("perceptron", "attending"):
        dp, zero1, fsdp = (found[name][rule] for rule in RULES)
        assert dp["arguments"] > zero1["arguments"] > fsdp["arguments"]
        for result in (zero1, fsdp):
            assert result["collectives"]["reduce_scatter"] == (5 if name == "perceptron" else 4)
            assert result["collectives"]["all_gather"] >= 4
            assert (
                result["collectives"]["all_reduce"] <= 3
            )  # the norm of all gradients, the loss, a sum of weights


def test_results_for_examples_stay_where_they_are_computed(found: Any) -> None:
    rows = found["composed"]["rows"]
    assert rows["error"] < 1e-6
    assert rows["same"] == 0
    assert rows["axes"] == [0, None]
    assert rows["shards"] == [[2, 4], [4], [4, 4]]


def test_numbers_that_are_drawn_are_those_of_one_device(found: Any) -> None:
    assert found["composed"]["noisy"]["error"] < 1e-6
    assert found["composed"]["noisy"]["shards"] == [[2, 4]]


def test_integers_are_those_of_one_device(found: Any) -> None:
    assert found["composed"]["counted"]["error"] == 0


def test_a_path_of_several_devices_is_kept_and_followed(found: Any) -> None:
    kept = found["kept"]
    assert kept["same"]
    assert kept["followed"] == kept["copied"] == 0
    assert kept["fastest"] < 1e-5
    chosen, _, others = kept["text"].partition(" ms a call, in turn with ")
    named = [chosen.split()[-2], *(word for word in others.splitlines()[0].split() if word in RULES)]
    assert sorted(named) == sorted(RULES)
    assert kept["donated"].startswith("DonatedArray: argument state.")
    assert kept["one"].startswith(
        "PlanConflict: a path of zero1 over 2 devices was given and no devices; say which"
    )
    assert kept["three"].startswith(
        "PlanConflict: the path is for zero1 over 2 devices, and 3 devices were given: cpu:0,"
    )


def test_a_run_over_two_devices_trains_what_one_does(found: Any) -> None:
    trained = found["trained"]
    assert trained["codes"] == [0, 0], trained["text"]
    assert trained["step"] == 4
    assert trained["error"] < 1e-4


def test_settings_of_several_devices_that_no_run_has_are_refused() -> None:
    several = TrainingConfig(devices="cpu:0-1")
    for settings, said in (
        (
            {"workers": 2},
            "devices is cpu:0-1, and workers is 2; steps of several devices are for one process",
        ),
        ({"tolerance": 1e-2}, "and tolerance is 0.01"),
        ({"accumulate": 2, "batch": 4}, "and accumulate is 2"),
        (
            {"devices": "", "layout": "dp"},
            "layout is dp, and devices is empty; say which compute together, as --devices",
        ),
    ):
        with pytest.raises(InvalidTrainingConfig, match=said):
            check_settings(several.replaced(**settings))


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("uneven", "UnevenBatch: axis 0 of x has 10 examples, which 4 devices do not divide: give 8 or 12 examples, or 2 dev"),
        ("few", "UnevenBatch: axis 0 of x has 3 examples, fewer than 8 devices: give 8 examples or a multiple"),
        ("rule", "InvalidLayout: the layout is 'zero9'; expected one of dp, zero1, fsdp"),
        ("both", "PlanConflict: device 'cpu:0' and devices 'cpu:0-3' were given; give `devices` for several"),
        ("twice", "InvalidTarget: the target has 2 devices: cpu:0, cpu:0; expected one or more of one kind, each once"),
        ("nine", "UnknownDevice: 'cpu:8' is not a device of this machine"),
        ("arena", "InvalidTarget: devices are ['arena:cpu:0', 'cpu:0'], of the backends arena, xla; expected devices of one"),
        ("scalar", "computes nothing for examples one by one that several devices could share; its inputs are"),
        ("own", "TooFewDevices: all_reduce with groups [[0, 1]] needs 2 devices"),
    ],
)  # fmt: skip
def test_what_devices_cannot_share_is_refused_by_name(found: Any, name: str, message: str) -> None:
    assert message in found["refusals"][name]
