"""Merges of a round's contributions to a fragment: the weighted mean, and what holds where some workers are hostile."""

from pcp.distributed.merging.base import InvalidSegments as InvalidSegments
from pcp.distributed.merging.base import InvalidWeights as InvalidWeights
from pcp.distributed.merging.base import Loader as Loader
from pcp.distributed.merging.base import Merge as Merge
from pcp.distributed.merging.base import Merged as Merged
from pcp.distributed.merging.base import NothingToMerge as NothingToMerge
from pcp.distributed.merging.base import NothingUsable as NothingUsable
from pcp.distributed.merging.base import Segment as Segment
from pcp.distributed.merging.base import State as State
from pcp.distributed.merging.base import Verdict as Verdict
from pcp.distributed.merging.base import WrongLength as WrongLength
from pcp.distributed.merging.registry import MERGES as MERGES
from pcp.distributed.merging.registry import UnknownMerge as UnknownMerge
from pcp.distributed.merging.registry import merge as merge
