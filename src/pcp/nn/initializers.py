"""What the parameters of layers begin with: the distributions of `jax.nn.initializers`, drawn by NumPy.

Each initialiser is a function of a key, a shape and an element type. The key is a seed, `pcp.random.key(seed)`, or a generator
of NumPy, which goes on from one array to the next: `rng = np.random.default_rng(0)`. Equal keys give equal arrays everywhere.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from pcp.errors import PCPError
from pcp.ir import DTypeLike
from pcp.ir.types import dtype_of

Array = np.ndarray[Any, Any]
Key = int | np.random.Generator | Array
Initializer = Callable[..., Array]
"""Of (key, shape, dtype="f32")."""

Axes = int | Sequence[int]

DEVIATION_WITHIN_2 = 0.87962566103423978
"""Standard deviation of a normal distribution that is cut off at -2 and 2."""


class InvalidInitializer(PCPError):
    """A shape, a key or a setting that an initialiser cannot work with."""


def generator_of(key: Key) -> np.random.Generator:
    """The generator that a key means.

    Raises:
        InvalidInitializer: it is no key.
    """
    if isinstance(key, np.random.Generator):
        return key
    if isinstance(key, int | np.integer) and not isinstance(key, bool) and key >= 0:
        return np.random.Generator(np.random.Philox(int(key)))
    words = getattr(key, "dtype", None) == "uint32" and getattr(key, "shape", None) == (2,)
    if words:
        return np.random.Generator(np.random.Philox(np.asarray(key).tolist()))
    raise InvalidInitializer(
        f"the key is {key!r:.60}; expected a seed of at least 0, a generator as np.random.default_rng(0), or "
        "pcp.random.key(0)"
    )


def _initializer(draw: Callable[[np.random.Generator, tuple[int, ...]], Array]) -> Initializer:
    def init(key: Key, shape: Sequence[int], dtype: DTypeLike = "f32") -> Array:
        return draw(generator_of(key), tuple(shape)).astype(dtype_of(dtype).numpy)

    return init


def zeros(_key: Key, shape: Sequence[int], dtype: DTypeLike = "f32") -> Array:
    """Zeros."""
    return np.zeros(tuple(shape), dtype_of(dtype).numpy)


def ones(_key: Key, shape: Sequence[int], dtype: DTypeLike = "f32") -> Array:
    """Ones."""
    return np.ones(tuple(shape), dtype_of(dtype).numpy)


def constant(value: float) -> Initializer:
    """One number everywhere."""
    return _initializer(lambda _, shape: np.full(shape, value))


def uniform(scale: float = 1e-2) -> Initializer:
    """Evenly distributed from 0 to `scale`."""
    return _initializer(lambda rng, shape: rng.random(shape) * scale)


def normal(stddev: float = 1e-2) -> Initializer:
    """Normally distributed around 0."""
    return _initializer(lambda rng, shape: rng.standard_normal(shape) * stddev)


def truncated_normal(stddev: float = 1e-2, lower: float = -2.0, upper: float = 2.0) -> Initializer:
    """Normally distributed around 0, under the condition that lower < x / stddev < upper; its own deviation is smaller.

    Raises:
        InvalidInitializer: less than a thousandth of the distribution lies between the limits.
    """
    within = 0.5 * (math.erf(upper / math.sqrt(2)) - math.erf(lower / math.sqrt(2)))
    if not within >= 1e-3:
        raise InvalidInitializer(
            f"the limits are {lower} and {upper}, with {within:.1g} of a normal distribution between them; expected 0.001 "
            "at least"
        )

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        flat = rng.standard_normal(math.prod(shape))
        outside = np.flatnonzero((flat <= lower) | (flat >= upper))
        while outside.size:
            again = rng.standard_normal(outside.size)
            flat[outside] = again
            outside = outside[(again <= lower) | (again >= upper)]
        return flat.reshape(shape) * stddev

    return _initializer(draw)


def variance_scaling(
    scale: float, mode: str, distribution: str, in_axis: Axes = -2, out_axis: Axes = -1
) -> Initializer:
    """Of variance scale / n, where n is the number of inputs or outputs of a weight, or the mean of both.

    Arguments:
        scale: a factor.
        mode: `"fan_in"`, `"fan_out"`, `"fan_avg"` or `"fan_geo_avg"`.
        distribution: `"truncated_normal"`, `"normal"` or `"uniform"`.
        in_axis, out_axis: of the weight; all other axes are those of a window, as of a convolution.

    Raises:
        InvalidInitializer: a word is none of these; when it is called, if the weight has no such axes.
    """
    modes: dict[str, Callable[[float, float], float]] = {
        "fan_in": lambda n, _: n,
        "fan_out": lambda _, n: n,
        "fan_avg": lambda n, m: (n + m) / 2,
        "fan_geo_avg": lambda n, m: math.sqrt(n * m),
    }
    drawn = {
        "normal": normal(1.0),
        "truncated_normal": truncated_normal(1 / DEVIATION_WITHIN_2),
        "uniform": _initializer(lambda rng, shape: rng.uniform(-math.sqrt(3), math.sqrt(3), shape)),
    }
    for setting, known in ((mode, modes), (distribution, drawn)):
        if setting not in known:
            raise InvalidInitializer(f"{setting!r} was given; expected one of {', '.join(known)}")

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        inputs, outputs = (_size(shape, axis) for axis in (in_axis, out_axis))
        window = math.prod(shape) / (inputs * outputs) if math.prod(shape) else 1
        n = modes[mode](inputs * window, outputs * window)
        return drawn[distribution](rng, shape, "f64") * math.sqrt(scale / max(n, 1e-300))

    return _initializer(draw)


def _size(shape: tuple[int, ...], axes: Axes) -> int:
    taken = (axes,) if isinstance(axes, int) else tuple(axes)
    if not all(-len(shape) <= axis < len(shape) for axis in taken) or len(shape) < 2:
        raise InvalidInitializer(
            f"a weight of shape {shape} was given, whose inputs or outputs are axes {taken}; expected two axes at least: use "
            "zeros or normal for a vector"
        )
    return math.prod(shape[axis] for axis in taken)


def glorot_uniform(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """Source: Glorot and Bengio, "Understanding the difficulty of training deep feedforward neural networks", 2010."""
    return variance_scaling(1.0, "fan_avg", "uniform", in_axis, out_axis)


def glorot_normal(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """As `glorot_uniform`, of a normal distribution cut off at two deviations."""
    return variance_scaling(1.0, "fan_avg", "truncated_normal", in_axis, out_axis)


def he_uniform(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """Source: He et al., "Delving Deep into Rectifiers", 2015."""
    return variance_scaling(2.0, "fan_in", "uniform", in_axis, out_axis)


def he_normal(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """As `he_uniform`, of a normal distribution cut off at two deviations."""
    return variance_scaling(2.0, "fan_in", "truncated_normal", in_axis, out_axis)


def lecun_uniform(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """Source: LeCun et al., "Efficient BackProp", 1998."""
    return variance_scaling(1.0, "fan_in", "uniform", in_axis, out_axis)


def lecun_normal(in_axis: Axes = -2, out_axis: Axes = -1) -> Initializer:
    """As `lecun_uniform`, of a normal distribution cut off at two deviations."""
    return variance_scaling(1.0, "fan_in", "truncated_normal", in_axis, out_axis)


def orthogonal(scale: float = 1.0, column_axis: int = -1) -> Initializer:
    """Orthogonal columns, or rows if there are fewer, evenly distributed among all such; times `scale`.

    Raises, when called:
        InvalidInitializer: the shape has less than two axes.

    Source: Saxe, McClelland and Ganguli, "Exact solutions to the nonlinear dynamics of learning", 2014.
    """

    def draw(rng: np.random.Generator, shape: tuple[int, ...]) -> Array:
        columns = _size(shape, column_axis)
        if not math.prod(shape):
            return np.zeros(shape)
        rows = math.prod(shape) // columns
        q, r = np.linalg.qr(rng.standard_normal((max(rows, columns), min(rows, columns))))
        q = q * np.sign(np.diagonal(r))  # without it, not all would be equally probable
        whole = q if rows >= columns else q.T
        others = [size for axis, size in enumerate(shape) if axis != column_axis % len(shape)]
        made: Array = scale * np.moveaxis(whole.reshape([*others, columns]), -1, column_axis)
        return made

    return _initializer(draw)
