"""The arithmetic of rounds: fragments, inner states, programs and the outer step, without wire or clock."""
