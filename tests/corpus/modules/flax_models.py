"""Small networks of flax: of images, of sequences, generative ones, and their losses."""

from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
import optax
from jax import lax

from tests.corpus.arguments import integers, normal, together, uniform
from tests.corpus.modules.flax_layers import linen


class Perceptron(nn.Module):
    """Dense layers."""

    widths: tuple[int, ...] = (6, 5, 2)
    activation: Any = nn.gelu

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for width in self.widths[:-1]:
            x = self.activation(nn.Dense(width)(x))
        return nn.Dense(self.widths[-1])(x)


class ResidualNetwork(nn.Module):
    """Two residual blocks with batch normalization, the second at half the size."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        x = nn.Conv(4, (3, 3))(x)
        for width, stride in ((4, 1), (6, 2)):
            y = nn.Conv(width, (3, 3), (stride, stride), use_bias=False)(x)
            y = nn.relu(nn.BatchNorm(use_running_average=False)(y))
            y = nn.BatchNorm(use_running_average=False)(nn.Conv(width, (3, 3), use_bias=False)(y))
            x = x if stride == 1 else nn.Conv(width, (1, 1), (stride, stride))(x)
            x = nn.relu(x + y)
        return nn.Dense(3)(x.mean((1, 2)))


class UNet(nn.Module):
    """Down, across and up again, conditioned on a time."""

    @nn.compact
    def __call__(self, x: Any, time: Any) -> Any:
        embedded = nn.silu(nn.Dense(8)(jnp.concatenate([jnp.sin(time), jnp.cos(time)], -1)))
        high = nn.silu(nn.GroupNorm(2)(nn.Conv(4, (3, 3))(x)))
        low = nn.Conv(8, (3, 3), (2, 2))(high) + embedded[:, None, None]
        low = nn.silu(nn.GroupNorm(2)(low))
        flat = low.reshape(low.shape[0], -1, 8)
        low = low + nn.MultiHeadDotProductAttention(num_heads=2)(flat).reshape(low.shape)
        up = nn.ConvTranspose(4, (2, 2), (2, 2))(low)
        return nn.Conv(x.shape[-1], (3, 3))(jnp.concatenate([up, high], -1))


class Diffusion(nn.Module):
    """The loss of predicting the noise in a noisy image."""

    @nn.compact
    def __call__(self, x: Any, noise: Any, time: Any) -> Any:
        kept = jnp.cos(time)[:, :, None, None]
        noisy = kept * x + jnp.sqrt(1 - kept**2) * noise
        return ((UNet()(noisy, time) - noise) ** 2).mean()


class VisionTransformer(nn.Module):
    """Patches, a class token, two encoder blocks."""

    @nn.compact
    def __call__(self, image: Any) -> Any:
        x = nn.Conv(8, (3, 3), (3, 3))(image).reshape(image.shape[0], -1, 8)
        token = jnp.broadcast_to(self.param("token", nn.initializers.normal(), (1, 1, 8)), (x.shape[0], 1, 8))
        x = jnp.concatenate([token, x], 1)
        x = x + self.param("position", nn.initializers.normal(), (1, x.shape[1], 8))
        for _ in range(2):
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x))
            x = x + Perceptron((16, 8))(nn.LayerNorm()(x))
        return nn.Dense(4)(nn.LayerNorm()(x[:, 0]))


class Decoder(nn.Module):
    """A causal language model with tied embeddings, and its loss."""

    layers: int = 2

    @nn.compact
    def __call__(self, tokens: Any, targets: Any) -> Any:
        embedding = nn.Embed(11, 8)
        x = embedding(tokens) + nn.Embed(tokens.shape[1], 8)(jnp.arange(tokens.shape[1]))
        mask = nn.make_causal_mask(tokens)
        for _ in range(self.layers):
            x = x + nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(x), mask=mask)
            x = x + Perceptron((16, 8))(nn.LayerNorm()(x))
        logits = embedding.attend(nn.LayerNorm()(x))
        return optax.softmax_cross_entropy_with_integer_labels(logits, targets).mean()


class EncoderDecoder(nn.Module):
    """Cross attention with a relative bias."""

    @nn.compact
    def __call__(self, source: Any, target: Any) -> Any:
        bias = self.param("bias", nn.initializers.normal(), (2, 9))
        distance = np.arange(5)[None] - np.arange(5)[:, None] + 4
        scores = jnp.einsum("bqd,bkd->bqk", nn.Dense(8)(source), nn.Dense(8)(source)) / np.sqrt(8.0)
        memory = jax.nn.softmax(scores + bias[0][distance]) @ source
        return nn.MultiHeadDotProductAttention(num_heads=2)(nn.LayerNorm()(target), nn.LayerNorm()(memory))


class Gemma(nn.Module):
    """Root-mean-square norms, rotary positions, grouped queries, a gated perceptron, capped logits."""

    @nn.compact
    def __call__(self, tokens: Any) -> Any:
        embedding = nn.Embed(11, 8)
        x = embedding(tokens) * np.sqrt(8.0)
        for _ in range(2):
            h = nn.RMSNorm()(x)
            q = rotated(nn.DenseGeneral((4, 4), use_bias=False)(h))
            k = rotated(nn.DenseGeneral((2, 4), use_bias=False)(h))
            v = nn.DenseGeneral((2, 4), use_bias=False)(h)
            scores = jnp.einsum("btngd,bsnd->bngts", q.reshape(*q.shape[:2], 2, 2, 4), k) / 2
            scores = 50 * jnp.tanh(scores / 50)
            scores = jnp.where(np.tri(tokens.shape[1], dtype=bool), scores, -1e30)
            mixed = jnp.einsum("bngts,bsnd->btngd", jax.nn.softmax(scores), v)
            x = x + nn.RMSNorm()(nn.Dense(8, use_bias=False)(mixed.reshape(*x.shape[:2], 16)))
            h = nn.RMSNorm()(x)
            gate = nn.gelu(nn.Dense(12, use_bias=False)(h)) * nn.Dense(12, use_bias=False)(h)
            x = x + nn.RMSNorm()(nn.Dense(8, use_bias=False)(gate))
        logits = embedding.attend(nn.RMSNorm()(x))
        return 30 * jnp.tanh(logits / 30)


def rotated(x: Any) -> Any:
    """Queries or keys (batch, time, heads, 4), turned by angles that grow with the time."""
    angles = np.arange(x.shape[1])[:, None, None] / 10.0 ** np.arange(2)
    a, b = jnp.split(x, 2, -1)
    return jnp.concatenate(
        [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], -1
    )


class MixtureOfExperts(nn.Module):
    """The two best of four experts for every token, and the loss that balances them."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        gates = jax.nn.softmax(nn.Dense(4)(x))
        weights, chosen = lax.top_k(gates, 2)
        weights = weights / weights.sum(-1, keepdims=True)
        up = self.param("up", nn.initializers.normal(), (4, 8, 6))
        down = self.param("down", nn.initializers.normal(), (4, 6, 8))
        routes = (jax.nn.one_hot(chosen, 4, dtype=x.dtype) * weights[..., None]).sum(-2)
        experts = jnp.einsum("teh,ehd->ted", nn.silu(jnp.einsum("td,edh->teh", x, up)), down)
        balance = 4 * (gates.mean(0) * (routes > 0).mean(0)).sum()
        return jnp.einsum("te,ted->td", routes, experts), balance


class DispatchedExperts(nn.Module):
    """One expert for every token, with a capacity: tokens are scattered to experts and gathered back."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        gates = jax.nn.softmax(nn.Dense(3)(x))
        expert = jnp.argmax(gates, -1)
        place = (jnp.cumsum(jax.nn.one_hot(expert, 3, dtype=jnp.int32), 0) - 1)[jnp.arange(6), expert]
        slots = jnp.zeros((3, 2, 8)).at[expert, place].set(x, mode="drop")
        weights = self.param("weights", nn.initializers.normal(), (3, 8, 8))
        out = jnp.einsum("ecd,edf->ecf", slots, weights).at[expert, place].get(mode="fill", fill_value=0.0)
        return out * jnp.take_along_axis(gates, expert[:, None], 1)


class VariationalAutoencoder(nn.Module):
    """The evidence lower bound of binary images."""

    @nn.compact
    def __call__(self, x: Any, noise: Any) -> Any:
        mean, log_variance = jnp.split(Perceptron((8, 6), nn.tanh)(x), 2, -1)
        latent = mean + jnp.exp(log_variance / 2) * noise
        logits = Perceptron((8, 10), nn.tanh)(latent)
        likelihood = optax.sigmoid_binary_cross_entropy(logits, x).sum(-1)
        return (likelihood - 0.5 * (1 + log_variance - mean**2 - jnp.exp(log_variance)).sum(-1)).mean()


class VectorQuantized(nn.Module):
    """The nearest code of each vector, read and pulled towards it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        codes = self.param("codes", nn.initializers.normal(), (5, 4))
        distances = ((x[:, None] - codes[None]) ** 2).sum(-1)
        nearest = codes[jnp.argmin(distances, 1)]
        return nn.Dense(3)(nearest), ((nearest - x) ** 2).mean()


class Mixer(nn.Module):
    """Perceptrons over tokens and over channels."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(2):
            x = x + jnp.swapaxes(Perceptron((6, 5))(jnp.swapaxes(nn.LayerNorm()(x), 1, 2)), 1, 2)
            x = x + Perceptron((16, 8))(nn.LayerNorm()(x))
        return x.mean(1)


class StateSpace(nn.Module):
    """A selective state space model, by an associative scan."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        rate = nn.softplus(nn.Dense(8)(x))
        decay = jnp.exp(-rate[..., None] * np.arange(1.0, 4))
        inputs = (rate * x)[..., None] * nn.Dense(3)(x)[..., None, :]
        _, states = lax.associative_scan(
            lambda a, b: (a[0] * b[0], b[0] * a[1] + b[1]), (decay, inputs), axis=1
        )
        return (states * nn.Dense(3)(x)[..., None, :]).sum(-1) * nn.silu(nn.Dense(8)(x))


class LinearAttention(nn.Module):
    """Attention as a recurrence over outer products."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        q, k, v = (nn.Dense(4)(x) for _ in range(3))
        q, k = nn.elu(q) + 1, nn.elu(k) + 1

        def step(state: Any, row: Any) -> Any:
            state = state * 0.9 + row[1][:, :, None] * row[2][:, None]
            return state, jnp.einsum("bd,bde->be", row[0], state)

        rows = tuple(jnp.swapaxes(a, 0, 1) for a in (q, k, v))
        return lax.scan(step, jnp.zeros((x.shape[0], 4, 4)), rows)[1]


class GraphNetwork(nn.Module):
    """Two rounds of messages along edges."""

    @nn.compact
    def __call__(self, nodes: Any, senders: Any, receivers: Any) -> Any:
        for _ in range(2):
            messages = nn.relu(nn.Dense(4)(jnp.concatenate([nodes[senders], nodes[receivers]], -1)))
            nodes = nn.tanh(nn.Dense(4)(nodes) + jax.ops.segment_sum(messages, receivers, nodes.shape[0]))
        return nodes.mean(0)


class Flow(nn.Module):
    """Coupling layers: the log density of points."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        log_scale_sum = 0.0
        for _ in range(2):
            a, b = jnp.split(x, 2, -1)
            shift, log_scale = jnp.split(Perceptron((6, 4), nn.tanh)(a), 2, -1)
            log_scale = jnp.tanh(log_scale)
            x = jnp.concatenate([b * jnp.exp(log_scale) + shift, a], -1)
            log_scale_sum += log_scale.sum(-1)
        return jax.scipy.stats.norm.logpdf(x).sum(-1) + log_scale_sum


class EfficientBlock(nn.Module):
    """An inverted bottleneck with squeeze and excitation."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        y = nn.swish(nn.Conv(6, (1, 1))(x))
        y = nn.swish(nn.Conv(6, (3, 3), feature_group_count=6)(y))
        squeezed = nn.sigmoid(nn.Dense(6)(nn.swish(nn.Dense(2)(y.mean((1, 2))))))
        return x + nn.Conv(x.shape[-1], (1, 1))(y * squeezed[:, None, None])


class DenseBlock(nn.Module):
    """Every layer sees all before it."""

    @nn.compact
    def __call__(self, x: Any) -> Any:
        for _ in range(3):
            x = jnp.concatenate([x, nn.relu(nn.Conv(2, (3, 3))(x))], -1)
        return nn.avg_pool(x, (2, 2), (2, 2))


class ClassifierLoss(nn.Module):
    """A convolutional classifier with pooling and weight decay."""

    @nn.compact
    def __call__(self, x: Any, labels: Any) -> Any:
        x = nn.max_pool(nn.relu(nn.Conv(4, (3, 3))(x)), (2, 2), (2, 2))
        logits = nn.Dense(4)(x.reshape(x.shape[0], -1))
        decay = sum((leaf**2).sum() for leaf in jax.tree.leaves(self.variables["params"]))
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean() + 1e-2 * decay


class Physics(nn.Module):
    """The residual of a heat equation: derivatives of a network for its input, inside of the loss."""

    @nn.compact
    def __call__(self, points: Any) -> Any:
        network = Perceptron((6, 1), nn.tanh)
        network(points)
        variables = {"params": network.variables["params"]}
        bare = network.clone(parent=None)

        def value(p: Any) -> Any:
            return bare.apply(variables, p)[0]

        gradient = jax.vmap(jax.grad(value))(points)
        curvature = jax.vmap(lambda p: jax.hessian(value)(p)[0, 0])(points)
        return ((gradient[:, 1] - curvature) ** 2).mean()


_IMAGE = normal((2, 6, 6, 3))
_SEQUENCE = normal((2, 5, 8))
_TOKENS = integers(0, 11, (2, 5), (2, 5))
_TIME = uniform(0.3, 1.2, (2, 1))
_EDGES = integers(0, 5, (9,), (9,))

CASES = [
    linen("perceptron", Perceptron(), normal((3, 4)), order=2),
    linen("sinusoidal_network", Perceptron((6, 6, 1), jnp.sin), normal((5, 2)), order=2),
    linen("residual_network", ResidualNetwork(), _IMAGE, mutable=["batch_stats"]),
    linen("unet", UNet(), together(normal((2, 4, 4, 2)), _TIME)),
    linen("diffusion_loss", Diffusion(), together(normal((2, 4, 4, 2), (2, 4, 4, 2)), _TIME)),
    linen("vision_transformer", VisionTransformer(), _IMAGE),
    linen("decoder", Decoder(), _TOKENS),
    linen("decoder_second_order", Decoder(layers=1), _TOKENS, order=2),
    linen("encoder_decoder", EncoderDecoder(), normal((2, 5, 8), (2, 3, 8))),
    linen("gemma", Gemma(), integers(0, 11, (2, 5))),
    linen("mixture_of_experts", MixtureOfExperts(), normal((6, 8))),
    linen("dispatched_experts", DispatchedExperts(), normal((6, 8))),
    linen(
        "variational_autoencoder",
        VariationalAutoencoder(),
        together(uniform(0, 1, (3, 10)), normal((3, 3))),
        order=2,
    ),
    linen("vector_quantized", VectorQuantized(), normal((6, 4))),
    linen("mixer", Mixer(), _SEQUENCE, order=2),
    linen("state_space", StateSpace(), _SEQUENCE),
    linen("linear_attention", LinearAttention(), _SEQUENCE),
    linen("graph_network", GraphNetwork(), together(normal((5, 4)), _EDGES), order=2),
    linen("flow", Flow(), normal((5, 4)), order=2),
    linen("efficient_block", EfficientBlock(), _IMAGE),
    linen("dense_block", DenseBlock(), _IMAGE),
    linen("classifier_loss", ClassifierLoss(), together(_IMAGE, integers(0, 4, (2,)))),
    linen("physics_informed", Physics(), normal((4, 2))),
]
