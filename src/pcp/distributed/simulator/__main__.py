"""Run simulated schedules: `python -m pcp.distributed.simulator --first 0 --seeds 1000`."""

import argparse
import sys
import time

from pcp.distributed.simulator.many import Summary, run_in_processes, run_seeds
from pcp.distributed.simulator.scenario import scenario_of
from pcp.distributed.simulator.shrinking import shrink


def print_line(time: float, who: str, what: object) -> None:
    """Print an event or an effect."""
    print(f"{time:10.3f} {who:10} {what}")


def main() -> int:
    """Run the schedules that the command line asks for; return 1 if one failed."""
    parser = argparse.ArgumentParser(description="Run simulated schedules of a distributed run.")
    parser.add_argument("--first", type=int, default=0, help="first seed")
    parser.add_argument("--seeds", type=int, default=1, help="number of seeds")
    parser.add_argument("--jobs", type=int, default=1, help="processes to run them in")
    parser.add_argument("--trace", action="store_true", help="print every event and effect")
    parser.add_argument(
        "--shrink", action="store_true", help="print the faults that a failing schedule needs"
    )
    options = parser.parse_args()
    print(f"schedules of the seeds {options.first} to {options.first + options.seeds - 1}", flush=True)
    started = time.perf_counter()
    if options.jobs > 1:
        results = run_in_processes(options.first, options.seeds, options.jobs)
    else:
        seeds = range(options.first, options.first + options.seeds)
        results = iter([run_seeds(seeds, print_line if options.trace else None)])
    total = Summary()
    for summary in results:
        total.add(summary)
        for seed, failure in summary.failures:
            print(failure)
            if options.shrink:
                for fault in shrink(scenario_of(seed)).faults:
                    print(f"    it needs {fault}")
        seconds = time.perf_counter() - started
        print(
            f"{total.schedules} schedules, {len(total.failures)} failed, {total.schedules / seconds:.0f} a second, "
            f"{total.actions / seconds:.0f} actions a second",
            flush=True,
        )
    print(
        "most "
        + "; ".join(f"{name}: {value:.4g} (seed {seed})" for name, (value, seed) in total.worst.items())
    )
    return 1 if total.failures else 0


if __name__ == "__main__":
    sys.exit(main())
