"""What tests of striped transfers share: a blob of many pieces, and the connections that move it."""

import random
from typing import Any

from pcp.distributed.wire import Backoff, BulkClient, TransferSettings, blob_of

from .loopback import LIMITS, Run

CONTENT = random.Random(5).randbytes(3_300_000)
BLOB = blob_of(CONTENT)
PIECE = 200_000


def clients_of(run: Run, addresses: list[str], **options: Any) -> list[BulkClient]:
    """A connection of one worker to each address, whose chunks are much smaller than a piece."""
    worker, chunks = run.worker(), TransferSettings(chunk_bytes=1 << 15, window_bytes=1 << 17)
    return [
        BulkClient(each, worker, settings=chunks, limits=LIMITS, backoff=Backoff(0.001, 0.01), **options)
        for each in addresses
    ]
