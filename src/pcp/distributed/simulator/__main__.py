"""Run simulated schedules: `python -m pcp.distributed.simulator --first 0 --seeds 1000`."""

import argparse
import sys
import time

from pcp.distributed.simulator.scenario import scenario_of
from pcp.distributed.simulator.shrinking import shrink
from pcp.distributed.simulator.simulation import SimulationFailed, simulate


def main() -> int:
    """Run the schedules that the command line asks for; return 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run simulated schedules of a distributed run.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--trace", action="store_true", help="print every event and effect")
    parser.add_argument(
        "--shrink", action="store_true", help="print the faults that a failing schedule needs"
    )
    options = parser.parse_args()
    started, actions, failures = time.perf_counter(), 0, 0
    for seed in range(options.first, options.first + options.seeds):
        try:
            actions += simulate(scenario_of(seed), print if options.trace else None).actions
        except SimulationFailed as failure:
            failures += 1
            print(failure)
            if options.shrink:
                for fault in shrink(scenario_of(seed)).faults:
                    print(f"    it needs {fault}")
    seconds = time.perf_counter() - started
    print(
        f"{options.seeds} schedules, {failures} failed, {options.seeds / seconds:.0f} a second, "
        f"{actions / seconds:.0f} actions a second"
    )
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
