"""A fuzz of the state machines: well-formed messages in any order, with any values that their types admit.

`python -m pcp.distributed.simulator.fuzz --seconds 3600` goes on for an hour. A life is a seed, or several that take over
from each other (`corpus.py`): first anything happens, by members that say what they like (`crowd.py`), clocks that jump and
processes that die; then everybody behaves (`honest.py`), and the run has to end. What must hold meanwhile is in `witness.py`.
"""
