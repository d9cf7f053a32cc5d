"""Optimizers: each traces its update into the training step, so that one program holds the whole step."""

from pcp.optimizers.adafactor import Adafactor as Adafactor
from pcp.optimizers.adafactor import adafactor as adafactor
from pcp.optimizers.adamw import AdamW as AdamW
from pcp.optimizers.adamw import adam as adam
from pcp.optimizers.adamw import adamw as adamw
from pcp.optimizers.base import InvalidOptimizer as InvalidOptimizer
from pcp.optimizers.base import Optimizer as Optimizer
from pcp.optimizers.base import Schedule as Schedule
from pcp.optimizers.base import clip_by_global_norm as clip_by_global_norm
from pcp.optimizers.base import global_norm as global_norm
from pcp.optimizers.base import kept_by as kept_by
from pcp.optimizers.base import matrices as matrices
from pcp.optimizers.groups import Groups as Groups
from pcp.optimizers.groups import NoSuchParameter as NoSuchParameter
from pcp.optimizers.groups import groups as groups
from pcp.optimizers.lion import Lion as Lion
from pcp.optimizers.lion import lion as lion
from pcp.optimizers.muon import Muon as Muon
from pcp.optimizers.muon import hidden_matrices as hidden_matrices
from pcp.optimizers.muon import muon as muon
from pcp.optimizers.names import by_name as by_name
from pcp.optimizers.schedules import InvalidSchedule as InvalidSchedule
from pcp.optimizers.schedules import WarmupCosine as WarmupCosine
from pcp.optimizers.sgd import SGD as SGD
from pcp.optimizers.sgd import nesterov as nesterov
from pcp.optimizers.sgd import sgd as sgd
