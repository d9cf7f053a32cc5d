"""Plans: a Program with the way it is run, compiled for a device."""

from pcp.planning.autodiff_plan import AutoDiffPlan as AutoDiffPlan
from pcp.planning.exploration import Explored as Explored
from pcp.planning.exploration import explore as explore
from pcp.planning.nan_finder import NaNFound as NaNFound
from pcp.planning.nan_finder import find_nan as find_nan
from pcp.planning.path import Path as Path
from pcp.planning.path import PathMismatch as PathMismatch
from pcp.planning.paths import paths as paths
from pcp.planning.plan import Plan as Plan
from pcp.planning.plan import plan as plan
from pcp.planning.search import ToleranceUnreachable as ToleranceUnreachable
from pcp.planning.within import plan_within as plan_within
