"""`pcp data`: prepare data for training."""

import argparse
import json
from pathlib import Path

from pcp.errors import PCPError
from pcp.ir.program_file import UnwritableFile
from pcp.training.data.shards.place import Place
from pcp.training.data.shards.write import write_shards

DESCRIPTION = {
    "description": "Write a text as token shards and an index, which `pcp train --data PLACE` reads a shard at a time.",
    "epilog": """\
A place is a folder, or a URL that fsspec opens (`pip install 'planetary-compute-protocol[data]'` and the driver of its scheme).
Neither this command nor training holds the text in memory. Workers of a run fetch the shards that their leases touch, from the
Shepherd where the place is a folder of its machine, else from the place itself.

examples:
  pcp data shard corpus.txt --out corpus-shards
  pcp data shard notes.jsonl --field text --out corpus-shards
  pcp data shard corpus.txt --out s3://bucket/corpus --tokenizer bytes
  pcp data shard corpus.txt --out corpus-shards --tokenizer bpe --vocabulary 8192
  pcp data shard corpus.txt --out corpus-shards --tokenizer gpt2/tokenizer.json
  pcp train --data corpus-shards
  pcp train --data corpus-shards --workers 2
""",
}


class InvalidShardSize(PCPError):
    """Shards of no tokens were asked for."""


class InvalidVocabulary(PCPError):
    """Fewer byte pairs than bytes were asked for."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command's arguments."""
    parser.add_argument("action", choices=["shard"], help="what to do with the text")
    parser.add_argument(
        "text",
        metavar="TEXT",
        help="a file, folder or pattern: text in UTF-8, JSON lines, tables, or token numbers, as of `pcp train --data`",
    )
    parser.add_argument(
        "--field", default="", help="of JSON lines, JSON and tables: the one that holds the text"
    )
    parser.add_argument("--out", required=True, metavar="PLACE", help="folder or URL to write to")
    parser.add_argument(
        "--tokenizer",
        default="characters",
        help="`characters`, `bytes`, `bpe` (byte pairs, learnt from the text), or a tokenizer.json; the last two need the "
        "extra `tokenizers`",
    )
    parser.add_argument("--vocabulary", type=int, default=1024, help="tokens that `bpe` learns, at least 256")
    parser.add_argument("--shard-tokens", type=int, default=1 << 24, help="tokens in a shard")


def run(arguments: argparse.Namespace) -> int:
    """Run the command."""
    if arguments.shard_tokens < 2:
        raise InvalidShardSize(f"--shard-tokens is {arguments.shard_tokens}; expected at least 2")
    if arguments.vocabulary < 256:
        raise InvalidVocabulary(
            f"--vocabulary is {arguments.vocabulary}; expected at least 256, one for each byte"
        )
    place = Place(arguments.out)
    if place.is_folder and Path(place.url).is_file():
        raise UnwritableFile(
            f"--out {arguments.out} is a file; expected a folder, which is made if it is not there"
        )
    index = write_shards(
        arguments.text,
        place,
        tokenizer=arguments.tokenizer,
        vocabulary=arguments.vocabulary,
        field=arguments.field,
        shard_tokens=arguments.shard_tokens,
    )
    tokens = sum(shard.tokens for shard in index.training)
    facts = {"place": place.url, "digest": index.digest, "shards": len(index.training), "tokens": tokens}
    facts["validation_tokens"] = index.validation.tokens
    if arguments.json:
        print(json.dumps({"event": "sharded"} | facts))
    else:
        print(
            f"pcp: {tokens} tokens in {len(index.training)} shards and {index.validation.tokens} to validate, in {place.url}; "
            f"index {index.digest[:12]}\npcp train --data {place.url} trains on them"
        )
    return 0
