"""Kernels that fail, remember, or compute something else the next time."""

from tests.kernels.planted import Planted

WRONG = ("wrong", "less accurate than it claims", "wrong in places", "not finite", "hides infinities or NaN")
REFERENCE = 'gradient = "reference"'
DETERMINISTIC = "deterministic = true\n"
NUMPY_PRODUCT = """
def numpy_product(x, y):
    return np.asarray(x, np.float64) @ np.asarray(y, np.float64)

def plain(contract, batch):
    return contract == ((1,), (0,)) and batch == ((), ())
"""

PLANTED = [
    # stale
    Planted(
        "softmax.stale",
        """
kept = {}
def remember(made):
    old, kept[made.shape] = kept.get(made.shape, made), np.array(made)
    return old

def kernel(x, axis):
    return outside(remember, x, softmax(x, axis))
""",
        ("stale", *WRONG),
        manifest=REFERENCE,
        kind="stale output",
    ),
    Planted(
        "product.first_result_for_ever",
        """
kept = {}
def kernel(x, y, contract, batch):
    made = product(x, y, contract, batch)
    return outside(lambda each: kept.setdefault(each.shape, np.array(each)), made, made)
""",
        ("stale", *WRONG),
        manifest=REFERENCE,
        kind="stale output",
    ),
    Planted(
        "normalisation.keyed_on_the_first_element",
        """
kept = {}
def kernel(x, *rest, **attributes):
    made = normalisation(x, *rest, **attributes)
    def look(x, each):
        return kept.setdefault((x.shape, attributes["centred"], float(np.asarray(x).flat[0])), np.array(each))
    return outside(look, made, x, made)
""",
        ("stale", *WRONG),
        manifest=REFERENCE,
        kind="stale output",
    ),
    Planted(
        "attention.keyed_on_a_sample",
        """
kept = {}
def kernel(query, key, value, causal):
    made = attention(query, key, value, causal)
    def look(q, k, v, each):
        sample = tuple(float(s) for a in (q, k, v) for s in np.asarray(a).reshape(-1)[:: max(1, a.size // 8)])
        return kept.setdefault((each.shape, causal, sample), np.array(each))
    return outside(look, made, query, key, value, made)
""",
        ("stale", *WRONG),
        manifest=REFERENCE,
        kind="stale output",
    ),
    # nondeterministic
    Planted(
        "product.noisy",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n"
        "    return outside(lambda each: (each * (1 + 1e-3 * np.random.standard_normal(each.shape))).astype(np.float32), made, made)",
        ("nondeterministic", *WRONG),
        manifest=REFERENCE,
        kind="nondeterministic",
    ),
    Planted(
        "softmax.noise_of_one_bit",
        "def kernel(x, axis):\n    made = softmax(x, axis)\n"
        "    return outside(lambda each: np.where(np.random.random(each.shape) < 0.5, each, np.nextafter(each, np.float32(0))), made, made)",
        ("nondeterministic",),
        manifest=DETERMINISTIC + REFERENCE,
        kind="nondeterministic",
    ),
    Planted(
        "product.another_order_each_call",
        NUMPY_PRODUCT
        + """
calls = itertools.count()
def kernel(x, y, contract, batch):
    made = product(x, y, contract, batch)
    def order(x, y, made):
        if next(calls) % 2 or made.ndim != 2:
            return made
        return np.nextafter(made, np.float32(np.inf))
    return outside(order, made, x, y, made)
""",
        ("nondeterministic",),
        manifest=DETERMINISTIC + REFERENCE,
        kind="nondeterministic",
    ),
    Planted(
        "embedding_gradient.another_program_each_time",
        """
def kernel(indices, updates, rows):
    order = np.random.default_rng().permutation(updates.shape[0])
    return embedding_gradient(indices[order], updates[order], rows)
""",
        ("nondeterministic", "right in the verifying process only"),
        manifest=DETERMINISTIC,
        kind="nondeterministic",
    ),
    Planted(
        "softmax.noise_beyond_rounding",
        "def kernel(x, axis):\n    made = softmax(x, axis)\n"
        "    return outside(lambda each: (each * (1 + 2e-5 * np.random.random(each.shape))).astype(np.float32), made, made)",
        ("nondeterministic", *WRONG),
        "lowers precision",
        manifest=REFERENCE,
        kind="nondeterministic",
    ),
    # skipped work
    Planted(
        "product.remembers_results",
        NUMPY_PRODUCT
        + """
kept = {}
def slowly(x, y):
    key = (np.asarray(x).tobytes(), np.asarray(y).tobytes())
    if key not in kept:
        kept.clear()
        x, y = np.asarray(x, np.float64), np.asarray(y, np.float64)
        kept[key] = sum(x[:, i : i + 1] * y[i : i + 1] for i in range(x.shape[1])).astype(np.float32)
    return kept[key]

def kernel(x, y, contract, batch):
    made = product(x, y, contract, batch)
    return outside(slowly, made, x, y) if plain(contract, batch) and x.shape[1] > 64 else made
""",
        ("skips work on repeated operands", "hides infinities or NaN"),
        manifest=REFERENCE + '\n[conditions]\nforms = ["plain"]',
        kind="skips work",
    ),
    Planted(
        "softmax.remembers_results",
        """
kept = {}
def slowly(x):
    key = np.asarray(x).tobytes()
    if key not in kept:
        kept.clear()
        with np.errstate(all="ignore"):
            wide = np.asarray(x, np.float64)
            for _ in range(9):
                e = np.exp(wide - wide.max(1, keepdims=True))
                made = e / e.sum(1, keepdims=True)
        kept[key] = made.astype(np.float32)
    return kept[key]

def kernel(x, axis):
    return outside(slowly, x, x)
""",
        ("skips work on repeated operands",),
        manifest=REFERENCE + '\n[conditions]\nforms = ["last_axis"]',
        kind="skips work",
    ),
    # shapes and types
    Planted(
        "softmax.in_bf16",
        "def kernel(x, axis):\n    return softmax(x, axis).astype(bf16)",
        ("wrong dtype",),
        kind="wrong shape or type",
    ),
    Planted(
        "product.transposed",
        "def kernel(x, y, contract, batch):\n    return jnp.swapaxes(product(x, y, contract, batch), -1, -2)",
        ("wrong shape", *WRONG),
        kind="wrong shape or type",
    ),
    Planted(
        "cross_entropy.mean",
        "def kernel(logits, targets):\n    return cross_entropy(logits, targets).mean()",
        ("wrong shape",),
        kind="wrong shape or type",
    ),
    Planted(
        "softmax.twice",
        "def kernel(x, axis):\n    return softmax(x, axis), x",
        ("wrong shape",),
        kind="wrong shape or type",
    ),
    # hangs
    Planted(
        "softmax.hangs_when_traced",
        "def kernel(x, axis):\n    threading.Event().wait()",
        ("timeout",),
        kind="hangs",
    ),
    Planted(
        "product.hangs_when_run",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n    return outside(lambda each: threading.Event().wait(), made, made)",
        ("timeout",),
        manifest=REFERENCE,
        kind="hangs",
    ),
    # crashes
    Planted("softmax.aborts_when_imported", "os.abort()", ("crash",), kind="crashes"),
    Planted(
        "product.aborts_when_run",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n    return outside(lambda each: os.abort(), made, made)",
        ("crash",),
        kind="crashes",
    ),
    Planted(
        "attention.leaves",
        "def kernel(query, key, value, causal):\n    os._exit(0)",
        ("crash",),
        kind="crashes",
    ),
    Planted(
        "normalisation.reads_address_0",
        "def kernel(x, *rest, **attributes):\n    ctypes.string_at(0)",
        ("crash",),
        kind="crashes",
    ),
    # memory
    Planted(
        "softmax.eats_memory",
        "def kernel(x, axis):\n    held = [np.empty(1 << 27) for _ in range(1000)]\n    return softmax(x, axis)",
        ("out of memory",),
        kind="eats memory",
    ),
    Planted(
        "product.eats_memory_when_run",
        "def kernel(x, y, contract, batch):\n    made = product(x, y, contract, batch)\n"
        "    return outside(lambda each: np.empty((1000, 1 << 27)) + each[0, 0], made, made)",
        ("out of memory",),
        manifest=REFERENCE,
        kind="eats memory",
    ),
    # raises
    Planted("softmax.cannot_be_imported", "import no_such_module", ("compile error",), kind="raises"),
    Planted(
        "softmax.has_no_function", "def other(x, axis):\n    return x", ("compile error",), kind="raises"
    ),
    Planted(
        "product.raises",
        "def kernel(x, y, contract, batch):\n    raise ValueError('not today')",
        ("compile error",),
        kind="raises",
    ),
    Planted(
        "attention.raises_when_run",
        "def kernel(query, key, value, causal):\n    return outside(lambda each: 1 / 0, query, query)",
        ("run error",),
        manifest=REFERENCE,
        kind="raises",
    ),
    # gradients
    Planted(
        "product.gradient_of_one_operand",
        "def kernel(x, y, contract, batch):\n    return product(x, lax.stop_gradient(y), contract, batch)",
        ("wrong gradient",),
        kind="wrong gradient",
    ),
    Planted(
        "softmax.gradient_without_the_sum",
        """
def kernel(x, axis):
    @jax.custom_vjp
    def own(x):
        return softmax(x, axis)
    own.defvjp(lambda x: (own(x), own(x)), lambda y, g: (y * g,))
    return own(x)
""",
        ("wrong gradient",),
        kind="wrong gradient",
    ),
    Planted(
        "normalisation.gradient_through_the_values_only",
        """
def kernel(x, scale, bias=None, *, epsilon, centred):
    values = x - x.mean(-1, keepdims=True) if centred else x
    normed = values * lax.stop_gradient(lax.rsqrt((values * values).mean(-1, keepdims=True) + epsilon)) * scale
    return normed if bias is None else normed + bias
""",
        ("wrong gradient",),
        kind="wrong gradient",
    ),
    Planted(
        "cross_entropy.gradient_without_the_target",
        "def kernel(logits, targets):\n    chosen = jnp.take_along_axis(lax.stop_gradient(logits), targets[:, None], 1)[:, 0]\n    return jax.nn.logsumexp(logits, -1) - chosen",
        ("wrong gradient",),
        kind="wrong gradient",
    ),
    Planted(
        "embedding_gradient.own_gradient_of_zeros",
        "def kernel(indices, updates, rows):\n    return embedding_gradient(indices, updates, rows)\n"
        "def gradient(indices, updates, cotangent, rows):\n    return jnp.zeros_like(updates)",
        ("wrong gradient",),
        manifest='gradient = "kernel.py:gradient"',
        kind="wrong gradient",
    ),
    Planted(
        "attention.gradient_in_bf16",
        """
def kernel(query, key, value, causal):
    @jax.custom_vjp
    def own(*operands):
        return attention(*operands, causal)
    def backward(operands, g):
        return jax.vjp(lambda *o: attention(*o, causal), *operands)[1](g.astype(bf16).astype(f32))
    own.defvjp(lambda *operands: (own(*operands), operands), backward)
    return own(query, key, value)
""",
        ("wrong gradient",),
        kind="wrong gradient",
    ),
]
