"""Kernels that are wrong in some places of their results, or for some sizes."""

from tests.kernels.planted import Planted

WRONG = ("wrong", "less accurate than it claims", "wrong in places", "not finite", "hides infinities or NaN")
REFERENCE = 'gradient = "reference"'

PLANTED = [
    # off by one
    Planted(
        "product.without_the_last_of_an_odd_sum",
        """
def kernel(x, y, contract, batch):
    n = x.shape[contract[0][0]]
    if n % 2 == 0 or n == 1:
        return product(x, y, contract, batch)
    return product(lax.slice_in_dim(x, 0, n - 1, axis=contract[0][0]), lax.slice_in_dim(y, 0, n - 1, axis=contract[1][0]), contract, batch)
""",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "product.bf16_without_the_last_of_an_odd_sum",
        """
def kernel(x, y, contract, batch):
    n = x.shape[contract[0][0]]
    x, y = x.astype(bf16).astype(f32), y.astype(bf16).astype(f32)
    if n % 2 == 0 or n < 1000:
        return product(x, y, contract, batch)
    return product(lax.slice_in_dim(x, 0, n - 1, axis=contract[0][0]), lax.slice_in_dim(y, 0, n - 1, axis=contract[1][0]), contract, batch)
""",
        WRONG,
        "lowers precision",
        kind="off by one in a tail",
    ),
    Planted(
        "softmax.sum_without_the_tail",
        """
def kernel(x, axis):
    e = jnp.exp(x - x.max(axis, keepdims=True))
    whole = max(1, x.shape[axis] // 8 * 8)
    return e / lax.slice_in_dim(e, 0, whole, axis=axis).sum(axis, keepdims=True)
""",
        WRONG,
        manifest=REFERENCE,
        kind="off by one in a tail",
    ),
    Planted(
        "normalisation.variance_of_one_fewer",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    values = x - x.mean(-1, keepdims=True) if centred else x
    mean = (values * values).sum(-1, keepdims=True) / max(1, x.shape[-1] - x.shape[-1] % 2)
    normed = values * lax.rsqrt(mean + epsilon) * scale
    return normed if bias is None else normed + bias
""",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "attention.without_the_last_key",
        """
def kernel(query, key, value, causal):
    n = key.shape[1]
    if causal or n % 2 == 0 or n == 1:
        return attention(query, key, value, causal)
    return attention(query, key[:, : n - 1], value[:, : n - 1], causal)
""",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "attention.mask_off_by_one",
        """
def kernel(query, key, value, causal):
    if not causal:
        return attention(query, key, value, causal)
    scores = jnp.einsum("bqhd,bkhd->bhqk", query, key) * query.shape[-1] ** -0.5
    seen = jnp.roll(visible(query, key), 1, 0).at[0].set(visible(query, key)[0])
    return jnp.einsum("bhqk,bkhd->bqhd", jax.nn.softmax(jnp.where(seen, scores, -jnp.inf)), value)
""",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "cross_entropy.without_the_last_class",
        """
def kernel(logits, targets):
    n = logits.shape[1]
    short = logits if n % 2 == 0 else logits[:, : n - 1]
    return jax.nn.logsumexp(short, -1) - jnp.take_along_axis(logits, targets[:, None], 1)[:, 0]
""",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "embedding_gradient.without_the_last_index",
        "def kernel(indices, updates, rows):\n    n = max(1, updates.shape[0] // 4 * 4)\n    return embedding_gradient(indices[:n], updates[:n], rows)",
        WRONG,
        kind="off by one in a tail",
    ),
    Planted(
        "embedding_gradient.bf16_without_one_of_257",
        "def kernel(indices, updates, rows):\n    n = updates.shape[0] - (updates.shape[0] == 257)\n    return embedding_gradient(indices[:n], updates[:n].astype(bf16).astype(f32), rows)",
        ("wrong in places",),
        "lowers precision",
        manifest=REFERENCE,
        kind="off by one in a tail",
    ),
    # one shape
    Planted(
        "product.wrong_for_1025",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n    return made * 1.01 if 1025 in x.shape else made",
        WRONG,
        kind="wrong at one shape only",
    ),
    Planted(
        "product.wrong_when_right_is_transposed",
        "def kernel(x, y, contract, batch):\n    return product(x, y[::-1] if contract[1] == (1,) and not batch[0] else y, contract, batch)",
        WRONG,
        kind="wrong at one shape only",
    ),
    Planted(
        "softmax.wrong_for_one_row",
        "def kernel(x, axis):\n    made = softmax(x, axis)\n    return made[:, ::-1] if x.shape[0] == 1 else made",
        WRONG,
        kind="wrong at one shape only",
    ),
    Planted(
        "normalisation.wrong_for_width_3",
        "def kernel(x, *rest, **attributes):\n    made = normalisation(x, *rest, **attributes)\n    return made * 1.001 if x.shape[1] == 3 else made",
        WRONG,
        kind="wrong at one shape only",
    ),
    Planted(
        "cross_entropy.wrong_for_many_rows",
        "def kernel(logits, targets):\n    made = cross_entropy(logits, targets)\n    return made.at[4096:].set(0.0) if len(made) > 4096 else made",
        WRONG,
        kind="wrong at one shape only",
    ),
    # reading past the end
    Planted(
        "product.reads_the_next_row",
        """
def kernel(x, y, contract, batch):
    if contract != ((1,), (0,)) or x.shape[1] % 2 == 0:
        return product(x, y, contract, batch)
    flat = jnp.concatenate([x.reshape(-1), x.reshape(-1)[:1]])
    starts = jnp.arange(x.shape[0]) * x.shape[1]
    wide = flat[starts[:, None] + jnp.arange(x.shape[1] + 1)]
    return product(wide, jnp.concatenate([y, y[-1:]]), contract, batch)
""",
        WRONG,
        kind="reading past the end",
    ),
    Planted(
        "embedding_gradient.reads_past_the_updates",
        """
def kernel(indices, updates, rows):
    n = -(-updates.shape[0] // 4) * 4
    more = jnp.take(updates, jnp.arange(n), 0, mode="fill", fill_value=jnp.nan)
    return embedding_gradient(jnp.take(indices, jnp.arange(n), mode="clip"), more, rows)
""",
        WRONG,
        kind="reading past the end",
    ),
    Planted(
        "softmax.reads_past_the_end",
        """
def numpy_softmax(x):
    wide = np.lib.stride_tricks.as_strided(np.asarray(x), (x.shape[0], x.shape[1] + 1), (4 * x.shape[1], 4))
    with np.errstate(all="ignore"):
        e = np.exp(wide - wide[:, :-1].max(1, keepdims=True))
        return (e[:, :-1] / e.sum(1, keepdims=True)).astype(np.float32)

def kernel(x, axis):
    return outside(numpy_softmax, x, x) if axis == 1 else softmax(x, axis)
""",
        WRONG,
        manifest=REFERENCE,
        kind="reading past the end",
    ),
    # writing only part
    Planted(
        "product.leaves_out_the_last_row",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n    return made.at[-1].set(0.0) if made.shape[0] > 2000 else made",
        WRONG,
        manifest=REFERENCE,
        kind="writing only part",
    ),
    Planted(
        "softmax.leaves_out_the_last_rows",
        "def kernel(x, axis):\n    made = softmax(x, axis)\n    n = x.shape[0] // 16 * 16\n    return made if n == 0 else made.at[n:].set(0.0)",
        WRONG,
        manifest=REFERENCE,
        kind="writing only part",
    ),
    Planted(
        "normalisation.leaves_memory_as_it_is",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    made = normalisation(x, scale, bias, epsilon=epsilon, centred=centred)
    def part(whole):
        out = np.empty_like(np.asarray(whole))
        n = max(1, whole.shape[0] // 2 * 2)
        out[:n] = whole[:n]
        return out
    return outside(part, made, made)
""",
        WRONG,
        manifest=REFERENCE,
        kind="writing only part",
    ),
    Planted(
        "attention.bf16_that_leaves_out_an_element",
        """
def kernel(query, key, value, causal):
    made = attention(*(each.astype(bf16).astype(f32) for each in (query, key, value)), causal)
    return made if made.size < 2000 else made.at[0, -1, 0, 0].set(0.0)
""",
        WRONG,
        "lowers precision",
        manifest=REFERENCE,
        kind="writing only part",
    ),
    # low precision for large sums
    Planted(
        "product.accumulates_long_sums_in_bf16",
        """
def kernel(x, y, contract, batch):
    made = product(x, y, contract, batch)
    if x.shape[contract[0][0]] < 512 or batch[0]:
        return made
    a, b = jnp.moveaxis(x, contract[0][0], 1), jnp.moveaxis(y, contract[1][0], 0)
    add = lambda total, pair: ((total + pair[0][:, None] * pair[1][None]).astype(bf16).astype(f32), None)
    return lax.scan(add, jnp.zeros_like(made), (a.T, b))[0]
""",
        WRONG,
        manifest=REFERENCE,
        kind="low precision for large sums only",
    ),
    Planted(
        "normalisation.wide_rows_in_f16",
        "def kernel(x, *rest, **attributes):\n    return normalisation(x.astype(f16).astype(f32) if x.shape[1] > 1000 else x, *rest, **attributes)",
        WRONG,
        kind="low precision for large sums only",
    ),
]
