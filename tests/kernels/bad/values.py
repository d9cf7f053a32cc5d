"""Kernels that are wrong for some values of their operands."""

from tests.kernels.planted import Planted

ERRONEOUS = ("wrong", "less accurate than it claims", "wrong in places")
BROKEN = ("not finite", *ERRONEOUS)
HIDING = ("hides infinities or NaN", "not finite")
REFERENCE = 'gradient = "reference"'

DENORMAL = """
def is_denormal(x):
    bits = lax.bitcast_convert_type(x, jnp.uint32) & 0x7FFFFFFF
    return (bits > 0) & (bits < 0x00800000)
"""

PLANTED = [
    # zeros
    Planted(
        "product.zeros",
        "def kernel(x, y, contract, batch):\n    return 0 * product(x, y, contract, batch)",
        BROKEN,
        kind="zeros",
    ),
    Planted("softmax.zeros", "def kernel(x, axis):\n    return jnp.zeros_like(x)", BROKEN, kind="zeros"),
    Planted(
        "attention.zeros",
        "def kernel(query, key, value, causal):\n    return jnp.zeros_like(query)",
        BROKEN,
        kind="zeros",
    ),
    Planted(
        "embedding_gradient.zeros",
        "def kernel(indices, updates, rows):\n    return jnp.zeros((rows, updates.shape[1]), updates.dtype)",
        BROKEN,
        kind="zeros",
    ),
    # secret downcasts
    Planted(
        "product.secretly_bf16",
        "def kernel(x, y, contract, batch):\n    return lax.dot_general(x.astype(bf16), y.astype(bf16), (contract, batch), preferred_element_type=f32)",
        ERRONEOUS,
        kind="secret downcast",
    ),
    Planted(
        "product.secretly_f16",
        "def kernel(x, y, contract, batch):\n    return product(x.astype(f16).astype(f32), y, contract, batch)",
        BROKEN,
        kind="secret downcast",
    ),
    Planted(
        "product.bf16_that_claims_more",
        "def kernel(x, y, contract, batch):\n    return product(x.astype(bf16).astype(f32), y.astype(bf16).astype(f32), contract, batch)",
        ERRONEOUS,
        "lowers precision",
        manifest="[tolerance]\nf32 = 1e-3",
        kind="secret downcast",
    ),
    Planted(
        "softmax.secretly_bf16",
        "def kernel(x, axis):\n    return softmax(x.astype(bf16), axis).astype(f32)",
        BROKEN,
        kind="secret downcast",
    ),
    Planted(
        "attention.secretly_bf16_scores",
        "def kernel(query, key, value, causal):\n    return attention(query.astype(bf16).astype(f32), key, value, causal)",
        ERRONEOUS,
        kind="secret downcast",
    ),
    Planted(
        "embedding_gradient.secretly_bf16",
        "def kernel(indices, updates, rows):\n    return embedding_gradient(indices, updates.astype(bf16), rows).astype(f32)",
        ERRONEOUS,
        kind="secret downcast",
    ),
    # denormals
    Planted(
        "product.denormals_are_nan",
        DENORMAL
        + "def kernel(x, y, contract, batch):\n    return product(jnp.where(is_denormal(x), jnp.nan, x), y, contract, batch)",
        BROKEN,
        manifest=REFERENCE,
        kind="denormals",
    ),
    Planted(
        "softmax.denormals_are_ones",
        DENORMAL + "def kernel(x, axis):\n    return softmax(jnp.where(is_denormal(x), 1.0, x), axis)",
        BROKEN,
        manifest=REFERENCE,
        kind="denormals",
    ),
    Planted(
        "normalisation.denormals_are_normalised",
        DENORMAL
        + """
def kernel(x, scale, bias=None, *, epsilon, centred):
    fraction = (lax.bitcast_convert_type(x, jnp.uint32) & 0x007FFFFF).astype(f32) * 2.0**-23
    return normalisation(jnp.where(is_denormal(x), 1 + fraction, x), scale, bias, epsilon=epsilon, centred=centred)
""",
        BROKEN,
        manifest=REFERENCE,
        kind="denormals",
    ),
    # infinities
    Planted(
        "product.infinities_are_large",
        "def kernel(x, y, contract, batch):\n    return product(jnp.clip(x, -1e30, 1e30), y, contract, batch)",
        HIDING,
        kind="infinities",
    ),
    Planted(
        "softmax.masked_rows_are_nan",
        """
def kernel(x, axis):
    if x.shape[axis] < 16:
        return softmax(x, axis)
    first, rest = jnp.split(x, [x.shape[axis] // 4], axis)
    m = first.max(axis, keepdims=True)
    new = jnp.maximum(m, rest.max(axis, keepdims=True))
    a, b = jnp.exp(first - m) * jnp.exp(m - new), jnp.exp(rest - new)
    return jnp.concatenate([a, b], axis) / (a.sum(axis, keepdims=True) + b.sum(axis, keepdims=True))
""",
        BROKEN,
        manifest=REFERENCE,
        kind="infinities",
    ),
    Planted(
        "normalisation.infinities_are_zero",
        "def kernel(x, *rest, **attributes):\n    return normalisation(jnp.where(jnp.isinf(x), 0.0, x), *rest, **attributes)",
        HIDING,
        kind="infinities",
    ),
    Planted(
        "cross_entropy.minus_infinity_is_small",
        "def kernel(logits, targets):\n    return cross_entropy(jnp.maximum(logits, -1e4), targets)",
        (*HIDING, *ERRONEOUS),
        kind="infinities",
    ),
    # NaN
    Planted(
        "product.nan_is_zero",
        "def kernel(x, y, contract, batch):\n    return product(jnp.where(jnp.isnan(x), 0.0, x), y, contract, batch)",
        HIDING,
        kind="NaN",
    ),
    Planted(
        "softmax.nan_is_skipped",
        "def kernel(x, axis):\n    e = jnp.exp(x - jnp.nanmax(x, axis, keepdims=True))\n    return jnp.nan_to_num(e / jnp.nansum(e, axis, keepdims=True))",
        HIDING,
        manifest=REFERENCE,
        kind="NaN",
    ),
    Planted(
        "embedding_gradient.nan_is_zero",
        "def kernel(indices, updates, rows):\n    return jnp.nan_to_num(embedding_gradient(indices, updates, rows), posinf=jnp.inf, neginf=-jnp.inf)",
        HIDING,
        kind="NaN",
    ),
    # only positive
    Planted(
        "product.of_absolutes",
        "def kernel(x, y, contract, batch):\n    return product(jnp.abs(x), y, contract, batch)",
        BROKEN,
        kind="only positive",
    ),
    Planted(
        "softmax.of_positives",
        "def kernel(x, axis):\n    return softmax(jnp.maximum(x, 0.0), axis)",
        BROKEN,
        kind="only positive",
    ),
    Planted(
        "normalisation.of_absolutes",
        "def kernel(x, *rest, **attributes):\n    return normalisation(jnp.abs(x), *rest, **attributes)",
        BROKEN,
        kind="only positive",
    ),
    Planted(
        "embedding_gradient.of_positives",
        "def kernel(indices, updates, rows):\n    return embedding_gradient(indices, jnp.maximum(updates, 0.0), rows)",
        BROKEN,
        kind="only positive",
    ),
    # large
    Planted(
        "softmax.without_maximum",
        "def kernel(x, axis):\n    e = jnp.exp(x)\n    return e / e.sum(axis, keepdims=True)",
        BROKEN,
        kind="garbage for large operands",
    ),
    Planted(
        "cross_entropy.without_maximum",
        "def kernel(logits, targets):\n    return jnp.log(jnp.exp(logits).sum(-1)) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]",
        BROKEN,
        kind="garbage for large operands",
    ),
    Planted(
        "product.saturates",
        "def kernel(x, y, contract, batch):\n    return product(jnp.clip(x, -65504.0, 65504.0), y, contract, batch)",
        (*BROKEN, *HIDING),
        kind="garbage for large operands",
    ),
    # attributes
    Planted(
        "attention.sees_everything",
        "def kernel(query, key, value, causal):\n    return attention(query, key, value, False)",
        ERRONEOUS,
        kind="ignores an attribute",
    ),
    Planted(
        "normalisation.without_epsilon",
        "def kernel(x, *rest, epsilon, centred):\n    return normalisation(x, *rest, epsilon=1e-12, centred=centred)",
        BROKEN,
        kind="ignores an attribute",
    ),
    Planted(
        "normalisation.always_centred",
        "def kernel(x, *rest, epsilon, centred):\n    return normalisation(x, *rest, epsilon=epsilon, centred=True)",
        BROKEN,
        kind="ignores an attribute",
    ),
]
