"""Running trained models: sampling, caches, text."""

from pcp.inference.generate import EmptyPrompt as EmptyPrompt
from pcp.inference.generate import generate as generate
from pcp.inference.sampling import InvalidSampling as InvalidSampling
from pcp.inference.sampling import Sampling as Sampling
