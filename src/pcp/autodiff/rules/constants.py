"""Operations whose derivative is zero by definition: steps, comparisons, integers, bits, random numbers and constants."""

from pcp.autodiff.rule import register_rules

STEPS = ("floor", "ceil", "round_nearest_even", "round_nearest_afz", "bitcast_convert", "chlo.next_after")
TRUTHS = ("compare", "is_finite", "chlo.is_inf", "chlo.is_pos_inf", "chlo.is_neg_inf")
INTEGERS = (
    "and", "or", "xor", "not", "shift_left", "shift_right_arithmetic", "shift_right_logical", "popcnt",
    "count_leading_zeros", "chlo.mulhi",
)  # fmt: skip
WITHOUT_OPERANDS = (
    "constant", "iota", "partition_id", "replica_id", "rng", "rng_bit_generator", "get_dimension_size", "chlo.constant",
    "chlo.constant_like",
)  # fmt: skip
TOKENS = ("after_all", "infeed", "outfeed", "return")
BROADCASTING = (
    "and", "compare", "next_after", "or", "shift_left", "shift_right_arithmetic", "shift_right_logical", "xor",
)  # fmt: skip

register_rules(dict.fromkeys((*STEPS, *TRUTHS, *INTEGERS, *WITHOUT_OPERANDS, *TOKENS)))
register_rules(dict.fromkeys(f"chlo.broadcast_{name}" for name in BROADCASTING))
