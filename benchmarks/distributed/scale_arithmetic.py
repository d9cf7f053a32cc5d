"""What one Shepherd and a tree of them would have to do for up to a million workers, by arithmetic from measured figures.

Run: `python -m benchmarks scale_arithmetic`. The figures are those of docs/distributed/scale.md.
"""

import argparse
import json
import math
from typing import Any

from pcp.distributed.compression import codec

PARAMETERS = 100_000_000
ROUND_SECONDS = 60.0
HEARTBEAT_SECONDS = 5.0
HEARTBEAT_WIRE_BYTES = 88 + 56 + 2 * (22 + 52)  # frames, and what TLS and TCP/IP add to each
HEARTBEAT_MICROSECONDS = 5 + 9 + 18  # the coordinator, decoding one, encoding the answer
ROUND_MICROSECONDS = (
    27 + 90 + 8 + 19 + 29 + 25
)  # of a worker in a round: lease, update, reply; their messages
STATE_BYTES = 2700
LOG_BYTES = 360
LINK = 10e9 / 8
MERGE_NANOSECONDS = {"f32": 8.0, "int4": 33.0 + 8.0, "top-k": 270.0 + 8.0}  # of a value, two shared cores


def load(workers: int, name: str) -> dict[str, Any]:
    """What one Shepherd does for so many members, with a codec both ways."""
    push = codec(name).payload_bytes(PARAMETERS)
    cores = workers * (HEARTBEAT_MICROSECONDS / HEARTBEAT_SECONDS + ROUND_MICROSECONDS / ROUND_SECONDS) / 1e6
    return {
        "members": workers,
        "codec": name,
        "heartbeats_per_second": workers / HEARTBEAT_SECONDS,
        "heartbeat_megabytes_per_second": workers / HEARTBEAT_SECONDS * HEARTBEAT_WIRE_BYTES / 1e6,
        "control_cores": cores,
        "state_megabytes": workers * STATE_BYTES / 1e6,
        "log_megabytes_per_round": workers * LOG_BYTES / 1e6,
        "gigabytes_each_way_per_round": workers * push / 1e9,
        "link_seconds_each_way": workers * push / LINK,
        "merge_seconds": workers * PARAMETERS * MERGE_NANOSECONDS[name] / 1e9,
    }


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the arguments: there are none."""


def run(options: argparse.Namespace) -> None:
    """Print a row for each number of members and codec; the last ones are of a tree's every Shepherd."""
    for workers in (100, 1_000, 10_000, 100_000, 1_000_000):
        for name in MERGE_NANOSECONDS:
            row = load(workers, name)
            if options.json:
                print(json.dumps(row))
            else:
                print("  ".join(f"{k} {v if isinstance(v, str) else f'{v:,.4g}'}" for k, v in row.items()))
    for levels in (2, 3):
        print(f"a tree of {levels} levels for a million: {math.ceil(1e6 ** (1 / levels))} members each")
