"""Making a failing schedule small: faults that it fails without are dropped, one after another."""

from dataclasses import replace

from pcp.distributed.simulator.scenario import Scenario
from pcp.distributed.simulator.simulation import SimulationFailed, simulate


def fails(scenario: Scenario) -> bool:
    """Return whether a schedule fails."""
    try:
        simulate(scenario)
    except SimulationFailed:
        return True
    return False


def shrink(scenario: Scenario) -> Scenario:
    """Return a failing schedule with as few faults as dropping them one by one allows; it fails too.

    Arguments:
        scenario: a schedule that fails.
    """
    index = len(scenario.faults) - 1
    while index >= 0:
        smaller = replace(scenario, faults=scenario.faults[:index] + scenario.faults[index + 1 :])
        if fails(smaller):
            scenario = smaller
        index -= 1
    return scenario
