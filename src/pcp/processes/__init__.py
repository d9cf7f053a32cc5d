"""Processes that one PCP starts to do what it had better not do itself: run strangers' code, compile what may be damaged.

`child` is what the parent holds: it starts one, asks it, waits for no longer than it likes, ends it with all that it started,
and says how it died. `parent` is the other end, in the child. Requests are pickles, since a parent is trusted; answers are
lines, since a child need not be, and what they say is its parent's to check.
"""
