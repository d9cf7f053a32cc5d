"""Options of benchmarks whose defaults say their types."""

import argparse
from typing import Any


def add_option(parser: argparse.ArgumentParser, name: str, default: Any, meaning: str) -> None:
    """Add an option of the type of its default, which its help tells."""
    parser.add_argument(name, type=type(default), default=default, help=f"{meaning} (default: {default})")
