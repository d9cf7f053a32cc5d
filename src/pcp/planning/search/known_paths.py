"""The paths of a program that are known to be of use, and which of them is the fastest."""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from pcp.kernels import UnknownKernel
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.paths.kinds import Stage, at_stages
from pcp.planning.paths.path import Path, PathMismatch
from pcp.planning.search.duels import Duels
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.site_checks import seconds_to_verify
from pcp.planning.search.site_classes import SiteClass
from pcp.planning.search.whole import Whole

log = logging.getLogger("pcp.planning.search")

Known = tuple[Path, Measurement]


@dataclass(frozen=True, slots=True)
class KnownPaths:
    """What a search may end with.

    Arguments:
        whole: the program.
        evidence: what is known.
        duels: of its paths.
        classes: of its sites.
        memory_limit: bytes that a call may take.
    """

    whole: Whole
    evidence: Evidence
    duels: Duels
    classes: Sequence[SiteClass]
    memory_limit: int
    _here: dict[str, bool] = field(default_factory=dict)

    def fast(self) -> dict[str, Known]:
        """By their digests those that were measured to be exact enough and faster than the plain one, in that order."""
        whole, evidence = self.whole, self.evidence
        paths = {}
        for digest, row in evidence.known(whole.subject).items():
            if not whole.accepts(row, self.memory_limit) or not evidence.strategy.is_faster(row.blocks):
                continue
            path = evidence.path(digest)
            if path is None or path.forms != whole.forms or len(path.bound) > whole.bound:
                continue
            if path.backend == whole.target.backend and self._is_here(path):
                paths[digest] = path, row
        return paths

    def fastest(self, paths: Mapping[str, Known]) -> Known | None:
        """The one that none has beaten, beginning with the fastest; of two that are about equally fast, the one that was known
        first."""
        first: Known | None = None
        for path, row in paths.values():
            if first is None or row.ratio < (1 - self.evidence.strategy.margin) * first[1].ratio:
                first = path, row
        return None if first is None else paths[self.duels.unbeaten(first[0].digest, paths.keys())]

    def seconds_to_verify(self) -> float:
        """How long it should take to verify the fastest at its sites."""
        best = self.fastest(self.fast())
        return (
            0.0 if best is None else seconds_to_verify(best[0], best[1].typical, self.classes, self.evidence)
        )

    def _is_here(self, path: Path) -> bool:
        """Whether the kernels of a path are those that there are now, and its options those that suit it now."""
        if path.digest not in self._here:
            try:
                path.kernels()
                if at_stages(path.moves, Stage.written, Stage.prepared, Stage.whole):
                    path.applied(self.whole.program)
                suited = self.whole.suited(path.compiled_by(self.whole.target.options))
                self._here[path.digest] = path == suited
            except (PathMismatch, UnknownKernel) as error:
                log.info("a known path is not followed: %s", error)
                self._here[path.digest] = False
        return self._here[path.digest]
