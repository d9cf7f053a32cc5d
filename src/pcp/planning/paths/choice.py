"""Choice: the kernel that computes a site of a program."""

from dataclasses import dataclass


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
