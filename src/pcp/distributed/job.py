"""What a Shepherd tells a Worker of the run: which programs to run on which data. It travels as JSON in the welcome."""

import json
import math
import re
import time
from collections.abc import Callable, Collection
from dataclasses import asdict, dataclass, field
from datetime import UTC, datetime
from typing import Any

from pcp.distributed.messages import Blob
from pcp.errors import PCPError
from pcp.symbolic.constraints import MOST_SYMBOLS
from pcp.training.data.run_data import DataKind

VERSIONS = {DataKind.tokens: 6, DataKind.samples: 7, DataKind.shards: 8}
"""The version of a description by what the run trains on; 1 and 2 were those of runs without fragments, and up to 5 a push took
the whole state."""

VALID_SECONDS = 365 * 86400
"""How long a signature holds. A Shepherd that has the authority's key and starts after half of it signs anew."""

_SIGNATURE, _TERM = "signature", "signed_for"
_LATEST = 1 << 37
"""Seconds; a date can be made of it."""
_PROGRAM = re.compile(
    r"start|restart|step|clear|(flat|put|mix|gradient|push|receive|gossip)\.(0|[1-9][0-9]{0,3})"
)


_LONGEST_SYMBOL = 100
_CHIP = re.compile(r"[a-z][a-z-]{0,20}(:[a-z0-9_-]{1,40})?")


class InvalidJob(PCPError):
    """A description of a run that this version does not understand."""


@dataclass(frozen=True, slots=True)
class Job:
    """A run as a Worker sees it.

    Arguments:
        programs: portable artifacts by name; see `programs.py`.
        data: the file of the training data.
        batch: sequences or samples in a batch.
        context: tokens in a sequence; 0 where the data is no text.
        seed: of the order of the batches.
        vocabulary: every token is smaller; 0 where the data is no text.
        kind: what the file holds.
        place: a URL where the shards lie; empty where the Shepherd gives them, or the file holds all.
        tolerance: how far a step's numbers may be from exact ones; each Worker looks for its own fastest path within. 0 runs
            the step as it is written.
        plan_seconds: that a Worker may spend on looking.
        overlap: whether a Worker trains its next lease while its last push is uploaded and merged.
        pieces: of a lease, at whose borders a Worker commits to its state; 0 where nothing is audited.
        exchange_every: inner steps between two exchanges with other Workers; 0 where there are none.
        offer_bytes: size of what they exchange.
        artifacts: the programs compiled ahead by the owner, by chip; for Workers that take nothing else.
        held: a safetensors file of arrays that the step takes before its state and leaves as they are; None: it takes none.
        sizes: of those programs that travel as symbolic ones, by name, the sizes at which they are run.
    """

    programs: dict[str, Blob]
    data: Blob
    batch: int
    context: int
    seed: int
    vocabulary: int
    kind: DataKind = DataKind.tokens
    place: str = ""
    tolerance: float = 0.0
    plan_seconds: float = 0.0
    overlap: bool = False
    pieces: int = 0
    exchange_every: int = 0
    offer_bytes: int = 0
    artifacts: dict[str, dict[str, Blob]] = field(default_factory=dict)
    sizes: dict[str, dict[str, int]] = field(default_factory=dict)
    held: Blob | None = None

    @property
    def blobs(self) -> tuple[Blob, ...]:
        """Everything to fetch before the first lease, of a Worker that compiles for itself."""
        return (*self.programs.values(), self.data, *([] if self.held is None else [self.held]))

    @property
    def offered(self) -> tuple[Blob, ...]:
        """Everything that some Worker fetches before its first lease."""
        return (*self.blobs, *(blob for of_chip in self.artifacts.values() for blob in of_chip.values()))

    def to_json(self) -> str:
        """The description as JSON."""
        content = {
            "version": VERSIONS[self.kind],
            "programs": {name: _encode(blob) for name, blob in self.programs.items()},
            self.kind.value: _encode(self.data),
            "batch": self.batch,
            "context": self.context,
            "seed": self.seed,
            "vocabulary": self.vocabulary,
            "overlap": self.overlap,
        }
        if self.place:
            content |= {"place": self.place}
        if self.tolerance:  # a Worker that does not know it computes more exactly than it need
            content |= {"tolerance": self.tolerance, "plan_seconds": self.plan_seconds}
        if self.pieces:  # without the commitments of a Worker that does not know it, its updates are refused
            content |= {"pieces": self.pieces}
        if self.exchange_every:  # a Worker that does not know it refuses the program that it brings
            content |= {"exchange_every": self.exchange_every, "offer_bytes": self.offer_bytes}
        if self.artifacts:  # a Worker that does not know them compiles for itself
            content |= {
                "artifacts": {
                    chip: {name: _encode(blob) for name, blob in of_chip.items()}
                    for chip, of_chip in self.artifacts.items()
                }
            }
        if self.held is not None:  # a Worker that does not know it refuses the step
            content |= {"held": _encode(self.held)}
        if self.sizes:  # a Worker that does not know them refuses the symbolic program
            content |= {"sizes": self.sizes}
        return json.dumps(content, sort_keys=True)

    @staticmethod
    def from_json(text: str) -> "Job":
        """The description that `to_json` wrote, from a peer that is not trusted.

        Raises:
            InvalidJob: it is something else, or of another version.
        """
        try:
            content = json.loads(text)
            kind = next((kind for kind, version in VERSIONS.items() if version == content["version"]), None)
            if kind is None:
                *most, last = map(str, VERSIONS.values())
                understood = f"{', '.join(most)} and {last}"
                raise InvalidJob(
                    f"the run is described in version {content['version']}; this PCP understands {understood}: "
                    "install the one that began the run, or begin another run"
                )
            programs = {_program(name): _decode(blob) for name, blob in content["programs"].items()}
            numbers = {name: _count(content[name]) for name in ("batch", "context", "seed", "vocabulary")}
            return Job(
                programs,
                _decode(content[kind.value]),
                **numbers,
                kind=kind,
                place=_text(content.get("place", "")),
                tolerance=_amount(content.get("tolerance", 0.0)),
                plan_seconds=_amount(content.get("plan_seconds", 0.0)),
                overlap=_truth(content["overlap"]),
                pieces=_count(content.get("pieces", 0)),
                exchange_every=_count(content.get("exchange_every", 0)),
                offer_bytes=_count(content.get("offer_bytes", 0)),
                artifacts=_artifacts(content.get("artifacts", {}), programs),
                sizes=_sizes(content.get("sizes", {}), programs),
                held=_decode(content["held"]) if "held" in content else None,
            )
        except (
            json.JSONDecodeError,
            AttributeError,
            KeyError,
            TypeError,
            ValueError,
            RecursionError,
        ) as error:
            raise InvalidJob(f"the description of the run cannot be read: {error!r}") from None


class JobUnsigned(PCPError):
    """A description that the run's authority did not sign: who sent it must not decide what is run here."""


class JobForeign(JobUnsigned):
    """A description that the authority signed for another run."""


class JobExpired(JobUnsigned):
    """A description whose time is over."""


@dataclass(frozen=True, slots=True)
class Term:
    """What a signature holds for.

    Arguments:
        run: name of the run; no two have the same.
        issued, expires: from when and until when, in seconds since 1970.
    """

    run: str
    issued: int
    expires: int

    @staticmethod
    def of(run: str, now: float) -> "Term":
        """A year from now on."""
        return Term(run, int(now), int(now) + VALID_SECONDS)


def signed(description: str, sign: Callable[[bytes], bytes], term: Term) -> str:
    """A description with the signature of the run's authority, for one run and some time.

    Arguments:
        description: as `Job.to_json` wrote it.
        sign: from bytes to their signature.
        term: what it holds for.
    """
    content = json.loads(description) | {_TERM: asdict(term)}
    content.pop(_SIGNATURE, None)
    return json.dumps(content | {_SIGNATURE: sign(_to_sign(content)).hex()}, sort_keys=True)


def renewed(description: str, sign: Callable[[bytes], bytes] | None, now: float) -> str:
    """A signed description, signed again where half of its time is over.

    Arguments:
        description: of a run that this side began.
        sign: by the run's authority; None where its key is elsewhere.
        now: the time, in seconds since 1970.

    Raises:
        JobExpired: its time is over, and nobody signs.
        InvalidJob: no such job was signed for a run.
    """
    term = _term(json.loads(description))
    if now < term.issued + (term.expires - term.issued) / 2:
        return description
    if sign is not None:
        return signed(description, sign, Term.of(term.run, now))
    if now >= term.expires:
        raise JobExpired(
            f"the signature of the run's description expired on {_day(term.expires)}, and Workers refuse it; start the "
            "Shepherd once where keys/authority.key is, which signs it again, unless the clock of this machine is wrong"
        )
    return description


def check_signature(
    description: str,
    is_signed: Callable[[bytes, bytes], bool],
    run: str | None = None,
    now: float | None = None,
) -> None:
    """Make sure that the run's authority signed a description: programs, data, every setting; and for this run and time.

    Arguments:
        description: from a peer that is not trusted.
        is_signed: whether the second is the authority's signature of the first.
        run: the run that it must be for; None where that is not known.
        now: the time, in seconds since 1970; None: what this machine's clock says.

    Raises:
        InvalidJob: it cannot be read.
        JobUnsigned: the signature is missing, or is not that of this description by this authority.
        JobForeign: it is for another run.
        JobExpired: its time is over.
    """
    try:
        content = json.loads(description)
        signature = bytes.fromhex(content.pop(_SIGNATURE, ""))
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        raise InvalidJob(f"the description of the run cannot be read: {error!r}") from None
    if not signature:
        raise JobUnsigned(
            "the description of the run bears no signature; this worker runs only programs that the run's authority signed: "
            "begin the run anew with this version of PCP"
        )
    if not is_signed(_to_sign(content), signature):
        raise JobUnsigned(
            "the signature of the run's description is not that of the authority in this worker's key file: the Shepherd "
            "offers other programs or settings than the run's owner signed"
        )
    term = _term(content)
    if run is not None and term.run != run:
        raise JobForeign(
            f"the authority signed this description for the run {term.run[:100]!r}, and the Shepherd offers it for "
            f"{run[:100]!r}: connect to the Shepherd of that run, or begin the run anew"
        )
    if (time.time() if now is None else now) >= term.expires:
        raise JobExpired(
            f"the signature of the run's description expired on {_day(term.expires)}; ask the run's owner to start the "
            "Shepherd once where keys/authority.key is, which signs it again, unless the clock of this machine is wrong"
        )


def check_same_run(before: str | None, run: str | None) -> None:
    """Make sure that a worker's process stays with one run: nobody may turn it to another of the same authority.

    Arguments:
        before: the run that it was prepared for; None where it was not yet.
        run: that it is offered.

    Raises:
        JobForeign: it is another.
    """
    if before is not None and before != run:
        raise JobForeign(
            f"this worker was prepared for the run {before!r}, and the Shepherd now offers {run!r}; start the worker again if "
            "it shall train that one"
        )


def _term(content: dict[str, Any]) -> Term:
    term: Any = content.get(_TERM)
    try:
        run, issued, expires = _text(term["run"]), _count(term["issued"]), _count(term["expires"])
    except (TypeError, KeyError, ValueError):
        raise JobForeign(
            "the signature of the run's description names no run and no time that it holds for, as those of earlier versions "
            "of PCP; begin the run anew with this version"
        ) from None
    return Term(run, issued, min(expires, _LATEST))


def _day(seconds: int) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d}"


def _to_sign(content: dict[str, Any]) -> bytes:
    return b"pcp job\n" + json.dumps(content, sort_keys=True).encode()


def _encode(blob: Blob) -> dict[str, Any]:
    return {"digest": blob.digest.hex(), "size": blob.size}


def _decode(content: dict[str, Any]) -> Blob:
    digest = bytes.fromhex(content["digest"])
    if len(digest) != 32:
        raise ValueError(f"a digest has {len(digest)} bytes")
    return Blob(digest, _count(content["size"]))


def _program(name: str) -> str:
    if not _PROGRAM.fullmatch(name):
        raise ValueError(f"{name!r} is not a program of a worker")
    return name


def _artifacts(content: dict[str, Any], programs: Collection[str]) -> dict[str, dict[str, Blob]]:
    for chip, of_chip in content.items():
        if not _CHIP.fullmatch(chip) or of_chip.keys() != set(programs):
            raise ValueError(f"{chip[:40]!r} is not a chip with an artifact of every program")
    return {
        chip: {name: _decode(blob) for name, blob in of_chip.items()} for chip, of_chip in content.items()
    }


def _sizes(content: dict[str, dict[str, Any]], programs: Collection[str]) -> dict[str, dict[str, int]]:
    for name, sizes in content.items():
        numbers = [_count(size) for size in sizes.values()]
        is_named = all(len(symbol) <= _LONGEST_SYMBOL and symbol.isidentifier() for symbol in sizes)
        if name not in programs or not is_named or not 0 < len(numbers) <= MOST_SYMBOLS or 0 in numbers:
            raise ValueError(f"{sizes!r:.80} are not the sizes of a program {name[:40]!r}")
    return {name: dict(sizes) for name, sizes in content.items()}


def _truth(value: Any) -> bool:
    if type(value) is not bool:
        raise ValueError(f"{value!r} is neither true nor false")
    return value


def _text(value: Any) -> str:
    if type(value) is not str:
        raise ValueError(f"{value!r} is not text")
    return value


def _count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not a count")
    return value


def _amount(value: Any) -> float:
    if type(value) not in (int, float) or not 0 <= value < math.inf:
        raise ValueError(f"{value!r} is not an amount")
    return float(value)
