"""What `pcp serve --dry-run` prints."""

import argparse
import json
from dataclasses import asdict


def tell(arguments: argparse.Namespace) -> int:
    """Print what serving the model will take; returns the exit code."""
    from pcp.importers.text import open_model
    from pcp.serving.forecast import forecast

    found = forecast(
        open_model(arguments.model), arguments.device, arguments.weights, arguments.rows, arguments.cache
    )
    if arguments.json:
        print(json.dumps({"event": "forecast", "fits": found.fits} | asdict(found)))
        return 0
    needed = found.weight_bytes + found.cache_bytes
    print(
        f"memory     {_size(found.weight_bytes)} of weights and {_size(found.cache_bytes)} of cache: {_size(needed)}"
    )
    print(
        f"           {'fits in' if found.fits else 'does not fit in'} the {_size(found.limit_bytes)} of {arguments.device}"
    )
    print(
        f"speed      at most {found.tokens_per_second:,.3g} tokens a second of one text, which read all weights each"
    )
    print(
        f"first      at least {found.first_token_seconds * 1e3:,.3g} ms to the first token behind {found.prompt} of a prompt"
    )
    return 0


def _size(count: int) -> str:
    return f"{count / 2**30:.2f} GiB" if count >= 1 << 28 else f"{count / 2**20:.1f} MiB"
