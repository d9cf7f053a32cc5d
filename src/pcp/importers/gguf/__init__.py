"""Models in GGUF files, as llama.cpp reads them."""

from pcp.importers.gguf.container import GgufCorrupt as GgufCorrupt
from pcp.importers.gguf.container import GgufForeign as GgufForeign
from pcp.importers.gguf.container import GgufTruncated as GgufTruncated
from pcp.importers.gguf.container import GgufVersion as GgufVersion
from pcp.importers.gguf.container import UnknownQuantisation as UnknownQuantisation
from pcp.importers.gguf.model import UnsupportedGguf as UnsupportedGguf
from pcp.importers.gguf.model import is_gguf as is_gguf
from pcp.importers.gguf.model import read_gguf as read_gguf
from pcp.importers.gguf.model import template_of as template_of
