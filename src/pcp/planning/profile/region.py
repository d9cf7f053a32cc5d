"""A region that is kept beside its measurements, so that they say something of similar regions, too."""

import base64
import binascii
import zlib
from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.ir import InvalidProgram, Program

LONGEST_TEXT = 1 << 20
"""Characters of a region's MLIR text; one operation has some hundreds."""
LONGEST_PACKED = 1 << 16
"""Bytes that it may take compressed; a longer one is not kept."""


class NotARegion(PCPError):
    """Bytes that are not the region they are said to be."""


@dataclass(frozen=True, slots=True)
class Region:
    """The program of a region, packed.

    Arguments:
        digest: of the program.
        packed: its MLIR text, compressed. Text, because MLIR's parser of text refuses what is damaged, whoever sent it.
    """

    digest: str
    packed: bytes

    @staticmethod
    def of(program: Program) -> "Region | None":
        """The region of a program; None if it is too large to be kept."""
        packed = zlib.compress(program.text.encode(), 9)
        return Region(program.digest, packed) if len(packed) <= LONGEST_PACKED else None

    def program(self) -> Program:
        """The program.

        Raises:
            NotARegion: it holds no region, or another one.
        """
        unpacking = zlib.decompressobj()
        try:
            text = unpacking.decompress(self.packed, LONGEST_TEXT)
            if not unpacking.eof:
                raise NotARegion(f"the region is longer than {LONGEST_TEXT} characters, or cut off")
            program = Program.parse(text.decode())
            digest = program.digest
        except (zlib.error, UnicodeDecodeError, InvalidProgram) as error:
            raise NotARegion(f"the region is no program: {str(error)[:80]}") from None
        if digest != self.digest:
            raise NotARegion(f"the region has digest {digest[:12]}; expected {self.digest[:12]}")
        return program

    def to_text(self) -> str:
        """The packed program in letters."""
        return base64.b64encode(self.packed).decode()

    @staticmethod
    def from_text(digest: str, text: str) -> "Region":
        """The region in letters, checked.

        Raises:
            NotARegion: the letters hold no region.
        """
        if len(text) > 2 * LONGEST_PACKED:
            raise NotARegion(f"the region takes {len(text)} letters; expected at most {2 * LONGEST_PACKED}")
        try:
            region = Region(digest, base64.b64decode(text, validate=True))
        except binascii.Error as error:
            raise NotARegion(f"the region is not in base64: {error}") from None
        region.program()
        return region
