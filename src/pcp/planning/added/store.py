"""Where added kernels are kept: a folder for each, named by the digest of its content, with the verdict on it. From there they
enter the families, so that plans choose them like any other.

A folder is entered whole by renaming it, so no process ever sees a part of one. The name is the content's, so what was verified
is what is used.
"""

import contextlib
import hashlib
import json
import logging
import os
import secrets
import shutil
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pcp.errors import PCPError
from pcp.folders import data_folder
from pcp.ir.bindings import ir
from pcp.ir.program_file import write_atomically
from pcp.kernels import FAMILIES, Kernel
from pcp.kernels.artifact import StableHLO
from pcp.kernels.candidate import Candidate, read_candidate
from pcp.kernels.manifest import InvalidCandidate
from pcp.kernels.registry import register_kernel
from pcp.planning.added.lowering import lowered
from pcp.planning.added.lowering_process import KernelNotLowered
from pcp.planning.added.posing import Posed, posed_at
from pcp.tensor import Tensor
from pcp.tracing import call

log = logging.getLogger("pcp.planning.added")

MOST_FILES, MOST_BYTES = 1000, 64 << 20
TASK = "pcp_task"
"""The folder beside a kernel for a region that holds inputs and expected results; it is no part of the kernel."""
_LEFT_OUT = {"__pycache__", ".git", TASK}
_VERDICT = "verdict.json"


class CannotAdd(PCPError):
    """A folder that cannot be kept as an added kernel."""


class NotAdded(PCPError):
    """A name under which no kernel was added."""


@dataclass(frozen=True, slots=True)
class Added:
    """A kernel that a user has added.

    Arguments:
        digest: of everything in its folder.
        candidate: as its manifest describes it, in the folder of the store.
        verdict: what verifying it said, for JSON.
    """

    digest: str
    candidate: Candidate
    verdict: Mapping[str, Any]

    @property
    def name(self) -> str:
        """What plans and paths call it."""
        return self.candidate.called(self.digest)


class Store:
    """The added kernels of a user.

    Arguments:
        folder: made with the first kernel; None takes `kernels` in PCP's data folder.
    """

    def __init__(self, folder: str | os.PathLike[str] | None = None) -> None:
        self.folder = Path(folder) if folder is not None else data_folder() / "kernels"

    def all(self) -> list[Added]:
        """Every kernel, in order of its name. One whose content has changed is left out with a warning."""
        kernels = []
        for place in sorted(self.folder.glob("*/" + _VERDICT)):
            digest = place.parent.name
            try:
                if content_digest(place.parent / "content") != digest:
                    raise InvalidCandidate("its content is not what was verified")
                candidate = read_candidate(place.parent / "content")
                kernels.append(Added(digest, candidate, json.loads(place.read_text())))
            except (PCPError, OSError, ValueError) as error:
                log.warning("the added kernel %s is left out: %s; add it again", place.parent, error)
        return sorted(kernels, key=lambda each: each.candidate.name)

    @contextlib.contextmanager
    def staged(self, folder: str | os.PathLike[str]) -> Iterator[tuple[Candidate, str]]:
        """A private copy of a folder, and the digest of its content: what is verified there is what `enter` keeps.

        Its name is like a kept kernel's: a kernel cannot tell from where its file lies that it is being verified.

        Raises:
            InvalidCandidate: the folder holds no kernel.
            CannotAdd: it is too large, holds links, or cannot be copied.
        """
        read_candidate(folder)  # which says best what is wrong with a folder
        try:
            self.folder.mkdir(mode=0o700, parents=True, exist_ok=True)
            temporary = self.folder / secrets.token_hex(32)
            temporary.mkdir(mode=0o700)
        except OSError as error:
            raise CannotAdd(
                f"{self.folder} cannot be written: {error.strerror}; set PCP_DATA_DIR to another folder"
            ) from None
        try:
            _copy(Path(folder), temporary / "content")
            yield read_candidate(temporary / "content"), content_digest(temporary / "content")
        finally:
            shutil.rmtree(temporary, ignore_errors=True)

    def recorded(self, digest: str) -> dict[str, Any] | None:
        """The verdict on content of that digest, if it was verified and accepted before."""
        try:
            verdict = json.loads((self.folder / "verdicts" / f"{digest}.json").read_text())
        except (OSError, ValueError):
            return None
        return verdict if isinstance(verdict, dict) else None

    def record(self, digest: str, verdict: Mapping[str, Any]) -> None:
        """Keep the verdict on some content."""
        try:
            (self.folder / "verdicts").mkdir(mode=0o700, parents=True, exist_ok=True)
            write_atomically(self.folder / "verdicts" / f"{digest}.json", json.dumps(verdict).encode())
        except OSError as error:
            log.warning("the verdict is not kept: %s", error)

    def enter(self, candidate: Candidate, digest: str, verdict: Mapping[str, Any]) -> Added:
        """Keep a staged kernel.

        Raises:
            CannotAdd: another one of its name is there already.
        """
        for other in self.all():
            if other.digest == digest:
                return other
            if other.candidate.name == candidate.name:
                raise CannotAdd(
                    f"a kernel named {candidate.name} with other content ({other.digest[:12]}) is added already; "
                    f"run `pcp kernels remove {candidate.name}` first, or give this one another name"
                )
        staged, kept = candidate.folder.parent, self.folder / digest
        write_atomically(staged / _VERDICT, json.dumps(verdict).encode())
        try:
            os.rename(staged, kept)
        except OSError:
            if not (kept / _VERDICT).exists():  # it was not another process that added the same
                shutil.rmtree(kept, ignore_errors=True)
                os.rename(staged, kept)
        return Added(digest, read_candidate(kept / "content"), verdict)

    def remove(self, name: str) -> list[Added]:
        """Take out a kernel by its name, with or without a digest; those that were taken out.

        Raises:
            NotAdded: no kernel of that name was added.
        """
        every = self.all()
        matches = [each for each in every if name in (each.candidate.name, each.name)]
        if not matches:
            known = ", ".join(each.candidate.name for each in every) or "none at all"
            raise NotAdded(f"no kernel named {name!r} was added; there are {known}")
        for each in matches:
            gone = self.folder / f".gone-{each.digest}"
            shutil.rmtree(gone, ignore_errors=True)
            os.rename(self.folder / each.digest, gone)  # in one step for whoever reads it
            shutil.rmtree(gone, ignore_errors=True)
        return matches


def content_digest(folder: Path) -> str:
    """The SHA-256 of the names and bytes of all files in a folder."""
    hasher = hashlib.sha256()
    for name, file in sorted(_files(folder)):
        content = file.read_bytes()
        hasher.update(f"{len(name.encode())} {name} {len(content)} ".encode() + content)
    return hasher.hexdigest()


def _files(folder: Path) -> Iterator[tuple[str, Path]]:
    count = total = 0
    for place, folders, files in os.walk(folder):
        folders[:] = [each for each in folders if each not in _LEFT_OUT]
        for each in [*files, *folders]:
            file = Path(place) / each
            if file.is_symlink() or (each in files and not file.is_file()):
                raise CannotAdd(f"{file} is a link or no plain file; give a folder of plain files only")
            if each in folders:
                continue
            count, total = count + 1, total + file.stat().st_size
            if count > MOST_FILES or total > MOST_BYTES:
                raise CannotAdd(
                    f"{folder} holds more than {MOST_FILES} files or {MOST_BYTES >> 20} MiB; a kernel is smaller"
                )
            yield file.relative_to(folder).as_posix(), file


def _copy(folder: Path, to: Path) -> None:
    try:
        for name, file in list(_files(folder)):
            (to / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(file, to / name)
    except OSError as error:
        raise CannotAdd(f"{folder} cannot be copied: {error}") from None


def register_added(store: Store | None = None) -> list[Kernel]:
    """Enter the kernels of a store into their families, and take out those that are not there any more."""
    every = {each.name: each for each in (store or Store()).all()}
    for family in FAMILIES.values():
        for name in [name for name in family.kernels if "#" in name and name not in every]:
            del family.kernels[name]
    registered = []
    for name, added in every.items():
        kernels = FAMILIES[added.candidate.family].kernels
        registered.append(kernels[name] if name in kernels else register_kernel(_kernel(added)))
    return registered


def _kernel(added: Added) -> Kernel:
    candidate = added.candidate

    def applies(op: ir.Operation) -> bool:
        posed = posed_at(candidate, op)
        return posed is not None and _is_lowered(added, posed)

    def build(op: ir.Operation) -> Sequence[Tensor]:
        posed = posed_at(candidate, op)
        if posed is None:
            raise KernelNotLowered(f"{added.name} does not fit {op.name} as it stands there; plan again")
        computed = call(lowered(candidate, added.digest, posed.problem), *posed.operands())
        result = posed.result(*computed) if isinstance(computed, tuple) else posed.result(computed)
        return [result] if isinstance(result, Tensor) else result

    return Kernel(
        added.name,
        candidate.about,
        applies,
        StableHLO(build),
        candidate.needs,
        effect=candidate.effect,
        version=candidate.version,
        nonfinite=candidate.nonfinite,
    )


def _is_lowered(added: Added, posed: Posed) -> bool:
    try:
        lowered(added.candidate, added.digest, posed.problem)
    except KernelNotLowered as error:
        log.warning("an added kernel is left out: %s", error)
        return False
    return True
