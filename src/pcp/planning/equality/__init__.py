"""Equal programs that are faster: found by equality saturation, measured as a whole, judged like any path."""

from pcp.planning.equality.costs import MeasuredCosts as MeasuredCosts
from pcp.planning.equality.search import Found as Found
from pcp.planning.equality.search import Tried as Tried
from pcp.planning.equality.search import equal_program as equal_program
