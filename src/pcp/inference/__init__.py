"""Running trained models: sampling, caches, text."""

from pcp.inference.generate import generate as generate
from pcp.inference.request import EmptyPrompt as EmptyPrompt
from pcp.inference.request import Piece as Piece
from pcp.inference.request import Request as Request
from pcp.inference.sampling import InvalidSampling as InvalidSampling
from pcp.inference.sampling import Sampling as Sampling
