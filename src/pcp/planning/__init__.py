"""Plans: a Program with the way it is run, compiled for a device."""

from pcp.planning.autodiff_plan import AutoDiffPlan as AutoDiffPlan
from pcp.planning.diagnostics.nan_finder import NaNFound as NaNFound
from pcp.planning.diagnostics.nan_finder import find_nan as find_nan
from pcp.planning.exploration.exploration import Explored as Explored
from pcp.planning.exploration.exploration import explore as explore
from pcp.planning.exploration.exploration import paths as paths
from pcp.planning.paths.path import Path as Path
from pcp.planning.paths.path import PathMismatch as PathMismatch
from pcp.planning.plan import Plan as Plan
from pcp.planning.plan import plan as plan
from pcp.planning.search.search import ToleranceUnreachable as ToleranceUnreachable
from pcp.planning.search.whole import ReferenceNotFinite as ReferenceNotFinite
