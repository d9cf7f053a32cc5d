"""A program and its compiled form in one file, which runs on a machine that has IREE's runtime and no compiler."""

import hashlib
import io
import json
import os
import struct
import zipfile
import zlib
from dataclasses import dataclass
from pathlib import Path

from pcp.backends import Target, UnknownDevice
from pcp.errors import PCPError
from pcp.ir import Program
from pcp.ir.program_file import write_named
from pcp.planning.capacity import check_capacity, memory_limit
from pcp.planning.compiled import Compiled

_FACTS, _PROGRAM, _MODULE = "pcp.json", "program.stablehlo", "module.vmfb"
_ENTRIES = _FACTS, _PROGRAM, _MODULE
_FORMAT = 1
_LARGEST_FACTS = 1 << 16
_DAMAGES = (
    zipfile.BadZipFile,
    zlib.error,
    KeyError,
    ValueError,
    TypeError,
    EOFError,
    RuntimeError,
    OSError,
    struct.error,
    RecursionError,
    OverflowError,
)
"""What reading a damaged archive, or what it holds, may raise."""


class InvalidArtifact(PCPError):
    """A file that holds no compiled program, or a damaged one."""


@dataclass(frozen=True, slots=True)
class CompiledArtifact:
    """A program compiled ahead for a chip.

    Arguments:
        program: what it computes, with the names and nesting of its arguments.
        chip: what the code is for, as `rocm:gfx942`.
        module: for IREE's virtual machine; `module.vmfb` in the file.
    """

    program: Program
    chip: str
    module: bytes

    def to_bytes(self) -> bytes:
        """What the file holds: a ZIP archive whose entries are not compressed."""
        program = self.program.artifact()
        facts = {"format": _FORMAT, "chip": self.chip, "digest": _digest(program, self.module)}
        buffer = io.BytesIO()
        with zipfile.ZipFile(buffer, "w") as archive:
            for name, content in ((_FACTS, json.dumps(facts)), (_PROGRAM, program), (_MODULE, self.module)):
                archive.writestr(
                    zipfile.ZipInfo(name), content
                )  # without the time: equal artifacts are equal bytes
        return buffer.getvalue()

    def save(self, file: str | os.PathLike[str]) -> None:
        """Write the file.

        Raises:
            OSError: it cannot be written.
        """
        write_named(file, self.to_bytes())

    @staticmethod
    def load(file: str | os.PathLike[str]) -> "CompiledArtifact":
        """The compiled program in a file. It is machine code: load only files that you trust.

        Raises:
            InvalidArtifact: the file is no compiled program, is damaged, or was written by a newer PCP.
            OSError: it cannot be read.
        """
        return CompiledArtifact.from_bytes(Path(file).read_bytes(), os.fspath(file))

    @staticmethod
    def from_bytes(content: bytes, what: str) -> "CompiledArtifact":
        """The compiled program that `to_bytes` wrote.

        Arguments:
            content: machine code: from who is trusted.
            what: for messages.

        Raises:
            InvalidArtifact: it is no compiled program, is damaged, or was written by a newer PCP.
        """
        try:
            facts, program, module = _entries(content)
            read = json.loads(facts)
            form, chip, digest = read["format"], str(read["chip"]), read["digest"]
        except _DAMAGES as error:
            raise InvalidArtifact(
                f"{what} is no compiled program ({error!s:.200}); write one with `pcp compile`"
            ) from None
        if form != _FORMAT:
            raise InvalidArtifact(
                f"{what} has format {form}, this PCP reads {_FORMAT}; compile the program again"
            )
        if digest != _digest(program, module):
            raise InvalidArtifact(f"{what} is damaged: its digest differs; copy or compile it again")
        return CompiledArtifact(Program.from_artifact(program), chip, module)

    def on(self, device: str | Target | None = None) -> Compiled:
        """The program ready to be called; nothing is compiled.

        Arguments:
            device: of IREE, as `iree:vulkan:0`; None takes the first of the kind that it was compiled for.

        Raises:
            UnknownBackend: IREE's runtime is not installed.
            UnknownDevice: there is no such device here.
            InvalidArtifact: it was compiled for another kind of device.
            OutOfMemory: its arguments and results do not fit in the device's memory.
        """
        from pcp.backends.iree.running import IREEExecutable

        kind = self.chip.partition(":")[0]
        try:
            target = Target.of(f"iree:{kind}" if device is None else device)
        except UnknownDevice:
            if device is not None:
                raise
            raise UnknownDevice(
                f"the program was compiled for {self.chip}, and IREE finds no {kind} device here; take the file to a machine "
                "that has one, or compile the program for another target"
            ) from None
        if (target.backend, target.platform) != ("iree", kind):
            raise InvalidArtifact(
                f"the program was compiled for {self.chip}, and the device is {target}; give a device iree:{kind}, or compile "
                "the program for that device"
            )
        executable = IREEExecutable(self.module, self.program, target.device)
        check_capacity(self.program, executable.memory, target, memory_limit(target))
        return Compiled(self.program, target, executable)


def compile_ahead(program: Program, chip: str) -> CompiledArtifact:
    """A program compiled for a chip, which need not be in this machine.

    Arguments:
        program: any.
        chip: `llvm-cpu:generic`, `cuda:sm_80`, `rocm:gfx942`, `metal`, ...; `iree:` may stand before it.

    Raises:
        InvalidTarget: there is no such chip; the message lists those that are.
        CompilationFailed: IREE refuses the program, or its compiler is not installed.
    """
    from pcp.backends.iree.chips import Chip
    from pcp.backends.iree.compiling import compiled_for

    parsed = Chip.of(chip.removeprefix("iree:"))
    return CompiledArtifact(program, str(parsed), compiled_for(program, parsed, {}, cache=False))


def _entries(content: bytes) -> list[bytes]:
    """The three entries of an archive. They are read in memory, and none is larger than the archive: nothing is unpacked.

    Raises:
        ValueError: it has others, or packed or encrypted ones; and what reading a damaged archive raises.
    """
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        infos = archive.infolist()
        names = [each.filename for each in infos]
        if names != list(_ENTRIES):
            shown = ", ".join(repr(name[:40]) for name in names[:4]) + ", ..." * (len(names) > 4)
            raise ValueError(f"it has {len(names)} entries, {shown}; expected {', '.join(_ENTRIES)}")
        for each in infos:
            if each.compress_type != zipfile.ZIP_STORED or each.compress_size != each.file_size:
                raise ValueError(
                    f"its entry {each.filename} is packed, {each.compress_size} bytes for {each.file_size}; expected entries "
                    "that are stored as they are"
                )
            if each.file_size > len(content):
                raise ValueError(
                    f"its entry {each.filename} is said to have {each.file_size} bytes of {len(content)}"
                )
        if infos[0].file_size > _LARGEST_FACTS:
            raise ValueError(
                f"its entry {_FACTS} has {infos[0].file_size} bytes; expected {_LARGEST_FACTS} at most"
            )
        return [archive.read(each) for each in infos]


def _digest(program: bytes, module: bytes) -> str:
    return hashlib.sha256(hashlib.sha256(program).digest() + module).hexdigest()
