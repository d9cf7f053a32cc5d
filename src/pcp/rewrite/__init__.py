"""Rewrites: equalities between pieces of programs as rows of a table, and the driver that applies them."""

from pcp.rewrite.driver import RewriteDiverges as RewriteDiverges
from pcp.rewrite.driver import rewrite as rewrite
from pcp.rewrite.row import Effect as Effect
from pcp.rewrite.row import Row as Row
from pcp.rewrite.simplify import simplify as simplify
