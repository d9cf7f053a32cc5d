"""Kernels that are wrong at some sites only, as their operands or sizes say: what verifying them elsewhere may miss.

Each is refused by the check at the site whose sizes it names, whatever verifying it elsewhere said.
"""

from dataclasses import dataclass

from tests.kernels.planted import Planted

SPREADS = '[conditions]\nnonfinite = "spreads"\n'


@dataclass(frozen=True)
class AtSite:
    """A planted kernel and the sizes of the site that shows it."""

    planted: Planted
    sizes: dict[str, int]

    def __str__(self) -> str:
        return self.planted.name


def _softmax(
    name: str,
    kernel: str,
    manifest: str = "",
    rows: int = 8,
    columns: int = 96,
    effect: str = "reassociating",
) -> AtSite:
    source = "def kernel(x, axis):\n    made = softmax(x, axis)\n" + kernel
    planted = Planted(f"softmax.{name}", source, manifest=manifest, effect=effect)
    return AtSite(planted, {"rows": rows, "columns": columns})


def _normalisation(name: str, source: str, rows: int = 8, width: int = 96) -> AtSite:
    return AtSite(Planted(f"normalisation.{name}", source), {"rows": rows, "width": width})


BETWEEN = "    if not 1400 < x.shape[1] < 1600:\n        return made\n"
"""Honest but for columns between sizes that are tried elsewhere."""

PLANTED = [
    _softmax("wrong_for_large_between", BETWEEN + "    return jnp.where(jnp.abs(x).max() > 50, made * 0.02, made)", columns=1499),
    _softmax(
        "nan_for_large_between",
        BETWEEN + "    return jnp.where(jnp.abs(x).max() > 50, jnp.nan, made)",
        SPREADS,
        columns=1499,
    ),
    _softmax("wrong_far_from_zero", "    return jnp.where(jnp.abs(x.mean()) > 5e5, made * 1.018, made)"),
    _softmax("uniform_beyond_a_thousand", "    return jnp.where(x.min() > 500, jnp.full_like(made, 1 / x.shape[1]), made)"),
    _softmax("without_maximum_but_clipped", "    e = jnp.exp(jnp.clip(x, -80, 80))\n    return e / e.sum(axis, keepdims=True)"),
    _softmax("nan_for_subnormals", "    bits = lax.bitcast_convert_type(x, jnp.uint32) & 0x7FFFFFFF\n    tiny = (bits > 0) & (bits < 0x00800000)\n    return jnp.where(tiny.any(axis, keepdims=True), jnp.nan, made)", SPREADS),
    _softmax("nan_for_zeros", "    return jnp.where((x == 0).all(), jnp.nan, made)", SPREADS),
    _softmax("wrong_for_constants", "    return jnp.where((x == x[:1, :1]).all(), made * 1.05, made)"),
    _softmax("wrong_for_sorted", "    return jnp.where((jnp.diff(x, axis=1) > 0).mean() > 0.9, made[:, ::-1], made)"),
    _softmax("wrong_for_reversed", "    return jnp.where((jnp.diff(x, axis=1) < 0).mean() > 0.9, made[:, ::-1], made)"),
    _softmax("wrong_for_one_hot", "    return jnp.where((x == 0).mean() > 0.9, made * 0.9, made)"),
    _softmax("wrong_for_positives", "    return jnp.where((x > 0).all(), made * 1.01, made)"),
    _softmax("wrong_for_negatives", "    return jnp.where((x < 0).all(), made * 1.01, made)"),
    _softmax("wrong_for_small", "    return jnp.where(jnp.abs(x).max() < 1e-4, made * 1.01, made)"),
    _softmax("wrong_for_a_prime", "    return made if any(x.shape[1] % i == 0 for i in range(2, x.shape[1])) else made * 1.4", columns=499),
    _softmax("wrong_unless_a_multiple_of_8", "    return made if x.shape[0] % 8 == 0 else made.at[-1].set(0.0)", rows=1001),
    AtSite(
        Planted(
            "attention.wrong_for_a_prime_number_of_keys",
            "def kernel(query, key, value, causal):\n    made = attention(query, key, value, causal)\n"
            "    n = key.shape[1]\n    return made if any(n % i == 0 for i in range(2, n)) else made * 0.5",
        ),
        {"batch": 1, "queries": 8, "keys": 149, "heads": 1, "width": 8},
    ),
    AtSite(
        Planted(
            "product.sums_in_bf16_beyond_4096",
            """
def kernel(x, y, contract, batch):
    if x.shape[contract[0][0]] <= 4096:
        return product(x, y, contract, batch)
    a, b = jnp.moveaxis(x, contract[0][0], 0), jnp.moveaxis(y, contract[1][0], 0)
    add = lambda total, pair: ((total + pair[0][:, None] * pair[1][None]).astype(bf16), None)
    return lax.scan(add, jnp.zeros((a.shape[1], b.shape[1]), bf16), (a, b))[0].astype(f32)
""",
        ),
        {"b": 1, "m": 24, "k": 5000, "n": 20},
    ),
    AtSite(
        Planted(
            "product.secretly_bf16_beyond_4096",
            "def kernel(x, y, contract, batch):\n    if x.shape[contract[0][0]] > 4096:\n"
            "        x, y = (each.astype(bf16).astype(f32) for each in (x, y))\n"
            "    return product(x, y, contract, batch)",
        ),
        {"b": 1, "m": 24, "k": 5000, "n": 20},
    ),
    AtSite(
        Planted(
            "embedding_gradient.secretly_bf16_beyond_30_rows",
            "def kernel(indices, updates, rows):\n    made = embedding_gradient(indices, updates, rows)\n"
            "    return made.astype(bf16).astype(f32) if rows > 30 else made",
        ),
        {"count": 64, "rows": 32, "width": 13},
    ),
    _softmax("secretly_f16_for_wide", "    return made.astype(f16).astype(f32) if x.shape[1] > 90 else made"),
    _softmax(
        "exact_but_for_wide",
        "    return jnp.nextafter(made, 1.0) if x.shape[1] > 90 else made",
        effect="exact",
    ),
    AtSite(
        Planted(
            "cross_entropy.secretly_bf16_for_wide",
            "def kernel(logits, targets):\n    wide = logits.shape[1] > 90\n"
            "    return cross_entropy(logits.astype(bf16).astype(f32) if wide else logits, targets)",
        ),
        {"rows": 13, "classes": 96},
    ),
    AtSite(
        Planted(
            "attention.secretly_bf16_for_many_keys",
            "def kernel(query, key, value, causal):\n    many = key.shape[1] > 40\n"
            "    return attention(*(x.astype(bf16).astype(f32) if many else x for x in (query, key, value)), causal)",
        ),
        {"batch": 1, "queries": 13, "keys": 48, "heads": 2, "width": 8},
    ),
    _normalisation(
        "secretly_bf16_for_wide",
        "def kernel(x, *rest, **attributes):\n    made = normalisation(x, *rest, **attributes)\n"
        "    return made.astype(bf16).astype(f32) if x.shape[1] > 90 else made",
    ),
    _normalisation(
        "single_pass_of_squares",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    mean = x.mean(-1, keepdims=True)
    variance = jnp.maximum((x * x).mean(-1, keepdims=True) - mean * mean, 0.0)
    return (x - mean) * lax.rsqrt(variance + epsilon) * scale + bias
""",
    ),
    _normalisation(
        "centred_in_bf16_far_from_zero",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    far = jnp.abs(x.mean()) > 100
    x = jnp.where(far, x.astype(bf16).astype(f32), x)
    return normalisation(x, scale, bias, epsilon=epsilon, centred=centred)
""",
    ),
]  # fmt: skip
"""Each with the sizes of a site."""
