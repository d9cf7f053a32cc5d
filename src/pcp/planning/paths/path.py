"""Path: the choices that turn a Program into something to run; a value that can be written down and followed again."""

import contextlib
import functools
import hashlib
import json
import os
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from pcp.backends import Device, Target
from pcp.backends.base import CompileOptions
from pcp.backends.regions import Placement
from pcp.backends.registry import DEFAULT
from pcp.backends.target import Option
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.program_file import read_named, write_named
from pcp.kernels import Kernel, Place, Site, sites_of
from pcp.planning.paths.checks import NotAPath as NotAPath
from pcp.planning.paths.checks import PathMismatch as PathMismatch
from pcp.planning.paths.checks import expect_backend
from pcp.planning.paths.kept import kept
from pcp.planning.paths.kinds import (
    BOUND,
    KERNEL,
    LOWERING,
    OPTION,
    PLACED,
    STREAMED,
    Stage,
    applied,
    at_stages,
    entries_of,
    in_order,
    moves_in,
    written,
)
from pcp.planning.paths.kinds.bound import check_bound
from pcp.planning.paths.kinds.kernels import Choice, kernels_in
from pcp.planning.paths.kinds.places import moves_of, placement_of
from pcp.planning.paths.move import Move
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.equality import Form
from pcp.rewrite.memory.recomputation import Recomputation


@dataclass(frozen=True, slots=True)
class Path:
    """One way to run a program: a tuple of moves. Without moves, but for the compiler's options, it is the plain path.

    Arguments:
        program: digest of the program.
        moves: what makes of the program what is run, each at another place; kept in order.
        backend: the name of what compiles.
        prepared: digest of the simplified program that the choices are made for; empty where they are made for the program as
            it is written, as always where results are to be the plain path's, bit for bit.
        hardware, versions: what it was made on and with, where its numbers are to be the same, bit for bit; or empty.
    """

    program: str
    moves: tuple[Move, ...] = ()
    backend: str = DEFAULT
    prepared: str = ""
    hardware: str = field(default="", compare=False)
    versions: str = field(default="", compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "moves", in_order(self.moves))

    @staticmethod
    def of(
        program: Program,
        kernels: Mapping[str, Kernel] = MappingProxyType({}),
        options: CompileOptions = MappingProxyType({}),
        tolerance: float | None = None,
        backend: str = DEFAULT,
        forms: tuple[Move, ...] = (),
    ) -> "Path":
        """The path with these kernels, by the keys of the sites of the program that is prepared for a tolerance.

        Arguments:
            forms: moves that make another program of it before its sites are looked for.

        Raises:
            FormMismatch: the program has no such equal program.
            NotInParts: it does not compute its batch in so many parts.
        """
        path = Path.plain(program, options, backend)
        choices = (KERNEL.move(Choice.of(kernel), site) for site, kernel in kernels.items())
        ready = "" if tolerance == 0.0 else prepared(program, forms=forms).digest
        return replace(path, moves=(*path.moves, *forms, *choices), prepared=ready)

    @staticmethod
    def plain(
        program: Program, options: CompileOptions = MappingProxyType({}), backend: str = DEFAULT
    ) -> "Path":
        """The path that runs a program as it is written."""
        return Path(program.digest, (), backend).compiled_by(options.items())

    def having(self, kind: str, moves: Iterable[Move] = ()) -> "Path":
        """The path with these moves of a kind in the place of those that it has; without any, where there are none."""
        others = (move for move in self.moves if move.kind != kind)
        return replace(self, moves=(*others, *moves))

    def compiled_by(self, options: Iterable[tuple[str, Option]]) -> "Path":
        """The path with these options of the compiler, and no others."""
        return self.having(OPTION.name, [OPTION.move(value, name) for name, value in options])

    def suited(self, program: Program, target: Target) -> "Path":
        """The path with the options of the compiler that suit what it makes of a program on a target; its own win.

        Whoever makes a path asks for them. One that cannot be applied stays as it is: whoever applies it is told why.
        """
        there, suits = self.target(target.devices).with_options({}), dict[str, Option]()
        if there.has_options:
            with contextlib.suppress(PCPError):
                suits = dict(_suits(self.compiled_by(()), program, there))
        return self.compiled_by({**suits, **dict(self.options)}.items())

    def placed(self, placement: Placement | None) -> "Path":
        """The path whose operations run where a placement says, and nowhere else; then nothing is computed by binding."""
        path = self if placement is None else self.having(BOUND.name)
        return path.having(STREAMED.name).having(PLACED.name, moves_of(placement))

    def _of(self, kind: str) -> tuple[Move, ...]:
        return tuple(move for move in self.moves if move.kind == kind)

    def _only(self, kind: str, default: Any = None) -> Any:
        return next((move.value for move in self._of(kind)), default)

    @property
    def choices(self) -> dict[str, Choice]:
        """The kernels that it has, by the keys of their sites, in order."""
        return {move.at: move.value for move in self._of("kernel")}

    @property
    def options(self) -> tuple[tuple[str, Option], ...]:
        """Of the compiler, in order of their names."""
        return tuple((move.at, move.value) for move in self._of("option"))

    @property
    def stored(self) -> tuple[tuple[str, str], ...]:
        """What values are kept in, by the names of their classes."""
        return tuple((move.at, move.value) for move in self._of("stored"))

    @property
    def forms(self) -> tuple[Move, ...]:
        """What makes another program of it before its sites are looked for."""
        return at_stages(self.moves, Stage.written, Stage.prepared)

    @property
    def equal(self) -> Form | None:
        """The program that is equal by algebra and computed instead; None computes it as written."""
        form: Form | None = self._only("equal")
        return form

    @property
    def parts(self) -> int:
        """In how many parts the prepared program computes its batch; the choices are for one of them."""
        return int(self._only("parts", 1))

    @property
    def recomputation(self) -> Recomputation | None:
        """What the program with its choices makes again, to take less memory; None makes nothing again."""
        recomputation: Recomputation | None = self._only("remade")
        return recomputation

    @property
    def bound(self) -> tuple[int, ...]:
        """The flat places of the arguments of which what they alone decide is computed once, when they are bound."""
        return tuple(range(self._only(BOUND.name, 0)))

    @property
    def placement(self) -> Placement | None:
        """Which operations run elsewhere than the others; None where all run in one place."""
        return placement_of(self.moves)

    def home(self, place: Target) -> Target:
        """The target for arguments and results in a place; by the path's own backend, unless that streams to another place."""
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
        expect_backend(self.backend, f"the path was made for backend {self.backend!r}, which")

    @property
    def is_plain(self) -> bool:
        """Whether the program is run as it is written."""
        return not self.prepared and all(move.kind == OPTION.name for move in self.moves)

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
        moves = self._of(KERNEL.name)
        if not hardware and not versions:
            moves = tuple(replace(move, value=replace(move.value, library="")) for move in moves)
        return replace(self.having(KERNEL.name, moves), hardware=hardware, versions=versions)

    def check_place(self, hardware: str, versions: str) -> None:
        """Compare what it was made on with what is here.

        Raises:
            PathMismatch: its numbers would be others here.
        """
        for what, recorded, here in (
            ("hardware", self.hardware, hardware),
            ("versions", self.versions, versions),
        ):
            if recorded and recorded != here:
                raise PathMismatch(
                    f"the path was made on {what} {recorded}, and here is {here}: its results may differ in their last bits; "
                    'plan again, or follow it anyway as path.made_on("", "")'
                )

    def kernels(self) -> dict[str, Kernel]:
        """The kernels by the keys of their sites.

        Raises:
            UnknownKernel: one is not registered here.
            KernelUnavailable: this machine lacks what one needs, as a native library.
            PathMismatch: one has another version here than when it was chosen, or calls another build of a native library.
        """
        return kernels_in(self._of(KERNEL.name))

    def check_sites(self, program: Program, target: Target) -> None:
        """Look whether every kernel is one for the site that it is chosen for, on a target.

        Raises:
            PathMismatch: the path belongs to another program, or a kernel does not apply, or the program has no such equal one.
            UnknownKernel: a kernel is not registered here.
        """
        self.check_program(program)
        check_bound(program, len(self.bound))
        self.kernels()
        if self.forms:
            _ready(self, program)
        here = self.sites(program, target) if self.choices else {}
        for key, choice in self.choices.items():
            site = here.get(key)
            if site is None or choice.kernel not in site.kernels:
                known = (
                    f"there are {', '.join(site.kernels)}"
                    if site
                    else "no kernel applies to anything of that key"
                )
                raise PathMismatch(
                    f"the path has kernel {choice.kernel} compute site {key[:12]}, where it does not apply on "
                    f"{target.platform}: {known}; plan again"
                )

    def sites(self, program: Program, target: Place) -> dict[str, Site]:
        """The sites of a program that it may choose kernels for, by their keys.

        Raises:
            PathMismatch: the program has another form here.
        """
        return {site.key: site for site in sites_of(_ready(self, program), target)}

    def check_places(self) -> None:
        """Look whether the places that operations are told to run in are here.

        Raises:
            PathMismatch: the backend of one is not.
            UnknownDevice: its device is not.
        """
        for place in () if self.placement is None else self.placement.places:
            name = place.partition(":")[0]
            expect_backend(name, f"the path has operations run on {place}, and backend {name!r}")
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
        if not (self.prepared or self.forms or at_stages(self.moves, *LOWERING)):
            return program  # as it is written
        self.kernels()  # whether they are those of this path is asked anew each time
        return _applied(self.compiled_by(()), program)

    def _chosen(self) -> dict[str, Any]:
        return written({name: getattr(self, name) for name in ("program", "prepared", "backend")}, self.moves)

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
        entries = entries_of(text)
        more = (entries[name] for name in ("backend", "prepared", "hardware", "versions"))
        return Path(entries["program"], moves_in(entries), *more)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write it to a file, whole or not at all.

        Raises:
            UnwritableFile: the file cannot be written.
        """
        write_named(path, self.to_json().encode())

    @staticmethod
    def load(path: str | os.PathLike[str]) -> "Path":
        """The path in a file.

        Raises:
            NotAPath: it holds none.
            UnreadableFile: it cannot be read.
        """
        try:
            return Path.from_json(read_named("the path", path).decode())
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


@functools.lru_cache(maxsize=8)
def _applied(path: Path, program: Program) -> Program:
    return kept(path, program, lambda: applied(_ready(path, program), path.moves, *LOWERING))


@functools.lru_cache(maxsize=256)
def _suits(path: Path, program: Program, target: Target) -> tuple[tuple[str, Option], ...]:
    return target.suited(path.applied(program)).options


def _ready(path: Path, program: Program) -> Program:
    """The program in the form that the path's choices are made for.

    Raises:
        PathMismatch: it has another form here.
    """
    if not (path.prepared or path.forms or at_stages(path.moves, Stage.sites, Stage.binding)):
        return program  # nothing was chosen in another form
    try:
        ready = prepared(program, None if path.prepared else 0.0, path.forms)
    except PCPError as error:
        raise PathMismatch(f"the path cannot be followed here: {error}; plan again") from None
    if path.prepared and ready.digest != path.prepared:
        raise PathMismatch(
            f"the path was made for the program simplified to {path.prepared[:12]}, which is {ready.digest[:12]} here; "
            "plan again, or install the version of PCP that made the path"
        )
    return ready
