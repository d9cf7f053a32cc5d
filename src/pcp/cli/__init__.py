"""The command line: `pcp COMMAND --help` explains each command."""

from pcp.cli.main import main as main
