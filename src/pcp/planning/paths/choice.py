"""Choice: the kernel that computes a site of a program."""

from dataclasses import dataclass

from pcp.errors import PCPError
from pcp.kernels import Kernel, KernelUnavailable
from pcp.kernels.features import KINDS


@dataclass(frozen=True, slots=True, order=True)
class Choice:
    """A kernel for a site.

    Arguments:
        site: the key of the site in its program.
        kernel: its name.
        version: its version when it was chosen.
        library: digest of the build of the native library that it called; empty where it calls none, or any build will do.
    """

    site: str
    kernel: str
    version: int
    library: str = ""

    @property
    def entry(self) -> list[str | int]:
        """As it stands in a file."""
        return [self.site, self.kernel, self.version, *([self.library] if self.library else [])]


class PathMismatch(PCPError):
    """A Path that belongs to another program, other hardware, or other versions of what it names."""


def check_available(choice: Choice, kernel: Kernel) -> None:
    """Look whether what a kernel needs is here.

    Raises:
        KernelUnavailable: it is not.
        PathMismatch: the native library that it calls is another build.
    """
    if not kernel.needs:
        return
    kinds = [kind for kind in sorted(KINDS) if kernel.is_for(kind)]
    lacks = [kernel.lacks(kind) for kind in kinds]
    if all(lacks):
        raise KernelUnavailable(
            f"the path has kernel {kernel.name} compute site {choice.site[:12]}, which cannot be had here: {lacks[0]}; "
            "plan again to do without it"
        )
    here = kernel.artifact.digest
    if choice.library and choice.library != here:
        raise PathMismatch(
            f"the path was made with build {choice.library} of the native library of kernel {kernel.name}, and here is {here}: "
            'its results may differ in their last bits; plan again, or follow it anyway as path.made_on("", "")'
        )
