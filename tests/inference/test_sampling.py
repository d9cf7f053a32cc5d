"""Settings of sampling are checked where they are made; `test_sampler.py` draws."""

import math
from typing import Any

import pytest

from pcp.inference import InvalidSampling, Sampling


@pytest.mark.parametrize(
    ("setting", "message"),
    [
        ({"temperature": -0.1}, "temperature is -0.1; expected at least 0"),
        ({"temperature": math.nan}, "temperature is nan; expected at least 0"),
        ({"temperature": math.inf}, "temperature is inf; expected at least 0"),
        ({"top_k": 0}, "top_k is 0; expected at least 1, or None for all tokens"),
        ({"top_p": 0.0}, "top_p is 0.0; expected above 0, at most 1"),
        ({"min_p": 1.5}, "min_p is 1.5; expected from 0 to 1"),
        ({"repetition_penalty": 0.0}, "repetition_penalty is 0.0; expected above 0; 1 changes nothing"),
        ({"presence_penalty": math.nan}, "presence_penalty is nan; expected a finite number"),
        ({"frequency_penalty": math.inf}, "frequency_penalty is inf; expected a finite number"),
        ({"seed": -1}, "seed is -1; expected at least 0, below 2"),
        ({"seed": 2**64}, "seed is 18446744073709551616; expected at least 0, below 2"),
        ({"logit_bias": {-1: 2.0}}, "logit_bias is {-1: 2.0}; expected numbers of tokens"),
    ],
)
def test_settings_that_make_no_sense(setting: Any, message: str) -> None:
    with pytest.raises(InvalidSampling, match=message):
        Sampling(**setting)
