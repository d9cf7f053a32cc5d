"""Facts that a rebuilding leaves as they are: of programs, of what is derived from them, and of what a planner chooses.

    python -m tests.replay check             compare all of them with those that the repository holds, in a minute
    python -m tests.replay record            write them there: the diff of the file says what a commit changes
    python -m tests.replay write before.json
    python -m tests.replay compare before.json

The last two keep bits of results, too, which are those of one machine. Facts of equal programs need egglog, as
`make .venv/.peers` installs it; without, those that were recorded stay.
"""

import argparse
import json
import os
import sys
from pathlib import Path

from tests.replay.groups import everything
from tests.replay.stored import FILE, differences, message, stored, written


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("action", choices=("check", "record", "write", "compare"))
    parser.add_argument("file", type=Path, nargs="?", help="of `write` and `compare`")
    parser.add_argument("--jobs", type=int, default=2, help="processes")
    arguments = parser.parse_args()
    if (arguments.file is None) == (arguments.action in ("write", "compare")):
        parser.error(f"{arguments.action} takes {'a file' if arguments.file is None else 'no file'}")
    os.environ["JAX_PLATFORMS"] = "cpu"
    now = everything(arguments.file is not None, arguments.jobs)
    if arguments.action == "record":
        FILE.write_text(written(now), encoding="utf-8")
        print(f"facts of {len(now)} programs and searches written to {FILE}")
        return 0
    if arguments.action == "write":
        arguments.file.write_text(json.dumps(now, indent=1), encoding="utf-8")
        print(f"{len(now)} programs written to {arguments.file}")
        return 0
    before = stored() if arguments.file is None else json.loads(arguments.file.read_text(encoding="utf-8"))
    found = differences(before, now)
    if found:
        print(message(found) if arguments.file is None else "\n".join(found))
    else:
        print(f"{len(now)} programs and searches are as they were")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
