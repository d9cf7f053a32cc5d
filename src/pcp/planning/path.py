"""Path: the choices that turn a Program into something to run; a value that can be written down and followed again."""

import functools
import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path as FilePath
from types import MappingProxyType
from typing import Any

from pcp.backends.base import CompileOptions
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.program_file import write_atomically
from pcp.kernels import Kernel, apply_kernels, kernel_named
from pcp.planning.preparation import prepared

FORMAT = 1


class NotAPath(PCPError):
    """A file that holds no Path."""


class PathMismatch(PCPError):
    """A Path that belongs to another program, other hardware, or other versions of what it names."""


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """A kernel for a site.

    Arguments:
        site: the key of the site in its program.
        kernel: its name.
        version: its version when it was chosen.
    """

    site: str
    kernel: str
    version: int


@dataclass(frozen=True, slots=True)
class Path:
    """One way to run a program. Without choices and options it is the plain path.

    Arguments:
        program: digest of the program.
        choices: for the sites that are not computed by the operation itself, in order of their keys.
        options: of the compiler, in order of their names.
        backend: what compiles.
        prepared: digest of the simplified program that the choices are made for; empty where they are made for the program as
            it is written, as all are whose results are to be those of the plain path, bit for bit.
        hardware, versions: what it was made on and with, where its numbers are to be the same, bit for bit; or empty.
    """

    program: str
    choices: tuple[Choice, ...] = ()
    options: tuple[tuple[str, str | int | float | bool], ...] = ()
    backend: str = "xla"
    prepared: str = ""
    hardware: str = field(default="", compare=False)
    versions: str = field(default="", compare=False)

    @staticmethod
    def of(
        program: Program,
        kernels: Mapping[str, Kernel] = MappingProxyType({}),
        options: CompileOptions = MappingProxyType({}),
        tolerance: float | None = None,
    ) -> "Path":
        """The path with these kernels, by the keys of the sites of the program that is prepared for a tolerance."""
        choices = (Choice(site, kernel.name, kernel.version) for site, kernel in kernels.items())
        return Path(
            program.digest,
            tuple(sorted(choices)),
            tuple(sorted(options.items())),
            prepared="" if tolerance == 0.0 else prepared(program).digest,
        )

    @staticmethod
    def plain(program: Program, options: CompileOptions = MappingProxyType({})) -> "Path":
        """The path that runs a program as it is written."""
        return Path(program.digest, options=tuple(sorted(options.items())))

    @property
    def is_plain(self) -> bool:
        """Whether the program is run as it is written."""
        return not self.choices and not self.prepared

    @property
    def digest(self) -> str:
        """The SHA-256 of what it chooses: equal for equal paths in every process, on whatever hardware."""
        return hashlib.sha256(json.dumps(self._chosen(), separators=(",", ":")).encode()).hexdigest()

    def made_on(self, hardware: str, versions: str) -> "Path":
        """The same path, for exactly this hardware and these versions; empty words leave it open."""
        return replace(self, hardware=hardware, versions=versions)

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
            PathMismatch: one has another version here than when it was chosen.
        """
        found = {choice.site: kernel_named(choice.kernel) for choice in self.choices}
        for choice in self.choices:
            here = found[choice.site].version
            if here != choice.version:
                raise PathMismatch(
                    f"the path was made with version {choice.version} of kernel {choice.kernel}, which is {here} here; "
                    "plan again, or install the version of PCP that made the path"
                )
        return found

    def applied(self, program: Program) -> Program:
        """The program as this path has it computed.

        Raises:
            PathMismatch: it is another program's path, or a kernel has changed.
            UnknownKernel: a kernel is not registered here.
        """
        if program.digest != self.program:
            raise PathMismatch(
                f"the path belongs to program {self.program[:12]}; the program given is {program.digest[:12]}: plan it instead"
            )
        if self.is_plain:
            return program
        self.kernels()  # whether they are those of this path is asked anew each time
        return _applied(self, program)

    def _chosen(self) -> dict[str, Any]:
        return {
            "format": FORMAT,
            "program": self.program,
            "prepared": self.prepared,
            "backend": self.backend,
            "options": [list(option) for option in self.options],
            "choices": [[choice.site, choice.kernel, choice.version] for choice in self.choices],
        }

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
        try:
            found: Any = json.loads(text)
            if found["format"] != FORMAT:
                raise NotAPath(
                    f"the path has format {found['format']}; this version of PCP reads format {FORMAT}"
                )
            return Path(
                str(found["program"]),
                tuple(
                    Choice(str(site), str(kernel), int(version)) for site, kernel, version in found["choices"]
                ),
                tuple((str(name), value) for name, value in found["options"]),
                str(found["backend"]),
                str(found["prepared"]),
                str(found["hardware"]),
                str(found["versions"]),
            )
        except (ValueError, KeyError, TypeError):
            raise NotAPath(
                f"this is not a path: {text[:40]!r}; expected JSON as Path.save writes it"
            ) from None

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


@functools.lru_cache(maxsize=2)
def _applied(path: Path, program: Program) -> Program:
    ready = prepared(program, None if path.prepared else 0.0)
    if path.prepared and ready.digest != path.prepared:
        raise PathMismatch(
            f"the path was made for the program simplified to {path.prepared[:12]}, which is {ready.digest[:12]} here; "
            "plan again, or install the version of PCP that made the path"
        )
    return apply_kernels(ready, path.kernels())
