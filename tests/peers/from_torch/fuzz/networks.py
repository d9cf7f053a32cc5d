"""Draws of products, losses, normalisation and attention."""

import torch
import torch.nn.functional as F
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family


@family
def products(r: Draw) -> Made:
    b, n, m, k = r.sizes(4, 1, 4)
    x, y = r.normal(n, m), r.normal(m, k)
    equation, shapes = r.pick(
        ("ij,jk->ik", ((n, m), (m, k))),
        ("bij,bjk->bik", ((b, n, m), (b, m, k))),
        ("ii->i", ((n, n),)),
        ("ii", ((n, n),)),
        ("...ij,...j->...i", ((b, 2, n, m), (2, m))),
        ("ij,kl->ijkl", ((n, m), (b, k))),
        ("bhid,bhjd->bhij", ((b, 2, n, m), (b, 2, k, m))),
        ("ij->", ((n, m),)),
        ("i,ij,j->", ((n,), (n, m), (m,))),
        ("ijk->kij", ((n, m, k),)),
        ("iij->j", ((n, n, m),)),
        ("ij,ij->j", ((n, m), (1, m))),
    )
    arrays = [r.normal(*shape) for shape in shapes]
    beta, alpha = r.pick(0, 1, 0.5), r.pick(1, 2)
    return r.pick(
        (f"einsum {equation}", lambda *xs: torch.einsum(equation, *xs), *arrays),
        (f"einsum {equation}", lambda *xs: torch.einsum(equation, *xs), *arrays),
        ("matmul", torch.matmul, r.normal(*r.pick((), (b,), (1,)), n, m), r.normal(*r.pick((), (b,)), m, k)),
        ("matmul vector", torch.matmul, r.normal(m), r.normal(*r.pick((), (b,)), m, k)),
        ("matmul by vector", torch.matmul, r.normal(*r.pick((), (b,)), n, m), r.normal(m)),
        (
            f"addmm {beta} {alpha}",
            lambda c, x, y: torch.addmm(c, x, y, beta=beta, alpha=alpha),
            r.normal(r.pick(1, n), k),
            x,
            y,
        ),
        (
            f"addmv {beta}",
            lambda c, x, y: torch.addmv(c, x, y, beta=beta, alpha=alpha),
            r.normal(n),
            x,
            r.normal(m),
        ),
        (
            f"addr {beta}",
            lambda c, x, y: torch.addr(c, x, y, beta=beta, alpha=alpha),
            r.normal(n, m),
            r.normal(n),
            r.normal(m),
        ),
        (
            f"addbmm {beta}",
            lambda c, x, y: torch.addbmm(c, x, y, beta=beta, alpha=alpha),
            r.normal(n, k),
            r.normal(b, n, m),
            r.normal(b, m, k),
        ),
        (
            f"baddbmm {beta}",
            lambda c, x, y: torch.baddbmm(c, x, y, beta=beta, alpha=alpha),
            r.normal(b, n, k),
            r.normal(b, n, m),
            r.normal(b, m, k),
        ),
        ("integers", torch.matmul, r.integers(-3, 3, n, m), r.integers(-3, 3, m, k)),
        ("tensordot", lambda x, y: torch.tensordot(x, y, 1), x, y),
        ("kron", torch.kron, x, y),
        ("outer", torch.outer, r.normal(n), r.normal(m)),
        ("inner", torch.inner, r.normal(n, m), r.normal(k, m)),
        ("cross", lambda x, y: torch.linalg.cross(x, y), r.normal(n, 3), r.normal(1, 3)),
        ("bilinear", F.bilinear, r.normal(n, m), r.normal(n, k), r.normal(2, m, k), r.normal(2)),
        ("chain_matmul", lambda x, y: torch.linalg.multi_dot([x, y, y.T]), x, y),
        ("matrix_power", lambda x: torch.linalg.matrix_power(x, 3), r.normal(n, n)),
        ("vdot", torch.vdot, r.normal(n), r.normal(n)),
        ("addcmul", lambda x: torch.addcmul(x, x, 2 * x, value=0.5), x),
        ("addcdiv", lambda x: torch.addcdiv(x, x, x.exp(), value=0.5), x),
        ("lerp", lambda x, w: torch.lerp(x, 2 * x, w), x, r.positive(n, 1)),
    )


@family
def losses(r: Draw) -> Made:
    n, c = r.sizes(2, 2, 4)
    reduction = r.pick("mean", "sum", "none")
    x, y = r.floats(n, c), r.floats(n, c)
    p, q, t = r.positive(n, c), r.positive(n, c), r.integers(0, c - 1, n)
    smoothing, ignored, weight = r.pick(0.0, 0.1), r.pick(-100, 0, 1), r.positive(c)
    sign = 2 * r.integers(0, 1, n) - 1.0
    options = {"reduction": reduction}
    choices = [
        ("mse", lambda x, y: F.mse_loss(x, y, **options), x, y),
        ("l1", lambda x, y: F.l1_loss(x, y, **options), x, y),
        ("smooth_l1", lambda x, y: F.smooth_l1_loss(x, y, beta=r.pick(0.5), **options), x, y),
        ("smooth_l1 0", lambda x, y: F.smooth_l1_loss(x, y, beta=0.0, **options), x, y),
        ("huber", lambda x, y: F.huber_loss(x, y, delta=0.5, **options), x, y),
        ("soft_margin", lambda x, y: F.soft_margin_loss(x, y, **options), x, y),
        ("bce", lambda p, q: F.binary_cross_entropy(p, q, **options), p, q),
        (
            "bce logits",
            lambda x, q, w: F.binary_cross_entropy_with_logits(x, q, pos_weight=w.detach(), **options),
            x,
            q,
            weight,
        ),
        (
            f"cross_entropy {smoothing} {ignored}",
            lambda x, t, w: F.cross_entropy(
                x, t, w.detach(), ignore_index=ignored, label_smoothing=smoothing, **options
            ),
            x,
            t,
            weight,
        ),
        (
            "cross_entropy of probabilities",
            lambda x, q: F.cross_entropy(x, q, label_smoothing=smoothing, **options),
            x,
            q,
        ),
        (
            "cross_entropy of space",
            lambda x, t: F.cross_entropy(x, t, ignore_index=ignored, **options),
            r.floats(n, c, 2),
            r.integers(0, c - 1, n, 2),
        ),
        (f"nll {ignored}", lambda x, t: F.nll_loss(x, t, ignore_index=ignored, **options), x, t),
        ("kl_div", lambda x, q: F.kl_div(x, q, log_target=r.pick(False), **options), x, q),
        ("kl_div log", lambda x, q: F.kl_div(x, q, log_target=True, **options), x, y),
        ("poisson", lambda x, q: F.poisson_nll_loss(x, q, full=True, **options), x, q + 1.5),
        ("gaussian", lambda x, y, v: F.gaussian_nll_loss(x, y, v, full=True, **options), x, y, p),
        ("hinge", lambda x, s: F.hinge_embedding_loss(x, s[:, None].detach(), **options), x, sign),
        ("cosine", lambda x, y, s: F.cosine_embedding_loss(x, y, s.detach(), 0.1, **options), x, y, sign),
        (
            "margin",
            lambda x, y, s: F.margin_ranking_loss(x[:, 0], y[:, 0], s.detach(), 0.3, **options),
            x,
            y,
            sign,
        ),
        ("multi_margin", lambda x, t: F.multi_margin_loss(x, t, **options), x, t),
        ("multilabel_soft", lambda x, q: F.multilabel_soft_margin_loss(x, q, **options), x, q),
        ("triplet", lambda x, y, z: F.triplet_margin_loss(x, y, z, **options), x, y, p),
        ("cosine_similarity", lambda x, y: F.cosine_similarity(x, y, dim=r.pick(1)), x, y),
        ("pairwise_distance", lambda x, y: F.pairwise_distance(x, y, p=r.pick(2)), x, y),
        (
            "multilabel_margin",
            lambda x: F.multilabel_margin_loss(x, torch.zeros(x.shape, dtype=torch.int64), **options),
            x,
        ),
        (
            "ctc",
            lambda x, t: F.ctc_loss(x.log_softmax(-1), t, (6, 6), (2, 2)),
            r.normal(6, 2, 4),
            r.integers(1, 3, 2, 2),
        ),
    ]
    words, *rest = r.pick(*choices)
    return (f"{words} {reduction}", *rest)


@family
def normalization(r: Draw) -> Made:
    n = r.pick(0, 1, 2, 3)
    x = r.floats(2, 4, *r.sizes(n, 1, 3))
    c, training = 4, r.flag()
    w, b, m, v = r.normal(c), r.normal(c), r.normal(c), r.positive(c)
    last = x.shape[r.integer(1, x.ndim - 1) :]
    return r.pick(
        (
            f"batch_norm {training}",
            lambda x, w, b, m, v: F.batch_norm(x, m.detach().clone(), v.detach().clone(), w, b, training),
            x,
            w,
            b,
            m,
            v,
        ),
        (
            f"layer_norm {last}",
            lambda x, w, b: F.layer_norm(x, last, w, b),
            x,
            r.normal(*last),
            r.normal(*last),
        ),
        (f"rms_norm {last}", lambda x, w: F.rms_norm(x, last, w, 1e-3), x, r.normal(*last)),
        ("group_norm", lambda x, w, b: F.group_norm(x, 2, w, b), x, w, b),
        (
            "instance_norm",
            lambda x, w, b: F.instance_norm(x, weight=w, bias=b),
            r.normal(2, 4, 3, *x.shape[2:3]),
            w,
            b,
        ),
        ("prelu", lambda x, w: F.prelu(x, w), x, w),
        ("glu", lambda x: F.glu(x, 1), x),
        ("weight_norm", lambda w: torch._weight_norm(w, w[:, :1].detach(), 0), r.normal(3, 4)),
    )


@family
def attention(r: Draw) -> Made:
    lead = r.pick((2, 2), (2,), ())
    n, m, d, e = r.sizes(4, 1, 4)
    q, k, v = r.normal(*lead, n, d), r.normal(*lead, m, d), r.normal(*lead, m, e)
    scale = r.pick(None, 0.3)
    mask = r.flags(n, m)
    return r.pick(
        (f"attention {scale}", lambda q, k, v: F.scaled_dot_product_attention(q, k, v, scale=scale), q, k, v),
        (
            "attention causal",
            lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
            q,
            k,
            v,
        ),
        ("attention masked", lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b), q, k, v, mask),
        (
            "attention biased",
            lambda q, k, v, b: F.scaled_dot_product_attention(q, k, v, b),
            q,
            k,
            v,
            r.normal(n, m),
        ),
    )
