"""A holder as a process of its own, which gives a blob little by little: `python slow_holder.py FOLDER KEY DIGEST SIZE`."""

import asyncio
import sys
import time
from pathlib import Path

from pcp.distributed.messages import Blob, PeerAddress
from pcp.distributed.peers.book import PeerBook
from pcp.distributed.peers.holdings import Holdings
from pcp.distributed.peers.listening import listen
from pcp.distributed.wire import BlobStore, Credentials
from pcp.distributed.wire.blob_files import BlobReader


class LittleByLittle(BlobStore):
    """Reads at some 3 MB/s."""

    def open(self, blob: Blob) -> BlobReader:
        reader = super().open(blob)
        read = reader.read_into

        def slowly(offset: int, space: memoryview) -> None:
            time.sleep(len(space) / 3e6)
            read(offset, space)

        reader.read_into = slowly  # type: ignore[method-assign]  # for this one reader
        return reader


async def serve(folder: Path, key: Path, blob: Blob) -> None:
    credentials = Credentials.load_bundle(key)
    book = PeerBook(credentials.name)
    book.replace([PeerAddress("ada", "")])
    holdings = Holdings(book)
    holdings.hold_out(blob)
    _, address = await listen("127.0.0.1:0", credentials, LittleByLittle(folder), holdings)
    print(address, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(
        serve(Path(sys.argv[1]), Path(sys.argv[2]), Blob(bytes.fromhex(sys.argv[3]), int(sys.argv[4])))
    )
