"""`pcp worker`, whose programs run in `slow_child`: `python -m benchmarks.distributed.machines.worker --connect ...`."""

import sys

from pcp.cli import main
from pcp.distributed.worker.programs import training_process

if __name__ == "__main__":
    training_process._CHILD = "benchmarks.distributed.machines.slow_child"
    sys.exit(main(["worker", *sys.argv[1:]]))
