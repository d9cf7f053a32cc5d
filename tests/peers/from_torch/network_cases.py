"""Uses of operations that networks are built of: products, convolutions, attention, recurrence; and of what decomposes."""

from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
import transformers.integrations.moe  # noqa: F401  # enters its operation
from tests.peers.from_torch.cases import X3, B, Case, P, X, Y, integers, normal, positive

aten = torch.ops.aten

K, L = normal(4, 5), normal(2, 4, 5)
PRODUCTS = [
    Case("mm.default bmm.default", lambda x, k, x3, k3: (torch.mm(x, k), torch.bmm(x3, k3)), (X, K, X3, L)),
    Case(
        "matmul.default",
        lambda x, k, x3, k3: (x @ k, x3 @ k, x3 @ k3, x[0] @ k, x3[:, None] @ k3),
        (X, K, X3, L),
    ),
    Case("mv.default dot.default", lambda x, y: (torch.mv(x, y[0]), torch.dot(x[0], y[0])), (X, Y)),
    Case(
        "linear.default",
        lambda x, k, b: (F.linear(x, k.T, b), F.linear(x[None], k.T), F.linear(x[0], k.T, b)),
        (X, K, normal(5)),
    ),
    Case(
        "addmm.default",
        lambda x, k, b: (
            torch.addmm(b, x, k),
            torch.addmm(b, x, k, beta=0.5, alpha=2),
            torch.addmm(b, x, k, beta=0),
        ),
        (X, K, normal(5)),
    ),
    Case(
        "baddbmm.default", lambda x, k, b: torch.baddbmm(b, x, k, beta=0.5, alpha=2), (X3, L, normal(2, 3, 5))
    ),
    Case("bmm.default", lambda x, k: torch.einsum("bij,bjk->kib", x, k), (X3, L)),
    Case(
        "transformers.grouped_mm_fallback.default",
        lambda x, w, ends: torch.ops.transformers.grouped_mm_fallback(x, w, ends),
        (normal(9, 4), normal(5, 4, 3), np.array([2, 2, 5, 7, 8], np.int32)),
    ),
    Case(
        "_grouped_mm.default",
        lambda x, w, ends: torch._grouped_mm(x.bfloat16(), w.bfloat16(), offs=ends).float(),
        (integers(-3, 4, 8, 16), integers(-3, 4, 3, 16, 16), np.array([3, 3, 8], np.int32)),
    ),
    Case(
        "histc.default",
        lambda i, x: (
            torch.histc(i.float(), 6, 0, 5),
            torch.histc(x.detach(), 7),
            torch.histc(x.detach(), 4, -1, 1),
        ),
        (integers(0, 6, 20), normal(50)),
    ),
]
IMAGE, LINE, CUBE = normal(2, 4, 7, 6), normal(2, 4, 9), normal(1, 2, 4, 5, 4)
WINDOWS = [
    Case(
        "convolution.default",
        lambda x, k, b: (
            F.conv1d(x, k, b),
            F.conv1d(x, k, stride=2, padding=2, dilation=2),
            F.conv1d(x, k, padding="same"),
        ),
        (LINE, normal(6, 4, 3), normal(6)),
    ),
    Case(
        "convolution.default",
        lambda x, k, b: (
            F.conv2d(x, k, b, padding=1),
            F.conv2d(x, k, b, (2, 1), (1, 2), (1, 2)),
            F.conv2d(x[0], k),
        ),
        (IMAGE, normal(6, 4, 3, 2), normal(6)),
    ),
    Case(
        "convolution.default",
        lambda x, k, d: (F.conv2d(x, k, groups=2), F.conv2d(x, d, groups=4)),
        (IMAGE, normal(6, 2, 3, 2), normal(4, 1, 3, 3)),
    ),
    Case(
        "convolution.default", lambda x, k: F.conv3d(x, k, padding=(1, 0, 1)), (CUBE, normal(3, 2, 2, 3, 2))
    ),
    Case(
        "convolution.default",
        lambda x, k, b: (
            F.conv_transpose2d(x, k, b, 2, 1, (1, 0)),
            F.conv_transpose2d(x, k, dilation=2),
            F.conv_transpose1d(x[:, :, 0], k[..., 0], stride=3),
        ),
        (IMAGE, normal(4, 5, 3, 2), normal(5)),
    ),
    Case(
        "convolution.default",
        lambda x, k: F.conv_transpose2d(x, k, stride=2, groups=2),
        (IMAGE, normal(4, 3, 3, 2)),
    ),
    Case(
        "max_pool2d_with_indices.default",
        lambda x: (
            F.max_pool2d(x, 2),
            F.max_pool2d(x, 3, 2, 1),
            F.max_pool2d(x, (3, 2), (2, 1), ceil_mode=True),
            F.max_pool2d(x, 2, dilation=2),
        ),
        (IMAGE,),
    ),
    Case(
        "max_pool2d_with_indices.default",
        lambda x: (*F.max_pool2d_with_indices(x, 3, 2, 1), *F.max_pool2d_with_indices(x, 2, ceil_mode=True)),
        (IMAGE,),
    ),
    Case(
        "max_pool3d_with_indices.default max_pool2d_with_indices.default",
        lambda x, y: (F.max_pool3d(x, 2), F.max_pool1d(y, 3, 2)),
        (CUBE, LINE),
    ),
    Case(
        "avg_pool2d.default",
        lambda x: (
            F.avg_pool2d(x, 2),
            F.avg_pool2d(x, 3, 2, 1),
            F.avg_pool2d(x, 3, 2, 1, True),
            F.avg_pool2d(x, 3, 2, 1, True, False),
            F.avg_pool2d(x, (2, 3), divisor_override=5),
        ),
        (IMAGE,),
    ),
    Case(
        "avg_pool1d.default avg_pool3d.default",
        lambda x, y: (F.avg_pool1d(x, 3, 2, 1), F.avg_pool3d(y, 2, ceil_mode=True)),
        (LINE, CUBE),
    ),
    Case(
        "_adaptive_avg_pool2d.default",
        lambda x: (
            F.adaptive_avg_pool2d(x, 1),
            F.adaptive_avg_pool2d(x, (3, 4)),
            F.adaptive_avg_pool2d(x, (None, 2)),
        ),
        (IMAGE,),
    ),
    Case(
        "adaptive_avg_pool1d.default _adaptive_avg_pool3d.default",
        lambda x, y: (F.adaptive_avg_pool1d(x, 4), F.adaptive_avg_pool3d(y, (2, 3, 1))),
        (LINE, CUBE),
    ),
]
RESAMPLING = [
    Case(
        "upsample_nearest1d.vec upsample_nearest2d.vec upsample_nearest3d.vec",
        lambda x, y, z: (
            F.interpolate(x, scale_factor=2),
            F.interpolate(y, scale_factor=(2, 1.5)),
            F.interpolate(y, (4, 9)),
            F.interpolate(z, scale_factor=2),
        ),
        (LINE, IMAGE, CUBE),
    ),
    Case(
        "upsample_linear1d.vec upsample_bilinear2d.vec upsample_trilinear3d.vec",
        lambda x, y, z: (
            F.interpolate(x, scale_factor=2, mode="linear"),
            F.interpolate(y, scale_factor=(2, 1.5), mode="bilinear"),
            F.interpolate(y, (4, 9), mode="bilinear", align_corners=True),
            F.interpolate(y, (4, 13), mode="bilinear"),
            F.interpolate(z, scale_factor=2, mode="trilinear"),
        ),
        (LINE, IMAGE, CUBE),
    ),
]
Q, KEYS, VALUES = normal(2, 4, 5, 6), normal(2, 4, 5, 6, seed=1), normal(2, 4, 5, 6, seed=2)
ATTENTION = [
    Case(
        "scaled_dot_product_attention.default",
        lambda q, k, v, b, m: (
            F.scaled_dot_product_attention(q, k, v),
            F.scaled_dot_product_attention(q, k, v, is_causal=True),
            F.scaled_dot_product_attention(q, k, v, scale=0.3),
            F.scaled_dot_product_attention(q, k, v, b),
            F.scaled_dot_product_attention(q, k, v, m),
            F.scaled_dot_product_attention(q, k[:, :2], v[:, :2], enable_gqa=True),
            F.scaled_dot_product_attention(q[0], k[0, :, :3], v[0, :, :3], is_causal=True),
        ),
        (Q, KEYS, VALUES, np.tril(np.ones((5, 5), bool), -1), normal(5, 5)),
    )
]
# PyTorch decomposes these into the rows above. Its derivative of hardsigmoid is exact to float32 only, so that is left out.
COMPOSED = [
    Case(
        "native_layer_norm.default native_group_norm.default",
        lambda x, w, b: (
            F.layer_norm(x, (3, 4)),
            F.layer_norm(x, (4,), w, b),
            F.rms_norm(x, (4,), w),
            F.group_norm(x[None], 3, None, None),
        ),
        (X, normal(4), normal(4, seed=1)),
    ),
    Case(
        "",
        lambda x, m, v: (F.batch_norm(x, m.detach(), v.detach()), F.instance_norm(x)),
        (IMAGE, normal(4), positive(4)),
    ),
    Case(
        "",
        lambda x, i: (
            F.cross_entropy(x, i),
            F.cross_entropy(x, i, label_smoothing=0.1),
            F.nll_loss(x, i, ignore_index=2, reduction="sum"),
            F.cross_entropy(x, i, ignore_index=1),
        ),
        (X, np.array([0, 2, 1])),
    ),
    Case(
        "nll_loss_forward.default nll_loss2d_forward.default",
        lambda x, i, w: (
            F.cross_entropy(x, i, w.detach()),
            F.cross_entropy(x, i, reduction="none"),
            F.cross_entropy(x, i, w.detach(), label_smoothing=0.1, ignore_index=2),
            F.cross_entropy(x[..., 0], i[:, 0], w.detach(), reduction="sum"),
            F.nll_loss(x[..., None], i[..., None], ignore_index=0),
            F.cross_entropy(x[0, :, 0], i[0, 0]),
        ),
        (normal(2, 5, 3), np.array([[0, 4, 2], [2, 1, 2]]), positive(5)),
    ),
    Case(
        "",
        lambda x, y, p: (
            F.mse_loss(x, y),
            F.l1_loss(x, y),
            F.smooth_l1_loss(x, y),
            F.huber_loss(x, y, delta=0.5),
            F.binary_cross_entropy_with_logits(x, p),
            F.binary_cross_entropy(p, p.flip(0)),
            F.kl_div(x, p, reduction="batchmean"),
        ),
        (X, Y, P),
    ),
    Case(
        "",
        lambda x: (
            F.softplus(x),
            F.hardswish(x),
            F.hardsigmoid(x.detach()),
            F.mish(x),
            F.logsigmoid(x),
            F.glu(x),
            F.tanhshrink(x),
            F.softsign(x),
            F.softmin(x, 0),
            F.threshold(x, 0.1, 2.0),
            F.prelu(x, x[0, :1]),
        ),
        (X,),
    ),
    Case(
        "linalg_vector_norm.default",
        lambda x: (
            x.logsumexp(1),
            x.norm(),
            x.norm(dim=1, p=1),
            x.norm(p=3),
            x.norm(p=np.inf),
            x.norm(dim=0, p=0),
            (0 * x).norm(dim=1),
            F.normalize(x),
            F.cosine_similarity(x, x.flip(0)),
            x.std(),
            x.cross(x.flip(1), dim=0),
        ),
        (X[:, :3],),
    ),
    Case(
        "unfold.default",
        lambda x: (
            F.pixel_shuffle(x, 2),
            F.pixel_unshuffle(x[..., :6, :], 2),
            F.channel_shuffle(x, 2),
            F.pad(x, (1, 2, 2, 1), "reflect"),
            F.pad(x, (1, 2, 2, 1), "replicate"),
            F.pad(x, (1, 1, 1, 1), "circular"),
            F.unfold(x, 3),
            x.unfold(2, 3, 2),
        ),
        (IMAGE,),
    ),
    Case(
        "adaptive_max_pool2d.default adaptive_max_pool3d.default",
        lambda x, g: (
            F.adaptive_max_pool3d(x, 3),
            F.grid_sample(x, g, align_corners=False),
            F.interpolate(x, scale_factor=2, mode="bicubic"),
            F.adaptive_max_pool2d(x, 3),
        ),
        (IMAGE, normal(2, 3, 3, 2)),
    ),
    Case(
        "",
        lambda x, b: (
            x.masked_fill(b, -1e9),
            torch.addcmul(x, x, x, value=2),
            torch.addcdiv(x, x, x.exp()),
            torch.lerp(x, 2 * x, 0.3),
            x.rot90(),
            torch.outer(x[0], x[1]),
            torch.meshgrid(x[0], x[1], indexing="ij")[0],
            x.index_add(0, torch.tensor([0, 2]), x[:2]),
            torch.linspace(0, 1, 5),
            torch.eye(3),
            F.one_hot(torch.tensor([0, 2]), 3),
            torch.kron(x, x),
            x.nan_to_num(),
            torch.tensordot(x, x.T, 1),
            x.index_fill(0, torch.tensor([1]), 3.0),
            x.index_copy(0, torch.tensor([1]), x[:1]),
        ),
        (X, B),
    ),
]


def _recurrent(kind: type[torch.nn.Module], *sizes: int, **options: Any) -> Case:
    torch.manual_seed(0)
    network = kind(*sizes, **options).double()
    names = [name for name, _ in network.named_parameters()]
    mode = getattr(network, "mode", "").lower()
    shape = (5, 3, sizes[0])

    def apply(x: torch.Tensor, *weights: torch.Tensor) -> Any:
        out, last = torch.func.functional_call(network, dict(zip(names, weights, strict=True)), (x,))
        return (out, *(last if isinstance(last, tuple) else (last,)))

    parameters = tuple(p.detach().numpy() for p in network.parameters())
    return Case(f"{mode}.input", apply, (normal(*shape), *parameters))


RECURRENCE = [
    _recurrent(torch.nn.LSTM, 4, 3),
    _recurrent(torch.nn.LSTM, 4, 3, num_layers=2, bidirectional=True, batch_first=True),
    _recurrent(torch.nn.GRU, 4, 3, bias=False),
    _recurrent(torch.nn.GRU, 4, 3, bidirectional=True),
    _recurrent(torch.nn.RNN, 4, 3),
    _recurrent(torch.nn.RNN, 4, 3, nonlinearity="relu"),
]
