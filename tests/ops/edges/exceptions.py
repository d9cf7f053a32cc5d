"""What is not compared with NumPy at the edges, each with its reason."""

_OVERFLOW = "what is between overflows in the type, and not in NumPy's wider one"
_WHOLE = "LAPACK makes the whole matrix NaN, or meets the NaN in another order"
_ORDERED = "the row of the table has to be in order"

DIFFERENT: dict[tuple[str, str], str] = {
    ("cumprod", "extreme"): _OVERFLOW,
    ("product", "extreme"): _OVERFLOW,
    ("prod", "extreme"): _OVERFLOW,
    ("argsort", "nan"): "descending, NaN comes first here and last in the reference",
    ("top_k", "nan"): "NaN counts as largest here, and comes last in the reference",
    ("cholesky", "nan"): _WHOLE,
    ("cholesky", "infinite"): _WHOLE,
    ("cholesky_solve", "nan"): _WHOLE,
    ("triangular_solve", "nan"): _WHOLE,
    ("triangular_solve", "infinite"): _WHOLE,
    (
        "triangular_solve",
        "extreme",
    ): "XLA divides rows by the diagonal first, which may leave what is too small to keep",
    ("searchsorted", "nan"): _ORDERED,
    ("searchsorted", "infinite"): _ORDERED,
    ("searchsorted", "extreme"): _ORDERED,
    ("convert", "nan"): "C, and so NumPy, leaves it open which integer NaN becomes; here it is 0, as in JAX",
    (
        "convert",
        "infinite",
    ): "C leaves open what becomes of a float beyond the integers; here it is the nearest integer",
    ("digamma", "extreme"): "at 0, a pole, it is NaN here and in JAX, and an infinity in SciPy",
    (
        "divide",
        "extreme",
    ): "XLA multiplies by the inverse of what is broadcast, which may be too small to keep",
    ("floor_divide", "extreme"): "as of divide",
    ("dot_general", "extreme"): _OVERFLOW,
    ("einsum", "extreme"): _OVERFLOW,
    ("inner", "extreme"): _OVERFLOW,
    ("matmul", "extreme"): _OVERFLOW,
    ("tensordot", "extreme"): _OVERFLOW,
    ("norm", "extreme"): _OVERFLOW,
    ("std", "extreme"): _OVERFLOW,
    ("var", "extreme"): _OVERFLOW,
    (
        "linspace",
        "infinite",
    ): "one number from an infinity is that here, and in NumPy NaN, 0 of an infinite step",
    ("nan_to_num", "infinite"): "the reference works in a wider type, whose largest number is another",
    ("power", "extreme"): "XLA takes exponents of integers for signed, and leaves open what overflows",
    ("quantile", "infinite"): "between an infinity and a number lies the infinity here, and NaN in NumPy",
    (
        "convert",
        "extreme",
    ): "C leaves open what becomes of a float beyond the integers; here it is the nearest integer",
}
"""(operation, filling) -> reason."""

ONE_SHAPE = {
    "dynamic_slice", "dynamic_update_slice", "full", "linspace", "median", "quantile", "slice", "take",
    "top_k", "index_update", "triangular_solve",
}  # fmt: skip
"""Operations whose rows name places or sizes: they are tried on the shapes of their rows only."""
