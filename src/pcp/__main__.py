"""`python -m pcp` is the command `pcp`, which begins here: what it imports takes a while, in which Ctrl-C may come."""

import os
import signal
import sys


def start() -> int:
    """Run the command line of this process; until its command begins, Ctrl-C ends the process at once."""
    taken = signal.getsignal(signal.SIGINT) is signal.default_int_handler  # else it is ignored, and stays so
    if taken:
        signal.signal(signal.SIGINT, _leave)

    def begins() -> None:
        if taken:
            signal.signal(signal.SIGINT, signal.default_int_handler)

    from pcp.cli.main import main
    from pcp.interruption import leave

    return leave(main(begins=begins))


def _leave(number: int, _frame: object) -> None:
    """Nothing is begun that could be cleaned up, and an exception in the middle of an import would end in a traceback."""
    os.write(2, b"pcp: interrupted\n")
    os._exit(128 + number)


if __name__ == "__main__":
    sys.exit(start())
