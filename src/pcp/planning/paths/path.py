"""Path: the choices that turn a Program into something to run; a value that can be written down and followed again."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from pcp.backends import Device, Target, backend_names
from pcp.backends.base import CompileOptions
from pcp.backends.regions import Placement
from pcp.backends.registry import DEFAULT
from pcp.ir import Program
from pcp.ir.program_file import write_atomically
from pcp.kernels import Kernel, Site, apply_kernels, kernel_named, sites_of
from pcp.planning.paths.choice import Choice, check_available
from pcp.planning.paths.choice import PathMismatch as PathMismatch
from pcp.planning.paths.entries import (
    FORMAT,
    NotAPath,
    entries_of,
    form_in,
    parts_in,
    placement_of,
    recomputation_of,
)
from pcp.planning.paths.preparation import NotInParts, prepared
from pcp.rewrite.equality import Form, FormMismatch
from pcp.rewrite.memory.recomputation import Recomputation, recomputed


@dataclass(frozen=True, slots=True)
class Path:
    """One way to run a program. Without choices, recomputation, an equal program and options it is the plain path.

    Arguments:
        program: digest of the program.
        choices: for the sites that are not computed by the operation itself, in order of their keys.
        options: of the compiler, in order of their names.
        backend: the name of what compiles.
        prepared: digest of the simplified program that the choices are made for; empty where they are made for the program as
            it is written, as all are whose results are to be those of the plain path, bit for bit.
        recomputation: what the program with these choices makes again, to take less memory; None makes nothing again.
        placement: which operations of what comes of that run elsewhere than the others; None where all run in one place.
        hardware, versions: what it was made on and with, where its numbers are to be the same, bit for bit; or empty.
        equal: the program that is equal by algebra and computed instead; what is prepared is that. None computes it as written.
        parts: in how many parts the prepared program computes its batch; the choices are for one of them.
    """

    program: str
    choices: tuple[Choice, ...] = ()
    options: tuple[tuple[str, str | int | float | bool], ...] = ()
    backend: str = DEFAULT
    prepared: str = ""
    recomputation: Recomputation | None = None
    placement: Placement | None = None
    hardware: str = field(default="", compare=False)
    versions: str = field(default="", compare=False)
    equal: Form | None = None
    parts: int = 1

    @staticmethod
    def of(
        program: Program,
        kernels: Mapping[str, Kernel] = MappingProxyType({}),
        options: CompileOptions = MappingProxyType({}),
        tolerance: float | None = None,
        backend: str = DEFAULT,
        equal: Form | None = None,
        parts: int = 1,
    ) -> "Path":
        """The path with these kernels, by the keys of the sites of the program that is prepared for a tolerance.

        Raises:
            FormMismatch: the program has no such equal program.
            NotInParts: it does not compute its batch in so many parts.
        """
        choices = (
            Choice(site, kernel.name, kernel.version, kernel.artifact.digest)
            for site, kernel in kernels.items()
        )
        return Path(
            program.digest,
            tuple(sorted(choices)),
            tuple(sorted(options.items())),
            backend,
            prepared="" if tolerance == 0.0 else prepared(program, equal=equal, parts=parts).digest,
            equal=equal,
            parts=parts,
        )

    @staticmethod
    def plain(
        program: Program, options: CompileOptions = MappingProxyType({}), backend: str = DEFAULT
    ) -> "Path":
        """The path that runs a program as it is written."""
        return Path(program.digest, options=tuple(sorted(options.items())), backend=backend)

    def home(self, place: Target) -> Target:
        """The target for arguments and results in a place; by the path's own backend, unless that runs all of it elsewhere."""
        return replace(
            place, backend=place.backend if self.is_streamed else self.backend, options=self.options
        )

    def target(self, devices: tuple[Device, ...]) -> Target:
        """What it is compiled for on some devices: a path holds for every device of its hardware, so it names none."""
        return Target(self.backend, devices, self.options)

    def check_backend(self) -> None:
        """Look whether its backend is registered here.

        Raises:
            PathMismatch: it is not; the message lists those that are.
        """
        if self.backend not in backend_names():
            raise PathMismatch(
                f"the path was made for backend {self.backend!r}, which is not here; there are: {', '.join(backend_names())}; "
                "plan again for one of them, or register it with pcp.backends.register_backend(name, 'module:Class') first"
            )

    @property
    def is_plain(self) -> bool:
        """Whether the program is run as it is written."""
        is_whole = self.recomputation is None and self.placement is None and self.equal is None
        return not self.choices and not self.prepared and is_whole and self.parts == 1

    @property
    def is_streamed(self) -> bool:
        """Whether all operations run elsewhere than where arguments and results lie, piece by piece."""
        return self.placement is not None and self.placement.streamed is not None

    @property
    def digest(self) -> str:
        """The SHA-256 of what it chooses: equal for equal paths in every process, on whatever hardware."""
        return hashlib.sha256(json.dumps(self._chosen(), separators=(",", ":")).encode()).hexdigest()

    def made_on(self, hardware: str, versions: str) -> "Path":
        """The same path, for exactly this hardware and these versions; empty words leave it open, and with it which build of a
        native library is called."""
        choices = self.choices
        if not hardware and not versions:
            choices = tuple(replace(choice, library="") for choice in choices)
        return replace(self, choices=choices, hardware=hardware, versions=versions)

    def check_place(self, hardware: str, versions: str) -> None:
        """Compare what it was made on with what is here.

        Raises:
            PathMismatch: its numbers would be others here.
        """
        for what, made, here in (
            ("hardware", self.hardware, hardware),
            ("versions", self.versions, versions),
        ):
            if made and made != here:
                raise PathMismatch(
                    f"the path was made on {what} {made}, and here is {here}: its results may differ in their last bits; "
                    'plan again, or follow it anyway as path.made_on("", "")'
                )

    def kernels(self) -> dict[str, Kernel]:
        """The kernels by the keys of their sites.

        Raises:
            UnknownKernel: one is not registered here.
            KernelUnavailable: this machine lacks what one needs, as a native library.
            PathMismatch: one has another version here than when it was chosen, or calls another build of a native library.
        """
        found = {choice.site: kernel_named(choice.kernel) for choice in self.choices}
        for choice in self.choices:
            here = found[choice.site].version
            if here != choice.version:
                raise PathMismatch(
                    f"the path was made with version {choice.version} of kernel {choice.kernel}, which is {here} here; "
                    "plan again, or install the version of PCP that made the path"
                )
            check_available(choice, found[choice.site])
        return found

    def check_sites(self, program: Program, platform: str) -> None:
        """Look whether every kernel is one for the site that it is chosen for, on a kind of device.

        Raises:
            PathMismatch: the path belongs to another program, or a kernel does not apply, or the program has no such equal one.
            UnknownKernel: a kernel is not registered here.
        """
        self.check_program(program)
        self.kernels()
        if self.equal is not None or self.parts > 1:
            _ready(self, program)
        if not self.choices:
            return
        here = self.sites(program, platform)
        for choice in self.choices:
            site = here.get(choice.site)
            if site is None or choice.kernel not in site.kernels:
                known = (
                    f"there are {', '.join(site.kernels)}"
                    if site
                    else "no kernel applies to anything of that key"
                )
                raise PathMismatch(
                    f"the path has kernel {choice.kernel} compute site {choice.site[:12]}, where it does not apply on "
                    f"{platform}: {known}; plan again"
                )

    def sites(self, program: Program, platform: str) -> dict[str, Site]:
        """The sites of a program that it may choose kernels for, by their keys.

        Raises:
            PathMismatch: the program has another form here.
        """
        return {site.key: site for site in sites_of(_ready(self, program), platform)}

    def check_places(self) -> None:
        """Look whether the places that operations are told to run in are here.

        Raises:
            PathMismatch: the backend of one is not.
            UnknownDevice: its device is not.
        """
        for place in () if self.placement is None else self.placement.places:
            name = place.partition(":")[0]
            if name not in backend_names():
                raise PathMismatch(
                    f"the path has operations run on {place}, and backend {name!r} is not here; there are: "
                    f"{', '.join(backend_names())}; plan again for one of them, or register it with "
                    "pcp.backends.register_backend(name, 'module:Class') first"
                )
            Target.of(place)

    def check_program(self, program: Program) -> None:
        """Look whether it is of a program.

        Raises:
            PathMismatch: it is another's.
        """
        if program.digest != self.program:
            raise PathMismatch(
                f"the path belongs to program {self.program[:12]}; the program given is {program.digest[:12]}: plan it instead"
            )

    def applied(self, program: Program) -> Program:
        """The program as this path has it computed.

        Raises:
            PathMismatch: it is another program's path, or a kernel has changed.
            UnknownKernel: a kernel is not registered here.
        """
        self.check_program(program)
        if not (self.choices or self.prepared or self.recomputation):
            return program  # as it is written
        self.kernels()  # whether they are those of this path is asked anew each time
        return _applied(self, program)

    def _chosen(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "program": self.program,
            "prepared": self.prepared,
            "backend": self.backend,
            "options": [list(option) for option in self.options],
            "choices": [choice.entry for choice in self.choices],
        } | self._further()

    def _further(self) -> dict[str, Any]:
        """What few paths have, which is not written down where there is none."""
        made: dict[str, Any] = {}
        if self.recomputation is not None:
            made["recomputation"] = asdict(self.recomputation)
        if self.equal is not None:
            made["equal"] = asdict(self.equal)
        if self.parts > 1:
            made["parts"] = self.parts
        if self.placement is not None and self.placement.streamed is not None:
            made["placement"] = dict(zip(("streamed", "bytes"), self.placement.streamed, strict=True))
        elif self.placement is not None:
            made["placement"] = [list(pair) for pair in self.placement.operations]
        return made

    def to_json(self) -> str:
        """The canonical JSON form."""
        whole = self._chosen() | {"hardware": self.hardware, "versions": self.versions}
        return json.dumps(whole, separators=(",", ":"))

    @staticmethod
    def from_json(text: str) -> "Path":
        """The path in a JSON text.

        Raises:
            NotAPath: there is none in it.
        """
        found = entries_of(text)
        return Path(
            found["program"],
            tuple(sorted(Choice(*entry) for entry in found["choices"])),
            tuple(sorted((name, value) for name, value in found["options"])),
            found["backend"],
            found["prepared"],
            recomputation_of(found.get("recomputation")),
            placement_of(found.get("placement")),
            found["hardware"],
            found["versions"],
            form_in(found.get("equal")),
            parts_in(found),
        )

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all.

        Raises:
            OSError: the file cannot be written.
        """
        write_atomically(FilePath(path), self.to_json().encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Path":
        """The path in a file.

        Raises:
            NotAPath: it holds none.
            OSError: it cannot be read.
        """
        try:
            return Path.from_json(FilePath(path).read_text())
        except (NotAPath, UnicodeDecodeError) as error:
            raise NotAPath(f"{os.fspath(path)}: {error}") from None


def expect_path(value: object) -> None:
    """Look whether a value is a path.

    Raises:
        NotAPath: it is something else.
    """
    if not isinstance(value, Path):
        raise NotAPath(
            f"path is {value!r:.60}; expected a Path, as Plan.path, or pcp.Path.load(file) reads it"
        )


@functools.lru_cache(maxsize=2)
def _applied(path: Path, program: Program) -> Program:
    chosen = apply_kernels(_ready(path, program), path.kernels())
    if path.recomputation is None:
        return chosen
    made = recomputed(chosen, path.recomputation)
    if made.digest != path.recomputation.makes:
        raise PathMismatch(
            f"the path makes values again by their numbers, which gave program {path.recomputation.makes[:12]} and here give "
            f"{made.digest[:12]}; plan again with the same memory"
        )
    return made


def _ready(path: Path, program: Program) -> Program:
    """The program in the form that the path's choices are made for.

    Raises:
        PathMismatch: it has another form here.
    """
    try:
        ready = prepared(program, None if path.prepared else 0.0, path.equal, path.parts)
    except NotInParts as error:
        raise PathMismatch(f"the path is not one of this version of PCP: {error}; plan again") from None
    except FormMismatch as error:
        raise PathMismatch(
            f"the path computes an equal program, which cannot be made here: {error}; plan again"
        ) from None
    if path.prepared and ready.digest != path.prepared:
        raise PathMismatch(
            f"the path was made for the program simplified to {path.prepared[:12]}, which is {ready.digest[:12]} here; "
            "plan again, or install the version of PCP that made the path"
        )
    return ready
