"""`python -m pcp` is the command `pcp`."""

import sys

from pcp.cli import main

if __name__ == "__main__":
    sys.exit(main())
