"""Whether the kernels of a path hold at their sites: a path counts only if each was verified there."""

import logging
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from pcp.kernels import Kernel, kernel_named, replaced
from pcp.kernels.products.kept import with_kept_panels
from pcp.planning.measuring.index_ranges import site_ranges
from pcp.planning.measuring.measurement import Measurement
from pcp.planning.measuring.random_inputs import Recipe
from pcp.planning.measuring.request import Request
from pcp.planning.paths.path import Path
from pcp.planning.search.evidence import Evidence
from pcp.planning.search.question import Answer, Asking, Question
from pcp.planning.search.site_classes import SiteClass
from pcp.planning.search.tuning import kernel_label

log = logging.getLogger("pcp.planning.search")


@dataclass(frozen=True, slots=True)
class Doubt:
    """Why a path is not used.

    Arguments:
        words: for people.
        is_untried: whether a kernel was not verified at its sites, rather than found to be wrong there.
    """

    words: str
    is_untried: bool


def doubt_at_its_sites(path: Path, classes: Sequence[SiteClass], evidence: Evidence) -> Asking[Doubt | None]:
    """What speaks against a path: a kernel that is wrong at a class of its sites, or was not verified there, for lack of time.
    What nobody has verified yet is verified now, the costliest sites first.

    A kernel of PCP's own for which there is no time counts by the whole program, which was judged with it at these very sites.
    None is begun with that should take longer than there is time.

    Arguments:
        evidence: what is known, and what measures.
    """
    unverified = 0
    for each, kernel in _kernels_at(path, classes):
        with evidence.leaving(1.0, of=_for_others(kernel, evidence)):
            row = yield from _verified(each, kernel, evidence)
            is_late = not evidence.seconds_left
        if row is None and is_late and not kernel.is_added:
            unverified += 1
        elif row is None:
            return Doubt(
                f"{kernel.name} was not verified for {each.signature}: {evidence.trouble}", is_untried=True
            )
        elif row.failure is not None:
            words = f"{kernel.name} does not hold for {each.signature}: {row.failure}: {row.detail}"
            return Doubt(words, is_untried=False)
    if unverified:
        log.info("kernels at %d classes of sites count by the whole, judged with them there", unverified)
    return None


def seconds_to_verify(
    path: Path, call_seconds: float, classes: Sequence[SiteClass], evidence: Evidence
) -> float:
    """How long it should take to verify a path at those of its sites where it is not used without that: where kernels from
    outside stand that nobody has verified.

    Each is taken to last as long as the longest verification of this search. Before there was one, it is taken to last as long
    as the shortest measurement of any kind, which compiled and ran something, too, or some calls of the whole program.

    Arguments:
        path: one that may be used.
        call_seconds: of one call of the program by it.
        classes: of the program's sites.
        evidence: what is known, and how long measuring it took.
    """
    unknown = sum(
        kernel.is_added and _known(each, kernel, evidence) is None
        for each, kernel in _kernels_at(path, classes)
    )
    if not unknown:
        return 0.0
    strategy, took = evidence.strategy, evidence.took
    verified = [seconds for (_, label), seconds in took.items() if _AT_SITE in label]
    guess = max(min(took.values(), default=0.0), strategy.site_calls * call_seconds)
    return min(unknown * max(verified, default=guess), strategy.most_kept_back * evidence.budget)


_AT_SITE = " at its site"


def _kernels_at(path: Path, classes: Sequence[SiteClass]) -> Iterator[tuple[SiteClass, Kernel]]:
    """The kernels of a path at each class of sites."""
    named = {site: choice.kernel for site, choice in path.choices.items()}
    for each in classes:
        for name in sorted({named[site.key] for site in each.sites if site.key in named}):
            yield each, kernel_named(name)


def _label(each: SiteClass, kernel: Kernel) -> str:
    """What verifying a kernel at a class is called: of one from outside, with the digest of the text that plans hold there."""
    label = f"{kernel_label(kernel)}{_AT_SITE}"
    return f"{label} {replaced(each.region, kernel).digest}" if kernel.is_added else label


def _for_others(kernel: Kernel, evidence: Evidence) -> float:
    """Seconds of the budget that verifying a kernel leaves: none of one from outside, without which its path is not used.

    All of PCP's own together get a part of the budget, because they count by the whole.
    """
    if kernel.is_added:
        return 0.0
    took = sum([seconds for (_, label), seconds in evidence.took.items() if _AT_SITE in label][-1:])
    is_spent = evidence.verifying + took > evidence.strategy.most_verified * evidence.budget
    return evidence.seconds_left if is_spent else took


def _alone(each: SiteClass, kernel: Kernel, evidence: Evidence) -> Measurement | None:
    """What measuring a kernel alone said: one of PCP's own is verified then, unless it was surely slow.

    What one from outside had become when it was measured may be another text, so it is verified again.
    """
    label = kernel_label(kernel)
    row = evidence.known(each.digest).get(label)
    if row is None or row.failure is not None:
        return row
    rows, worth = evidence.rows(each.digest, label), evidence.strategy.perhaps
    is_verified = not kernel.is_added and any(each.is_verified(worth) for each in rows)
    return row if is_verified else None


def _known(each: SiteClass, kernel: Kernel, evidence: Evidence) -> Measurement | None:
    """What is known of a kernel at a class."""
    alone = _alone(each, kernel, evidence)
    return alone or evidence.known(each.digest).get(_label(each, kernel))


def _verified(each: SiteClass, kernel: Kernel, evidence: Evidence) -> Asking[Answer]:
    alone = _alone(each, kernel, evidence)
    if alone is not None:
        return alone
    label = _label(each, kernel)

    def request() -> Request:
        return Request(
            each.region,
            with_kept_panels(replaced(each.region, kernel), each.bound),
            label,
            inputs=Recipe(sets=1, ranges=site_ranges(each.region)),
            target=evidence.target,
            timing_seconds=0.0,
            site=kernel.claims,
            bound=each.bound,
        )

    what = f"whether {kernel.name} holds for {each}"
    return (
        yield from Question(
            each.digest,
            label,
            request,
            lambda _: True,
            what,
            about=each.signature,
            verifies=True,
        ).asked()
    )
