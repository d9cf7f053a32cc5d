"""Plans: a Program with the way it is run, compiled for a device."""

from pcp.planning.autodiff_plan import AutoDiffPlan as AutoDiffPlan
from pcp.planning.nan_finder import NaNFound as NaNFound
from pcp.planning.nan_finder import find_nan as find_nan
from pcp.planning.plan import Plan as Plan
from pcp.planning.plan import plan as plan
from pcp.planning.within import plan_within as plan_within
