"""The manifest of a checkpoint: what it is, what it belongs to, and the digests that reveal damage."""

import hashlib
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from pcp.errors import PCPError

FORMAT = "pcp.checkpoint"
VERSION = 1
ARRAYS_NAME = "arrays.safetensors"
MANIFEST_NAME = "manifest.json"


class CheckpointForeign(PCPError):
    """The folder is not a PCP checkpoint."""


class CheckpointNewer(PCPError):
    """The checkpoint was written by a newer version of PCP."""


class MetadataNotJSON(PCPError):
    """What was given to be stored with a checkpoint has no form in JSON."""


class CheckpointCorrupt(PCPError):
    """A file of the checkpoint is not what was written."""


class CheckpointTruncated(CheckpointCorrupt):
    """A file of the checkpoint is missing or ends early."""


@dataclass(frozen=True, slots=True)
class Manifest:
    """What a checkpoint says of itself.

    Arguments:
        step: steps done.
        model: the model's configuration.
        program_digest: digest of the Program that the arrays belong to; empty where there is none.
        structure: the tree that the arrays' names came from.
        metadata: what the caller stored.
        arrays: name -> (dtype, shape).
        arrays_sha256: digest of the file of arrays, in hex.
        arrays_bytes: its size.
    """

    step: int
    model: dict[str, Any]
    program_digest: str
    structure: Any
    metadata: dict[str, Any]
    arrays: dict[str, tuple[str, tuple[int, ...]]]
    arrays_sha256: str
    arrays_bytes: int


def write_manifest(file: BinaryIO, manifest: Manifest) -> None:
    """Write a manifest as JSON, with a checksum of its own content.

    Raises:
        MetadataNotJSON: the model, structure or metadata hold something that JSON cannot.
    """
    content = {
        "format": FORMAT,
        "version": VERSION,
        "step": manifest.step,
        "model": manifest.model,
        "program_digest": manifest.program_digest,
        "structure": manifest.structure,
        "metadata": manifest.metadata,
        "arrays": {
            name: {"dtype": dtype, "shape": shape} for name, (dtype, shape) in manifest.arrays.items()
        },
        "files": {ARRAYS_NAME: {"sha256": manifest.arrays_sha256, "bytes": manifest.arrays_bytes}},
    }
    try:
        # As it will be read: JSON makes tuples lists and keys strings, which would change the checksum.
        content = json.loads(json.dumps(content))
    except (TypeError, ValueError) as error:
        raise MetadataNotJSON(
            f"The checkpoint of step {manifest.step} cannot be described in JSON: {error}. Give model, "
            f"structure and metadata made of dictionaries, lists, strings, numbers, booleans and None."
        ) from error
    content["checksum"] = _checksum(content)
    file.write(json.dumps(content, indent=1).encode() + b"\n")


def read_manifest(path: Path) -> Manifest:
    """Read and verify a manifest.

    Raises:
        CheckpointTruncated: the file is missing or ends early.
        CheckpointForeign: it is not a PCP checkpoint's.
        CheckpointNewer: its format is newer than this version reads.
        CheckpointCorrupt: its content does not have its checksum.
    """
    try:
        text = path.read_text("utf-8")
    except FileNotFoundError:
        raise CheckpointForeign(f"{path.parent} is not a PCP checkpoint: it holds no {path.name}.") from None
    except UnicodeDecodeError as error:
        raise CheckpointCorrupt(f"The checkpoint {path.parent} is damaged: {path.name}: {error}.") from error
    try:
        content = json.loads(text)
    except json.JSONDecodeError as error:
        if not text.rstrip().endswith("}"):
            raise CheckpointTruncated(
                f"The checkpoint {path.parent} is incomplete: {path.name} ends after {len(text)} characters."
            ) from error
        raise CheckpointCorrupt(f"The checkpoint {path.parent} is damaged: {path.name}: {error}.") from error
    if not isinstance(content, dict) or content.get("format") != FORMAT:
        raise CheckpointForeign(
            f'{path.parent} is not a PCP checkpoint: {path.name} lacks the entry "format": {FORMAT!r}.'
        )
    version = content.get("version")
    if isinstance(version, int) and version > VERSION:
        raise CheckpointNewer(
            f"The checkpoint {path.parent} has format version {version}; this PCP reads up to {VERSION}. Update PCP."
        )
    checksum = content.pop("checksum", None)
    if checksum != _checksum(content):
        raise CheckpointCorrupt(
            f"The checkpoint {path.parent} is damaged: the content of {path.name} does not have its checksum."
        )
    file = content["files"][ARRAYS_NAME]
    return Manifest(
        step=content["step"],
        model=content["model"],
        program_digest=content["program_digest"],
        structure=content["structure"],
        metadata=content["metadata"],
        arrays={name: (entry["dtype"], tuple(entry["shape"])) for name, entry in content["arrays"].items()},
        arrays_sha256=file["sha256"],
        arrays_bytes=file["bytes"],
    )


def _checksum(content: dict[str, Any]) -> str:
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(canonical.encode()).hexdigest()
