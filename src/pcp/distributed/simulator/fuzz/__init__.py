"""A fuzz of the state machines: well-formed messages in any order, with any values that their types admit.

`python -m pcp.distributed.simulator.fuzz --seconds 3600` goes on for an hour. A life is a seed: first anything happens, by
members that say what they like, clocks that jump and processes that die; then everybody behaves, and the run has to end.
"""
