"""The simulator: the coordinator's and the workers' own logic under virtual time, a seeded network and seeded faults."""

from pcp.distributed.simulator.scenario import FAULTS, Fault, Scenario, scenario_of
from pcp.distributed.simulator.shrinking import shrink
from pcp.distributed.simulator.simulation import Outcome, Simulation, SimulationFailed, simulate
from pcp.distributed.simulator.witness import InvariantViolated

__all__ = [
    "FAULTS",
    "Fault",
    "InvariantViolated",
    "Outcome",
    "Scenario",
    "Simulation",
    "SimulationFailed",
    "scenario_of",
    "shrink",
    "simulate",
]
