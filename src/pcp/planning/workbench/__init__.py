"""The kernel workbench: a region as a task for whoever writes kernels, and what comes back, admitted or not.

`regions` finds what is named, `task` measures it, `exporting` writes the folder, with what `teaching` says; `endpoint`
asks a model, and `proposing` does so again with what came of its answer.
"""

from pcp.planning.workbench.endpoint import Endpoint as Endpoint
from pcp.planning.workbench.endpoint import EndpointFailed as EndpointFailed
from pcp.planning.workbench.endpoint import InvalidEndpoint as InvalidEndpoint
from pcp.planning.workbench.exporting import CannotExport as CannotExport
from pcp.planning.workbench.exporting import write_task as write_task
from pcp.planning.workbench.proposing import Limits as Limits
from pcp.planning.workbench.proposing import Round as Round
from pcp.planning.workbench.proposing import proposals as proposals
from pcp.planning.workbench.proposing import write_proposed as write_proposed
from pcp.planning.workbench.regions import RegionNotFound as RegionNotFound
from pcp.planning.workbench.regions import region_in as region_in
from pcp.planning.workbench.regions import region_measured as region_measured
from pcp.planning.workbench.task import Task as Task
from pcp.planning.workbench.task import task_of as task_of
