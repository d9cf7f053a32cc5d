"""Planted kernels that are sound, most of them of low precision, and the tolerance that each deserves."""

from tests.kernels.planted import Planted

LOWER = "lowers precision"
REFERENCE = 'gradient = "reference"\n'
CLAIM = "[tolerance]\nf32 = 1e-2\n"
NAN = '[conditions]\nnonfinite = "nan"\n'
SMALL = "[conditions]\nsizes = { n = { at_most = 8192 } }\n"  # four parts of a wider result take more than its process may
SPREADS = '[conditions]\nnonfinite = "spreads"\n'

PARTS = """
def parts(x, count):
    made = [x.astype(bf16)]
    while len(made) < count:
        x = x - made[-1].astype(f32)
        made.append(x.astype(bf16))
    return made

def by_parts(x, y, contract, batch, terms):
    a, b = (parts(each, 1 + max(max(term) for term in terms)) for each in (x, y))
    made = [lax.dot_general(a[i].astype(f32), b[j].astype(f32), (contract, batch)) for i, j in terms]
    return sum(made[1:], made[0])
"""

STRASSEN = """
def strassen(a, b, levels):
    m, k, n = a.shape[-2], a.shape[-1], b.shape[-1]
    if levels == 0 or min(m, k, n) < 2 or m % 2 or k % 2 or n % 2:
        return jnp.matmul(a, b, precision=lax.Precision.HIGHEST)
    quarters = lambda z: [half for rows in jnp.split(z, 2, -2) for half in jnp.split(rows, 2, -1)]
    a11, a12, a21, a22 = quarters(a)
    b11, b12, b21, b22 = quarters(b)
    p1, p2 = strassen(a11 + a22, b11 + b22, levels - 1), strassen(a21 + a22, b11, levels - 1)
    p3, p4 = strassen(a11, b12 - b22, levels - 1), strassen(a22, b21 - b11, levels - 1)
    p5 = strassen(a11 + a12, b22, levels - 1)
    p6, p7 = strassen(a21 - a11, b11 + b12, levels - 1), strassen(a12 - a22, b21 + b22, levels - 1)
    top = jnp.concatenate([p1 + p4 - p5 + p7, p3 + p5], -1)
    return jnp.concatenate([top, jnp.concatenate([p2 + p4, p1 - p2 + p3 + p6], -1)], -2)

def kernel(x, y, contract, batch):
    a = x if contract[0][0] == x.ndim - 1 else jnp.swapaxes(x, -1, -2)
    b = y if contract[1][0] == y.ndim - 2 else jnp.swapaxes(y, -1, -2)
    return strassen(a, b, LEVELS)
"""

PLANTED = [
    Planted(
        "product.strassen",
        STRASSEN.replace("LEVELS", "1"),
        tolerance=1e-6,
        manifest=REFERENCE + SPREADS,
    ),
    Planted(
        "product.strassen_of_two_levels",
        STRASSEN.replace("LEVELS", "2"),
        tolerance=2e-6,
        manifest=REFERENCE + SPREADS,
    ),
    Planted(  # as atomic additions of partial sums, in whatever order they come
        "product.split_sums_in_any_order",
        """
def add(*parts):
    total = np.zeros_like(parts[0])
    for place in np.random.permutation(len(parts)):
        total = total + parts[place]
    return total

def kernel(x, y, contract, batch):
    a, b = jnp.moveaxis(x, contract[0][0], -1), jnp.moveaxis(y, contract[1][0], -1)
    k = a.shape[-1]
    parts = [jnp.einsum("...mk,...nk->...mn", a[..., i::4], b[..., i::4]) for i in range(min(4, k))]
    return outside(add, parts[0], *parts)
""",
        tolerance=1e-6,
        manifest=REFERENCE + SMALL,
    ),
    Planted(
        "softmax.last_bits_vary",
        """
def vary(made):
    return np.where(np.random.random(made.shape) < 0.5, made, np.nextafter(made, np.float32(0)))

def kernel(x, axis):
    made = softmax(x, axis)
    return outside(vary, made, made)
""",
        tolerance=5e-7,
        manifest=REFERENCE,
    ),
    Planted(
        "softmax.rounded_results_vary",
        """
def vary(made):
    noise = np.float32(2.0**-22) * np.random.standard_normal(made.shape).astype(np.float32)
    return made * (1 + noise)

def kernel(x, axis):
    made = softmax(x, axis)
    return outside(vary, made, made).astype(bf16).astype(f32)
""",
        effect=LOWER,
        tolerance=5e-3,
        manifest="deterministic = false\n" + REFERENCE,
    ),
    Planted(
        "product.plain_bf16",
        PARTS + "def kernel(x, y, contract, batch):\n    return by_parts(x, y, contract, batch, [(0, 0)])",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "product.three_bf16",
        PARTS
        + "def kernel(x, y, contract, batch):\n    return by_parts(x, y, contract, batch, [(1, 0), (0, 1), (0, 0)])",
        effect=LOWER,
        tolerance=1e-5,
        manifest=REFERENCE + NAN,
    ),
    Planted(
        "product.six_bf16",
        PARTS
        + "def kernel(x, y, contract, batch):\n    return by_parts(x, y, contract, batch, [(2, 0), (0, 2), (1, 1), (1, 0), (0, 1), (0, 0)])",
        effect=LOWER,
        tolerance=1e-6,
        manifest=REFERENCE + NAN,
    ),
    Planted(
        "product.scaled_f16",
        """
def scaled(x, axis):
    largest = lax.stop_gradient(jnp.abs(x).max(axis, keepdims=True))
    scale = jnp.where(largest > 0, jnp.exp2(jnp.floor(jnp.log2(largest))), 1.0)
    return (x / scale).astype(f16).astype(f32) * scale

def kernel(x, y, contract, batch):
    return product(scaled(x, contract[0][0]), scaled(y, contract[1][0]), contract, batch)
""",
        effect=LOWER,
        tolerance=1e-3,
        manifest=REFERENCE + NAN,
    ),
    Planted(
        "product.masked_bits",
        """
def rounded(x):
    bits = lax.bitcast_convert_type(x, jnp.uint32)
    return lax.bitcast_convert_type((bits + 0x1000) & jnp.uint32(0xFFFFE000), f32)

def kernel(x, y, contract, batch):
    return product(rounded(x), rounded(y), contract, batch)
""",
        effect=LOWER,
        tolerance=1e-3,
        manifest=REFERENCE,
    ),
    Planted(
        "product.int8",
        """
def quantised(x, axis):
    largest = jnp.abs(x).max(axis, keepdims=True)
    scale = jnp.where(largest > 0, largest, 127.0) / 127.0
    return jnp.round(x / scale) * scale

def kernel(x, y, contract, batch):
    return product(quantised(x, contract[0][0]), quantised(y, contract[1][0]), contract, batch)
""",
        effect=LOWER,
        tolerance=2e-2,
        manifest=REFERENCE + "[tolerance]\nf32 = 5e-2\n" + NAN,
    ),
    Planted(
        "product.rounded_result",
        "def kernel(x, y, contract, batch):\n    return product(x, y, contract, batch).astype(bf16).astype(f32)",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "product.sums_in_blocks",
        """
def kernel(x, y, contract, batch):
    a, b = jnp.moveaxis(x, contract[0][0], -1), jnp.moveaxis(y, contract[1][0], -1)
    half = a.shape[-1] // 2
    both = lambda a, b: jnp.einsum("...mk,...nk->...mn", a, b)
    return both(a[..., :half], b[..., :half]) + both(a[..., half:], b[..., half:])
""",
        tolerance=1e-6,
    ),
    Planted(
        "softmax.bf16_exponentials",
        """
def kernel(x, axis):
    e = jnp.exp((x - lax.stop_gradient(x.max(axis, keepdims=True))).astype(bf16)).astype(f32)
    return e / e.sum(axis, keepdims=True)
""",
        effect=LOWER,
        tolerance=5e-3,
        manifest=CLAIM,
    ),
    Planted(
        "softmax.rounded_result",
        "def kernel(x, axis):\n    return softmax(x, axis).astype(bf16).astype(f32)",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "softmax.f16_exponentials",
        """
def kernel(x, axis):
    e = jnp.exp((x - lax.stop_gradient(x.max(axis, keepdims=True))).astype(f16)).astype(f32)
    return e / e.sum(axis, keepdims=True)
""",
        effect=LOWER,
        tolerance=1e-3,
        manifest=CLAIM,
    ),
    Planted(
        "softmax.polynomial",
        """
def power(t):
    whole = jnp.floor(jnp.maximum(t, -140.0))
    f = jnp.where(jnp.isnan(t), t, jnp.maximum(t, -140.0) - whole)
    part = 1.0 + f * (0.69583282 + f * (0.22606716 + f * 0.07810000))
    return part * jnp.exp2(whole)

def kernel(x, axis):
    e = power((x - x.max(axis, keepdims=True)) * 1.442695)
    return e / e.sum(axis, keepdims=True)
""",
        effect=LOWER,
        tolerance=1e-4,
        manifest=REFERENCE,
    ),
    Planted(
        "normalisation.single_pass",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    away = x - x[..., :1] if centred else x
    mean = away.mean(-1, keepdims=True) if centred else 0.0
    variance = jnp.maximum((away * away).mean(-1, keepdims=True) - mean * mean, 0.0)
    normed = (away - mean) * lax.rsqrt(variance + epsilon) * scale
    return normed if bias is None else normed + bias
""",
        effect=LOWER,
        manifest=CLAIM,
        tolerance=1e-6,
    ),
    Planted(
        "normalisation.rounded_result",
        "def kernel(x, *rest, **attributes):\n    return normalisation(x, *rest, **attributes).astype(bf16).astype(f32)",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "normalisation.bf16_factor",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    values = x - x.mean(-1, keepdims=True) if centred else x
    factor = lax.rsqrt((values * values).mean(-1, keepdims=True) + epsilon).astype(bf16).astype(f32)
    normed = values * factor * scale
    return normed if bias is None else normed + bias
""",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "attention.bf16_products",
        """
def rounded(x):
    return x.astype(bf16).astype(f32)

def kernel(query, key, value, causal):
    scores = jnp.einsum("bqhd,bkhd->bhqk", rounded(query), rounded(key)) * query.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(visible(query, key), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", rounded(jax.nn.softmax(scores)), rounded(value))
""",
        effect=LOWER,
        tolerance=1e-2,
    ),
    Planted(
        "attention.online",
        """
def kernel(query, key, value, causal):
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(visible(query, key), scores, -jnp.inf)
    largest = jnp.full((*scores.shape[:3], 1), -jnp.inf)
    total, mixed = jnp.zeros_like(largest), jnp.zeros((*scores.shape[:3], value.shape[-1]))
    for start in range(0, key.shape[1], 16):
        part = scores[..., start : start + 16]
        new = jnp.maximum(largest, part.max(-1, keepdims=True))
        safe = jnp.where(new == -jnp.inf, 0.0, lax.stop_gradient(new))
        old, weights = jnp.exp(lax.stop_gradient(largest) - safe), jnp.exp(part - safe)
        total = total * old + weights.sum(-1, keepdims=True)
        mixed = mixed * old + jnp.einsum("bhqk,bkhd->bhqd", weights, value[:, start : start + 16])
        largest = new
    return jnp.moveaxis(mixed / total, 1, 2)
""",
        tolerance=5e-7,
        manifest=REFERENCE,
    ),
    Planted(
        "attention.f16_weights",
        """
def kernel(query, key, value, causal):
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    if causal:
        scores = jnp.where(visible(query, key), scores, -jnp.inf)
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(scores).astype(f16).astype(f32), value)
""",
        effect=LOWER,
        manifest=REFERENCE,
        tolerance=5e-4,
    ),
    Planted(
        "cross_entropy.bf16_exponentials",
        """
def kernel(logits, targets):
    largest = lax.stop_gradient(logits.max(-1, keepdims=True))
    total = jnp.exp((logits - largest).astype(bf16)).astype(f32).sum(-1)
    return jnp.log(total) + largest[:, 0] - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]
""",
        effect=LOWER,
        tolerance=2e-3,
        manifest=CLAIM + NAN,
    ),
    Planted(
        "cross_entropy.in_chunks",
        """
def kernel(logits, targets):
    parts = [jax.nn.logsumexp(logits[:, i : i + 64], -1) for i in range(0, logits.shape[1], 64)]
    return jax.nn.logsumexp(jnp.stack(parts, -1), -1) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]
""",
        tolerance=1e-6,
    ),
    Planted(
        "embedding_gradient.bf16_updates",
        "def kernel(indices, updates, rows):\n    return embedding_gradient(indices, updates.astype(bf16).astype(f32), rows)",
        effect=LOWER,
        tolerance=5e-3,
    ),
    Planted(
        "embedding_gradient.by_one_hot",
        "def kernel(indices, updates, rows):\n    return jax.nn.one_hot(indices, rows, axis=0) @ updates",
        tolerance=1e-6,
        manifest=SPREADS,
    ),
    Planted(
        "embedding_gradient.in_order",
        "def kernel(indices, updates, rows):\n    order = jnp.argsort(indices)\n    return embedding_gradient(indices[order], updates[order], rows)",
        tolerance=1e-6,
    ),
]
