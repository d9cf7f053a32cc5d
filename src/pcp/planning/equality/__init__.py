"""Equal programs that are faster: found by equality saturation, measured as a whole, judged and taken like any path."""

from pcp.planning.equality.costs import MeasuredCosts as MeasuredCosts
from pcp.planning.equality.forms import Forms as Forms
from pcp.planning.equality.forms import forms_of as forms_of
from pcp.planning.equality.forms import is_here as is_here
from pcp.planning.equality.search import Tried as Tried
from pcp.planning.equality.search import looked_at as looked_at
from pcp.planning.equality.search import searched as searched
