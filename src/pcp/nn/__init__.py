"""Layers as functions of Tensors; parameters are nested dictionaries of arrays."""

from pcp.nn.activations import gelu as gelu
from pcp.nn.activations import relu as relu
from pcp.nn.activations import silu as silu
from pcp.nn.attention import attention as attention
from pcp.nn.attention import scaled_dot_product_attention as scaled_dot_product_attention
from pcp.nn.layers import embedding as embedding
from pcp.nn.layers import linear as linear
from pcp.nn.layers import mlp as mlp
from pcp.nn.losses import cross_entropy as cross_entropy
from pcp.nn.losses import mse as mse
from pcp.nn.losses import negative_log_likelihood as negative_log_likelihood
from pcp.nn.normalization import layer_norm as layer_norm
from pcp.nn.normalization import rms_norm as rms_norm
from pcp.ops.normalizing import log_softmax as log_softmax
from pcp.ops.normalizing import softmax as softmax
