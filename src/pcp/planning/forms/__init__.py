"""Other forms of a program that are faster: equal ones, and ones that keep values in fewer bits; measured and judged whole."""

from pcp.planning.forms.equal import MeasuredCosts as MeasuredCosts
from pcp.planning.forms.equal import forms_of as forms_of
from pcp.planning.forms.search import looked_at as looked_at
from pcp.planning.forms.search import searched as searched
from pcp.planning.forms.tried import all_tried as all_tried
