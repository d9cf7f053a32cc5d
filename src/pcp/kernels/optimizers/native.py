"""AdamW over all parameters of a training step as one call: every element is read and written once, in place where the program
gives its state up."""

from pcp.ir import DType
from pcp.ir.bindings import ir
from pcp.kernels.artifact import Native
from pcp.kernels.groups import Part, parts_of
from pcp.kernels.kernel import Kernel
from pcp.kernels.named import Named, is_named
from pcp.kernels.native import LIBRARIES, native_call
from pcp.kernels.registry import Family, register_family, register_kernel
from pcp.ops.movement import full, reshape
from pcp.ops.movement.joining import concatenate
from pcp.rewrite.terms import Pattern, Term, apply, scalar, value
from pcp.tensor import Tensor

_LIBRARY = LIBRARIES["optimizers"]
_ARRAYS = ("parameter", "gradient", "first", "second")
_COEFFICIENTS = {
    "scale": 1.0, "keep1": 0.0, "new1": 0.0, "keep2": 0.0, "new2": 0.0, "correction1": 1.0, "correction2": 1.0, "epsilon": 0.0,
    "decay": 0.0, "rate": 0.0,
}  # fmt: skip
"""In the order of the handler, and what stands for one that a form does not have."""


_RANGES = {
    "first": (-1.0, 1.0), "second": (0.0, 1.0), "scale": (0.0, 1.0), "keep1": (0.0, 1.0), "new1": (0.0, 1.0),
    "keep2": (0.0, 1.0), "new2": (0.0, 1.0), "correction1": (0.1, 1.0), "correction2": (1e-3, 1.0), "epsilon": (1e-8, 1e-6),
    "decay": (0.0, 0.1), "rate": (1e-5, 1e-2),
}  # fmt: skip
"""Second moments are means of squares, coefficients parts of one; corrections are 1 - b^t, of b from 0 to 0.999."""


def _update(clipped: bool, decayed: bool) -> tuple[Term, ...]:
    """m' = b1 m + c1 g, v' = b2 v + c2 g^2, p' = p - rate ((m' / k1) / (sqrt(v' / k2) + epsilon) + decay p)."""
    p, g = value("parameter"), value("gradient")
    if clipped:
        g = g * scalar("scale")
    m = scalar("keep1") * value("first") + scalar("new1") * g
    v = scalar("keep2") * value("second") + scalar("new2") * (g * g)
    root = apply("sqrt", v / scalar("correction2"))
    direction = (m / scalar("correction1")) / (root + scalar("epsilon"))
    if decayed:
        direction = direction + scalar("decay") * p
    return m, v, p - scalar("rate") * direction


ADAMW = Pattern(
    "pcp.adamw",
    {
        "clipped and decayed": _update(clipped=True, decayed=True),
        "clipped": _update(clipped=True, decayed=False),
        "decayed": _update(clipped=False, decayed=True),
        "plain": _update(clipped=False, decayed=False),
    },
    joins=True,
)
register_family(
    Family(
        "adamw",
        "moments and parameters of a training step after an update by AdamW, all arrays together",
        is_named(ADAMW.name),
        pattern=ADAMW,
        ranges=_RANGES,
    )
)


def _applies(op: ir.Operation) -> bool:
    return Named.of(op).is_f32


def _coefficients(part: Part) -> tuple[Tensor | None, ...]:
    return tuple(part.inputs.get(name) for name in _COEFFICIENTS)


def _vector(coefficients: tuple[Tensor | None, ...]) -> Tensor:
    pairs = zip(coefficients, _COEFFICIENTS.values(), strict=True)
    return concatenate(
        [full((1,), usual, DType.f32) if each is None else reshape(each, (1,)) for each, usual in pairs], 0
    )


def _build(op: ir.Operation) -> list[Tensor]:
    parts = parts_of(op)
    kinds: list[tuple[Tensor | None, ...]] = []
    known: dict[tuple[object, ...], int] = {}
    own = []
    for part in parts:
        values = _coefficients(part)
        same = tuple(None if each is None else each.value for each in values)
        if same not in known:
            known[same] = len(kinds)
            kinds.append(values)
        own.append(known[same])
    arrays = [part.inputs[name] for part in parts for name in _ARRAYS]
    places = {"parameter": 0, "first": 1, "second": 2}
    results = native_call(
        _LIBRARY,
        "adamw",
        (*arrays, *map(_vector, kinds)),
        [part.inputs[name].spec for part in parts for name in places],
        {"coefficients": own},
        in_place={
            len(_ARRAYS) * i + _ARRAYS.index(name): len(places) * i + place
            for i in range(len(parts))
            for name, place in places.items()
        },
    )
    # The pattern's results are moments first.
    return [results[len(places) * i + k] for i in range(len(parts)) for k in (1, 2, 0)]


register_kernel(
    Kernel(
        "adamw.native",
        "every element of parameters and moments is read and written once, in place",
        _applies,
        Native(_LIBRARY, _build),
        nonfinite="exact",
    )
)
