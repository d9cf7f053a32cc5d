"""The index of a corpus in shards: what each shard holds, its digest, and the tokenizer of all."""

import hashlib
import json
import re
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.training.data.tokenizer import token_dtype

INDEX_NAME = "index.json"
_FORMAT = "pcp-token-shards-1"
_DIGEST = re.compile("[0-9a-f]{64}")


class ShardIndexCorrupt(PCPError):
    """The index of a sharded corpus is not one, or is not what was written."""


@dataclass(frozen=True)
class Shard:
    """One file of tokens, little-endian and without a header.

    Arguments:
        digest: SHA-256 of its bytes, in hex.
        tokens: how many it holds.
    """

    digest: str
    tokens: int

    @property
    def name(self) -> str:
        """Its file, beside the index."""
        return f"{self.digest}.tokens"


@dataclass(frozen=True)
class ShardIndex:
    """What a place with token shards holds.

    Arguments:
        tokenizer: as `Tokenizer.to_json` writes it.
        vocabulary_size: every token is smaller.
        training: the shards trained on, in the order of the text.
        validation: the end of the text, which is not trained on.
    """

    tokenizer: str
    vocabulary_size: int
    training: tuple[Shard, ...]
    validation: Shard

    @property
    def dtype(self) -> np.dtype[Any]:
        """The stored type of a token."""
        return np.dtype(token_dtype(self.vocabulary_size)).newbyteorder("<")

    def size(self, shard: Shard) -> int:
        """Bytes of a shard."""
        return shard.tokens * self.dtype.itemsize

    @property
    def digest(self) -> str:
        """SHA-256 of the content, in hex; it names the data of a run."""
        return hashlib.sha256(json.dumps(asdict(self), sort_keys=True).encode()).hexdigest()

    def to_json(self) -> str:
        """The index with its own digest, as JSON."""
        return json.dumps({"format": _FORMAT, "digest": self.digest} | asdict(self), indent=1) + "\n"

    @staticmethod
    def from_json(text: bytes, source: str) -> "ShardIndex":
        """Read what `to_json` wrote.

        Raises:
            ShardIndexCorrupt: it is something else, or was changed.
        """
        try:
            content = json.loads(text)
            if content["format"] != _FORMAT:
                raise ShardIndexCorrupt(
                    f"{source} has format {content['format']!r}; this PCP reads {_FORMAT!r}."
                )
            training = tuple(_shard(each) for each in content["training"])
            validation = _shard(content["validation"])
            index = ShardIndex(
                str(content["tokenizer"]), int(content["vocabulary_size"]), training, validation
            )
            digest = content["digest"]
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ShardIndexCorrupt(f"{source} is not an index of token shards: {error!r}.") from None
        if digest != index.digest:
            raise ShardIndexCorrupt(
                f"{source} has digest {index.digest}, but says {digest}. Write the shards anew."
            )
        return index


def _shard(content: dict[str, Any]) -> Shard:
    """A shard of an index that nobody vouches for: its digest names a file, so it is nothing but a digest."""
    digest, tokens = content["digest"], content["tokens"]
    if not isinstance(digest, str) or not _DIGEST.fullmatch(digest):
        raise ValueError(f"{digest!r} is no SHA-256 in hex")
    if type(tokens) is not int or tokens < 1:
        raise ValueError(f"{tokens!r} is no number of tokens")
    return Shard(digest, tokens)
