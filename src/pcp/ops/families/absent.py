"""Names of `jax.numpy` that `pcp` has not, and parameters that its functions have not: why, and what to write instead.

`tests/ops/families/test_names.py` holds this table against `jax.numpy`; `docs/reference/numpy_names.md` is made from it.
"""

_TYPES = "element types are named by strings"
_FILES = "files are NumPy's matter"
_PRINTING = "arrays are printed by NumPy"
_GRID = "a grid is known when a function is traced"
_KIND = "a kind of element types, of which no tensor is"

ABSENT: dict[str, tuple[str, str]] = {
    "ComplexWarning": ("nothing warns", "pcp.real(x)"),
    "apply_along_axis": ("a function of one slice is made one of many", "pcp.vmap(f)"),
    "apply_over_axes": ("a loop over axes is Python's", "for axis in axes: x = f(x, axis)"),
    "array_repr": (_PRINTING, "repr(x)"),
    "array_str": (_PRINTING, "str(x)"),
    "bool": (_TYPES, "'bool'"),
    "bool_": (_TYPES, "'bool'"),
    "c_": (_GRID, "pcp.column_stack([...])"),
    "can_cast": ("conversions are asked for, or follow one rule", "pcp.promote_types(a, b) == b"),
    "cdouble": (_TYPES, "pcp.complex128"),
    "character": (_KIND, "numpy.character"),
    "complex_": (_TYPES, "pcp.complex64"),
    "complexfloating": (_KIND, "pcp.iscomplexobj(x)"),
    "csingle": (_TYPES, "pcp.complex64"),
    "double": (_TYPES, "pcp.float64"),
    "dtype": ("element types are those of Tensors", "x.dtype, or numpy.dtype"),
    "einsum_path": ("operands are contracted from left to right", "pcp.einsum, or pcp.linalg.multi_dot of matrices"),
    "finfo": ("limits of element types are NumPy's", "numpy.finfo(numpy.float32), or ml_dtypes.finfo('bfloat16')"),
    "flexible": (_KIND, "numpy.flexible"),
    "float4_e2m1fn": (_TYPES, "'f4E2M1FN'"),
    "float6_e2m3fn": ("no operation takes this element type", "'f8E4M3FN'"),
    "float6_e3m2fn": ("no operation takes this element type", "'f8E5M2'"),
    "float8_e3m4": (_TYPES, "'f8E3M4'"),
    "float8_e4m3": (_TYPES, "'f8E4M3'"),
    "float8_e4m3b11fnuz": (_TYPES, "'f8E4M3B11FNUZ'"),
    "float8_e4m3fn": (_TYPES, "'f8E4M3FN'"),
    "float8_e4m3fnuz": (_TYPES, "'f8E4M3FNUZ'"),
    "float8_e5m2": (_TYPES, "'f8E5M2'"),
    "float8_e5m2fnuz": (_TYPES, "'f8E5M2FNUZ'"),
    "float8_e8m0fnu": (_TYPES, "'f8E8M0FNU'"),
    "float_": (_TYPES, "pcp.float32"),
    "floating": (_KIND, "pcp.isrealobj(x)"),
    "from_dlpack": ("arrays of other libraries are taken as they are", "pcp.asarray(x)"),
    "frombuffer": (_FILES, "pcp.asarray(numpy.frombuffer(...))"),
    "fromfile": (_FILES, "pcp.asarray(numpy.fromfile(...))"),
    "fromiter": (_FILES, "pcp.array(list(values))"),
    "frompyfunc": ("a program holds no Python", "a function of Tensors"),
    "fromstring": (_FILES, "pcp.asarray(numpy.fromstring(...))"),
    "generic": (_KIND, "numpy.generic"),
    "get_printoptions": (_PRINTING, "numpy.get_printoptions()"),
    "histogram2d": (
        "histograms are of one variable", "pcp.bincount(pcp.digitize(x, a) * n + pcp.digitize(y, b), length=m * n)",
    ),
    "histogramdd": ("histograms are of one variable", "pcp.bincount of the number of the cell, made by pcp.digitize"),
    "iinfo": ("limits of element types are NumPy's", "numpy.iinfo(numpy.int32)"),
    "inexact": (_KIND, "x.dtype.is_differentiable"),
    "int1": ("no operation takes this element type", "'i2'"),
    "int2": (_TYPES, "'i2'"),
    "int4": (_TYPES, "'i4'"),
    "int_": (_TYPES, "pcp.int32"),
    "integer": (_KIND, "x.dtype.is_integer"),
    "isdtype": ("kinds are said by the element type", "x.dtype.kind"),
    "issubdtype": ("kinds are said by the element type", "x.dtype.kind, x.dtype.is_float or x.dtype.is_integer"),
    "iterable": ("a question to Python", "numpy.iterable(x)"),
    "ix_": ("indices broadcast", "x[rows[:, None], columns]"),
    "load": ("pcp.load reads programs", "numpy.load(file)"),
    "mgrid": (_GRID, "numpy.mgrid[...], or pcp.indices(shape)"),
    "ndarray": ("a value of a program is a Tensor, one outside of it an Array", "pcp.Tensor, pcp.Array"),
    "number": (_KIND, "numpy.number"),
    "object_": (_KIND, "numpy.object_"),
    "ogrid": (_GRID, "numpy.ogrid[...], or pcp.indices(shape, sparse=True)"),
    "place": ("no tensor is written to", "pcp.where(mask, values, x), or x.at[mask].set(values)"),
    "polydiv": ("the length of the rest depends on values", "numpy.polydiv(u, v)"),
    "printoptions": (_PRINTING, "numpy.printoptions(...)"),
    "put": ("no tensor is written to", "x.ravel().at[places].set(values).reshape(x.shape)"),
    "r_": (_GRID, "pcp.concatenate([...])"),
    "save": (_FILES, "numpy.save(file, x)"),
    "savez": (_FILES, "numpy.savez(file, x=x)"),
    "set_printoptions": (_PRINTING, "numpy.set_printoptions(...)"),
    "signedinteger": (_KIND, "x.dtype.kind == 'signed'"),
    "single": (_TYPES, "pcp.float32"),
    "trace": ("pcp.trace makes a Program", "pcp.ops.trace(x), x.trace(), or pcp.linalg.trace(x)"),
    "trim_zeros": ("the length of the result depends on values", "x[n:m] with numbers, or pcp.where"),
    "ufunc": ("functions are plain functions", "pcp.add and others; reductions are functions of their own"),
    "uint": (_TYPES, "pcp.uint32"),
    "uint1": ("no operation takes this element type", "'u2'"),
    "uint2": (_TYPES, "'u2'"),
    "uint4": (_TYPES, "'u4'"),
    "unsignedinteger": (_KIND, "x.dtype.kind == 'unsigned'"),
    "vectorize": ("a function of one sample is made one of many", "pcp.vmap(f)"),
}  # fmt: skip
"""Each name with why it is absent, or means something else in `pcp`, and what to write instead."""

_SORTS = "sorts are stable"
_ONE_WAY = "there is one way to compute it"
_IN_PLACE = "no tensor is written to"
_EVERYWHERE = {
    "copy": "no tensor is written to, so none is copied",
    "device": "a plan has a device: pcp.plan(program, device)",
    "kind": _SORTS,
    "order": "tensors are in row-major order; fields of records are not sorted by",
    "out": _IN_PLACE,
    "out_sharding": "places are chosen by a plan",
    "overwrite_input": _IN_PLACE,
    "preferred_element_type": "convert the operands, or pcp.dot_general(..., dtype=)",
    "precision": "a plan chooses precisions within a tolerance",
}
"""Parameters that no function has."""

_WEIGHTED = "quantiles of weighted elements are not computed; pcp.repeat with known counts"
_ELEMENTWISE = "choose by pcp.where(mask, f(x), x)"
_OF: dict[str, dict[str, str]] = {
    "argsort": {"dtype": "places are i32; .astype"},
    "array": {"ndmin": "pcp.atleast_2d and others"},
    "clip": {"arr": "the operand comes first"},
    "delete": {"assume_unique_indices": _ONE_WAY},
    "digitize": {"method": _ONE_WAY},
    "einsum": {"_dot_general": "private", "optimize": "operands are contracted from left to right"},
    "fill_diagonal": {"inplace": _IN_PLACE},
    "fromfunction": {"dtype": "None is f32"},
    "gradient": {"edge_order": "None is 1"},
    "intersect1d": {"return_indices": "pcp.searchsorted finds them"},
    "isin": {"method": _ONE_WAY},
    "linalg.lstsq": {"numpy_resid": "squares that are left are returned as far as shapes say that there are any"},
    "linalg.matrix_rank": {"hermitian": _ONE_WAY},
    "linalg.pinv": {"rcond": "an old name of rtol"},
    "linalg.slogdet": {"method": _ONE_WAY},
    "linalg.svd": {"subset_by_index": "all are computed; slice them"},
    "linalg.tensorsolve": {"axes": "pcp.moveaxis before it"},
    "mask_indices": {"size": "the mask is known"},
    "nanpercentile": {"weights": _WEIGHTED},
    "nanquantile": {"weights": _WEIGHTED},
    "nanstd": {"mean": _ONE_WAY},
    "nanvar": {"mean": _ONE_WAY},
    "percentile": {"weights": _WEIGHTED},
    "polymul": {"trim_leading_zeros": "the length of the result would depend on values"},
    "polyfit": {
        "cov": "pcp.linalg.inv(m.T @ m) of m = pcp.vander(x, deg + 1)",
        "full": "pcp.linalg.lstsq(pcp.vander(x, deg + 1), y)",
    },
    "polyval": {"unroll": _ONE_WAY},
    "prod": {"promote_integers": "integers narrower than 32 bits become i32"},
    "put_along_axis": {"inplace": _IN_PLACE, "mode": "it says how old and new elements are joined"},
    "quantile": {"weights": _WEIGHTED},
    "ravel_multi_index": {"dtype": "of the places; .astype"},
    "repeat": {"total_repeat_length": "counts are known"},
    "roots": {"strip_zeros": "the length of the result would depend on values"},
    "searchsorted": {"method": _ONE_WAY},
    "std": {"mean": _ONE_WAY},
    "sum": {"promote_integers": "integers narrower than 32 bits become i32"},
    "take": {"indices_are_sorted": _ONE_WAY, "unique_indices": _ONE_WAY},
    "take_along_axis": {
        "fill_value": "pcp.where", "mode": "places beyond the axis are clamped",
        "wrap_negative_indices": "they count from the end",
    },
    "top_k": {"mode": "pcp.top_k(-x, k)", "sorted": "they are"},
    "unique": {"sorted": "they are"},
    "var": {"mean": _ONE_WAY},
    **{
        name: {"where": _ELEMENTWISE}
        for name in (
            "add", "bitwise_and", "bitwise_or", "bitwise_xor", "logaddexp", "logaddexp2", "logical_and", "logical_or",
            "logical_xor", "maximum", "minimum", "multiply", "negative", "subtract",
        )
    },
}  # fmt: skip
"""Parameters of functions by the name of the function, those of `pcp.linalg` with that in front."""


def instead_of(name: str) -> str | None:
    """What to write instead of a name that `pcp` has not, as a sentence; None where it is no name of `jax.numpy`."""
    if name not in ABSENT:
        return None
    reason, other = ABSENT[name]
    return f"{reason}; write {other}"


def reason_without(function: str, parameter: str) -> str | None:
    """Why a function has not a parameter, or has another default; None where the table does not say."""
    return _OF.get(function, {}).get(parameter, _EVERYWHERE.get(parameter))


def page() -> str:
    """The table as a page of the documentation."""
    names = "\n".join(
        f"| `{name}` | {reason} | `{other}` |" for name, (reason, other) in sorted(ABSENT.items())
    )
    every = "\n".join(f"| `{name}` | {reason} |" for name, reason in sorted(_EVERYWHERE.items()))
    of = "\n".join(
        f"| `{function}` | `{parameter}` | {reason} |"
        for function, parameters in sorted(_OF.items())
        for parameter, reason in sorted(parameters.items())
    )
    return _PAGE.format(names=names, every=every, of=of)


_PAGE = """# Names of NumPy and JAX

Where `pcp` has a name of `jax.numpy`, `jax.numpy.linalg` or `jax.numpy.fft`, it takes the same parameters with the same
defaults, but for those of the tables below; a test compares them all. Functions whose result has a size that depends on
values take `size=`, as in JAX. Integers become f32 where floating-point numbers are needed, and places are i32. Indices beyond
an axis are an error where they are known; in Tensors they are clamped when read, and dropped when written.

## Names that are not there

Asking for one of them raises an `AttributeError` that says what to write instead.

| name | why | instead |
|---|---|---|
{names}

## Parameters that no function has

| parameter | why |
|---|---|
{every}

## Parameters of single functions

| function | parameter | why |
|---|---|---|
{of}
"""
