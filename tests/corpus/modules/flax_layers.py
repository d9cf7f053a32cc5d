"""Layers of flax (linen and nnx) and losses of optax."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx

from tests.corpus.arguments import distinct, integers, normal, positive, together, uniform
from tests.corpus.case import Case, Maker


def variables_of(module: nn.Module, rng: np.random.Generator, *inputs: Any, **more: Any) -> Any:
    """Random variables of a module in float64; what is called a variance is positive."""
    keys = {"params": jax.random.key(0), "dropout": jax.random.key(1)}
    shapes = jax.eval_shape(lambda: module.init(keys, *inputs, **more))

    def drawn(path: Any, leaf: Any) -> Any:
        values = 0.5 * rng.normal(size=leaf.shape)
        return abs(values) + 0.5 if "var" in str(path[-1]) else values

    return jax.tree_util.tree_map_with_path(drawn, shapes)


def linen(
    name: str, module: nn.Module, inputs: Maker, order: int = 1, mutable: Any = False, **more: Any
) -> Case:
    """A case of a linen module: its variables are the first argument."""
    rngs = {"dropout": jax.random.PRNGKey(2)}

    def arguments(rng: np.random.Generator) -> tuple[Any, ...]:
        given = inputs(rng)
        return variables_of(module, rng, *given, **more), *given

    def applied(variables: Any, *given: Any) -> Any:
        return module.apply(variables, *given, rngs=rngs, mutable=mutable, **more)

    return Case(name, applied, arguments, order=order)


def linen_rnn(name: str, cell: nn.Module, **more: Any) -> Case:
    """A case of a recurrent network over five steps."""
    return linen(name, nn.RNN(cell, **more), normal((2, 5, 3)))


def of_nnx(name: str, make: Any, inputs: Maker, **more: Any) -> Case:
    """A case of an nnx module: its state is the first argument."""

    def parts() -> Any:
        return nnx.split(make(nnx.Rngs(0)))

    def arguments(rng: np.random.Generator) -> tuple[Any, ...]:
        state = jax.tree.map(
            lambda leaf: 0.5 * rng.normal(size=leaf.shape), jax.eval_shape(lambda: parts()[1])
        )
        return state, *inputs(rng)

    return Case(name, lambda state, *x: nnx.merge(parts()[0], state)(*x), arguments, **more)


class CausalAttention(nn.Module):
    """Attention of a sequence to its past."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Of (batch, time, width)."""
        mask = nn.make_causal_mask(x[:, :, 0])
        return nn.MultiHeadDotProductAttention(num_heads=2)(x, mask=mask)


class Scanned(nn.Module):
    """Layers stacked by `nn.scan`, each recomputed."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        """Of (batch, 4)."""

        class Layer(nn.Module):
            @nn.compact
            def __call__(self, x: Any, _: Any) -> Any:
                return x + jnp.tanh(nn.Dense(4)(nn.LayerNorm()(x))), None

        stacked = nn.scan(nn.remat(Layer), variable_axes={"params": 0}, split_rngs={"params": True}, length=3)
        return stacked()(x, None)[0]


DOUBLE = jnp.float64  # of what a cell starts from
_X = normal((3, 4))
_IMAGE = normal((2, 6, 6, 3))
_SEQUENCE = normal((2, 5, 8))
_LABELS = integers(0, 4, (3,))

CASES = [
    linen("dense", nn.Dense(5), _X, order=2),
    linen("dense_general", nn.DenseGeneral((2, 3), axis=(-2, -1)), _SEQUENCE),
    linen("einsum", nn.Einsum((8, 2, 3), "bti,ihd->bthd", use_bias=False), _SEQUENCE),
    linen("embed", nn.Embed(7, 4), integers(0, 7, (2, 5)), order=2),
    linen("conv", nn.Conv(4, (3, 3)), _IMAGE, order=2),
    linen(
        "conv_strided_dilated",
        nn.Conv(4, (3, 2), strides=(2, 1), kernel_dilation=(1, 2), padding="VALID"),
        _IMAGE,
    ),
    linen("conv_grouped", nn.Conv(6, (3, 3), feature_group_count=3), _IMAGE),
    linen("conv_circular", nn.Conv(4, (3, 3), padding="CIRCULAR"), _IMAGE),
    linen("conv_causal", nn.Conv(4, (3,), padding="CAUSAL"), _SEQUENCE),
    linen("conv_transpose", nn.ConvTranspose(4, (3, 3), strides=(2, 2)), _IMAGE, order=2),
    linen("conv_local", nn.ConvLocal(4, (3, 3), padding="VALID"), normal((1, 4, 4, 2))),
    linen("layer_norm", nn.LayerNorm(), _X, order=2),
    linen("rms_norm", nn.RMSNorm(), _X, order=2),
    linen("group_norm", nn.GroupNorm(num_groups=3), normal((2, 4, 4, 6)), order=2),
    linen("instance_norm", nn.InstanceNorm(), _IMAGE),
    linen(
        "batch_norm_training",
        nn.BatchNorm(use_running_average=False),
        _IMAGE,
        order=2,
        mutable=["batch_stats"],
    ),
    linen("batch_norm_evaluation", nn.BatchNorm(use_running_average=True), _IMAGE),
    linen("weight_norm", nn.WeightNorm(nn.Dense(5)), _X),
    linen("prelu", nn.PReLU(), _X),
    linen("dropout", nn.Dropout(0.4, deterministic=False), _X),
    linen("attention", nn.MultiHeadDotProductAttention(num_heads=2), normal((2, 5, 8), (2, 4, 8)), order=2),
    linen("attention_causal", CausalAttention(), _SEQUENCE),
    linen("scanned_layers", Scanned(), _X, order=2),
    linen_rnn("lstm", nn.LSTMCell(4, param_dtype=DOUBLE)),
    linen_rnn("lstm_optimized", nn.OptimizedLSTMCell(4, param_dtype=DOUBLE)),
    linen_rnn("gru", nn.GRUCell(4, param_dtype=DOUBLE)),
    linen_rnn("minimal_gated_unit", nn.MGUCell(4, param_dtype=DOUBLE)),
    linen_rnn("simple_recurrence", nn.SimpleCell(4, param_dtype=DOUBLE), reverse=True, keep_order=True),
    linen(
        "bidirectional_lstm",
        nn.Bidirectional(
            nn.RNN(nn.LSTMCell(3, param_dtype=DOUBLE)), nn.RNN(nn.LSTMCell(3, param_dtype=DOUBLE))
        ),
        normal((2, 5, 3)),
    ),
    linen(
        "convolutional_lstm", nn.RNN(nn.ConvLSTMCell(3, (3, 3), param_dtype=DOUBLE)), normal((1, 3, 4, 4, 2))
    ),
    linen(
        "lstm_with_lengths",
        nn.RNN(nn.LSTMCell(4, param_dtype=DOUBLE)),
        normal((2, 5, 3)),
        seq_lengths=np.array([3, 5]),
    ),
    Case("max_pool", lambda x: nn.max_pool(x, (2, 2), (2, 2)), distinct((2, 6, 6, 3))),
    Case("average_pool", lambda x: nn.avg_pool(x, (3, 3), (2, 2), "SAME", count_include_pad=False), _IMAGE),
    of_nnx("nnx_linear", lambda rngs: nnx.Linear(4, 5, rngs=rngs), _X, order=2),
    of_nnx("nnx_conv", lambda rngs: nnx.Conv(3, 4, (3, 3), rngs=rngs), _IMAGE),
    of_nnx("nnx_layer_norm", lambda rngs: nnx.LayerNorm(4, rngs=rngs), _X),
    of_nnx(
        "nnx_attention",
        lambda rngs: nnx.MultiHeadAttention(2, 8, decode=False, use_bias=False, rngs=rngs),
        _SEQUENCE,
        tolerance=1e-5,
        note="flax computes its softmax in float32",
    ),
    of_nnx(
        "nnx_sequential",
        lambda rngs: nnx.Sequential(nnx.Linear(4, 6, rngs=rngs), nnx.gelu, nnx.Linear(6, 2, rngs=rngs)),
        _X,
        order=2,
    ),
    Case("optax_l2_loss", optax.l2_loss, normal((3, 4), (3, 4)), order=2),
    Case("optax_huber_loss", optax.huber_loss, normal((3, 4), (3, 4))),
    Case("optax_log_cosh", optax.log_cosh, normal((3, 4), (3, 4)), order=2),
    Case(
        "optax_cross_entropy",
        optax.softmax_cross_entropy,
        lambda rng: (rng.normal(size=(3, 4)), rng.dirichlet(np.ones(4), 3)),
        order=2,
    ),
    Case(
        "optax_cross_entropy_of_labels",
        optax.softmax_cross_entropy_with_integer_labels,
        together(_X, _LABELS),
        order=2,
    ),
    Case(
        "optax_smoothed_labels",
        lambda x, i: optax.softmax_cross_entropy(x, optax.smooth_labels(jax.nn.one_hot(i, 4), 0.1)),
        together(_X, _LABELS),
    ),
    Case(
        "optax_binary_cross_entropy",
        optax.sigmoid_binary_cross_entropy,
        together(_X, uniform(0, 1, (3, 4))),
        order=2,
    ),
    Case(
        "optax_focal_loss",
        lambda x, y: optax.sigmoid_focal_loss(x, y, alpha=0.3),
        together(_X, uniform(0.1, 0.9, (3, 4))),
    ),
    Case(
        "optax_hinge_loss",
        optax.hinge_loss,
        lambda rng: (rng.normal(size=(3, 4)), np.sign(rng.normal(size=(3, 4)))),
    ),
    Case(
        "optax_cosine_distance",
        lambda x, y: optax.cosine_distance(x, y, epsilon=1e-6),
        normal((3, 4), (3, 4)),
        order=2,
    ),
    Case(
        "optax_kl_divergence", optax.kl_divergence, together(_X, lambda rng: (rng.dirichlet(np.ones(4), 3),))
    ),
    Case(
        "optax_connectionist_temporal",
        lambda x: optax.ctc_loss(
            x, np.zeros((2, 6)), np.array([[1, 2, 1], [3, 1, 0]]), np.array([[0.0, 0, 0], [0, 0, 1]])
        ),
        normal((2, 6, 4)),
    ),
    Case("optax_contrastive", lambda x: optax.ntxent(x, np.array([0, 0, 1, 1])), normal((4, 3))),
    Case("optax_triplet", optax.losses.triplet_margin_loss, normal((3, 4), (3, 4), (3, 4))),
    Case(
        "optax_step_of_adam",
        lambda p, g: _stepped(optax.adam(0.1), p, g),
        together(_X, positive((3, 4))),
        order=2,
    ),
    Case(
        "optax_step_of_clipped_adamw",
        lambda p, g: _stepped(optax.chain(optax.clip_by_global_norm(0.5), optax.adamw(0.1)), p, g),
        normal((3, 4), (3, 4)),
    ),
    Case(
        "optax_step_of_lion",
        lambda p, g: _stepped(optax.sgd(0.1, 0.9, nesterov=True), p, g),
        normal((3, 4), (3, 4)),
    ),
]


def _stepped(optimizer: Any, parameters: Any, gradient: Any) -> Any:
    """The parameters after two steps, to be differentiated for the first parameters and the gradient."""
    state = optimizer.init(parameters)
    for factor in (1.0, 0.5):
        updates, state = optimizer.update(gradient * factor + 0.1 * parameters, state, parameters)
        parameters = optax.apply_updates(parameters, updates)
    return parameters
