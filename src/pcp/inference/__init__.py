"""Running trained models: an engine that answers many requests at once, sampling, caches, text."""

from pcp.inference.engine import Engine as Engine
from pcp.inference.request import EmptyPrompt as EmptyPrompt
from pcp.inference.request import Piece as Piece
from pcp.inference.request import Request as Request
from pcp.inference.request import Stream as Stream
from pcp.inference.sampling import InvalidSampling as InvalidSampling
from pcp.inference.sampling import Sampling as Sampling
from pcp.inference.text_model import TextModel as TextModel
