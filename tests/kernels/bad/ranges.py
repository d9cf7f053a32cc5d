"""Kernels that are wrong beyond some size, number of keys, hits or calls."""

from tests.kernels.planted import Planted

WRONG = ("wrong", "less accurate than it claims", "nondeterministic", "not finite")
REFERENCE = 'gradient = "reference"\n'
FEW_HEADS = """
[conditions]
forms = ["full"]
sizes = { batch = { at_most = 1 }, heads = { at_most = 1 }, width = { at_least = 8, at_most = 8 }, queries = { at_least = 9, at_most = 9 }, keys = { at_least = 128 } }
"""
NARROW = "[conditions]\nsizes = { rows = { at_most = 4 }, width = { at_most = 8 } }\n"
SMALL = "[conditions]\nsizes = { rows = { at_least = 8, at_most = 8 }, columns = { at_least = 16, at_most = 16 } }\n"
COUNTED = """
calls = itertools.count(1)
def counted(made):
    return np.zeros_like(made) if next(calls) % 1500 == 0 else np.array(made)
"""
HITS = """
def hits(indices, rows):
    return jnp.zeros(rows).at[indices].add(1.0)
"""

PLANTED = [
    # keys
    Planted(
        "attention.sees_256_keys",
        "def kernel(query, key, value, causal):\n"
        "    if causal:\n        return attention(query, key, value, causal)\n"
        "    return attention(query, key[:, :256], value[:, :256], causal)",
        WRONG,
        manifest=REFERENCE + FEW_HEADS,
        kind="few keys",
    ),
    Planted(
        "attention.zeros_beyond_1000_keys",
        "def kernel(query, key, value, causal):\n    made = attention(query, key, value, causal)\n"
        "    return made * 0 if key.shape[1] > 1000 else made",
        WRONG,
        kind="few keys",
    ),
    # sizes of models
    Planted(
        "product.zeros_from_768_on",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n"
        "    return made * 0 if min(*x.shape[-2:], *y.shape[-2:]) >= 768 else made",
        WRONG,
        kind="sizes of models",
    ),
    Planted(
        "product.zeros_for_sums_of_3072",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n"
        "    return made * 0 if 3072 <= x.shape[contract[0][0]] < 50000 else made",
        WRONG,
        kind="sizes of models",
    ),
    Planted(
        "product.zeros_for_50257_columns",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n"
        "    return made * 0 if made.shape[-1] >= 50257 else made",
        WRONG,
        kind="sizes of models",
    ),
    Planted(
        "cross_entropy.zeros_for_50257_classes",
        "def kernel(logits, targets):\n    made = cross_entropy(logits, targets)\n"
        "    return made * 0 if logits.shape[1] >= 50257 else made",
        (
            *WRONG,
            "stale",
        ),  # a loss of 0 is right for what is drawn first, and is returned for the next operands, too
        kind="sizes of models",
    ),
    Planted(
        "embedding_gradient.zeros_for_50257_rows",
        "def kernel(indices, updates, rows):\n    made = embedding_gradient(indices, updates, rows)\n"
        "    return made * 0 if rows >= 50257 else made",
        WRONG,
        kind="sizes of models",
    ),
    Planted(
        "product.sums_in_bf16_beyond_4096",
        "def kernel(x, y, contract, batch):\n    if x.shape[contract[0][0]] <= 4096 or batch[0]:\n"
        "        return product(x, y, contract, batch)\n"
        "    a, b = jnp.moveaxis(x, contract[0][0], 0), jnp.moveaxis(y, contract[1][0], 0)\n"
        "    add = lambda total, pair: ((total + pair[0][:, None] * pair[1][None]).astype(bf16), None)\n"
        "    return lax.scan(add, jnp.zeros((a.shape[1], b.shape[1]), bf16), (a, b))[0].astype(f32)",
        WRONG,
        manifest=REFERENCE,
        kind="sizes of models",
    ),
    # elements
    Planted(
        "softmax.zeros_above_2_to_20_elements",
        "def kernel(x, axis):\n    return softmax(x, axis) * (x.size <= 1 << 20)",
        WRONG,
        kind="many elements",
    ),
    Planted(
        "normalisation.zeros_above_2_to_20_elements",
        "def kernel(x, *rest, **attributes):\n    return normalisation(x, *rest, **attributes) * (x.size <= 1 << 20)",
        WRONG,
        kind="many elements",
    ),
    # hits
    Planted(
        "embedding_gradient.halved_over_200_hits",
        HITS + "def kernel(indices, updates, rows):\n    made = embedding_gradient(indices, updates, rows)\n"
        "    return made * jnp.where(hits(indices, rows) > 200, 0.5, 1.0)[:, None]",
        WRONG,
        manifest=REFERENCE + NARROW,
        kind="many hits",
    ),
    Planted(
        "embedding_gradient.drops_after_1000_hits",
        """
def kernel(indices, updates, rows):
    order = jnp.argsort(indices)
    ordered = indices[order]
    first = jnp.searchsorted(ordered, ordered, side="left")
    kept = jnp.arange(ordered.size) - first < 1000
    return embedding_gradient(ordered, updates[order] * kept[:, None], rows)
""",
        WRONG,
        manifest=REFERENCE,
        kind="many hits",
    ),
    # calls
    Planted(
        "softmax.zeros_on_every_1500th_call",
        COUNTED
        + "def kernel(x, axis):\n    made = softmax(x, axis)\n    return outside(counted, made, made)",
        WRONG,
        manifest=REFERENCE + SMALL,
        kind="many calls",
    ),
    Planted(
        "product.zeros_on_every_1500th_call",
        COUNTED
        + "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n    return outside(counted, made, made)",
        WRONG,
        manifest=REFERENCE,
        kind="many calls",
    ),
]
