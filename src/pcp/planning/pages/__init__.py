"""Programs and plans as pages: what a notebook shows of them, and what `--html` writes."""

from pcp.planning.pages.fragment import page as page
from pcp.planning.pages.fragment import plan_fragment as plan_fragment
from pcp.planning.pages.fragment import program_fragment as program_fragment
from pcp.planning.pages.fragment import symbolic_fragment as symbolic_fragment
