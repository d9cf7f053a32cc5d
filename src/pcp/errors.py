"""The root of every exception that PCP raises on purpose."""


class PCPError(Exception):
    """Something was given that PCP cannot use; the message says what, what was expected and what to do."""
