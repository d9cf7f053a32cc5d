"""Programs whose operations run in several places."""

from pcp.backends.regions.compiling import compiled_in_places as compiled_in_places
from pcp.backends.regions.executable import Copy as Copy
from pcp.backends.regions.executable import Drop as Drop
from pcp.backends.regions.executable import RegionsExecutable as RegionsExecutable
from pcp.backends.regions.executable import Run as Run
from pcp.backends.regions.executable import copied as copied
from pcp.backends.regions.placement import Placement as Placement
from pcp.backends.regions.streamed import StreamedExecutable as StreamedExecutable
