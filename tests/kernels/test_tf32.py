"""TF32 is a kernel of NVIDIA GPUs alone, said in the product's algorithm."""

import pcp
from pcp.kernels import kernel_named, replaced, sites_of

PROGRAM = pcp.trace(lambda a, b: a @ b, pcp.spec((32, 16), "f32"), pcp.spec((16, 8), "f32"))


def test_it_stands_on_nvidia_gpus_only() -> None:
    (there,), (here,) = sites_of(PROGRAM, "cuda"), sites_of(PROGRAM, "cpu")
    assert "product.tf32" in there.kernels
    assert "product.tf32" not in here.kernels


def test_it_rounds_the_operands_and_adds_in_float32() -> None:
    (site,) = sites_of(PROGRAM, "cuda")
    text = replaced(site.region, kernel_named("product.tf32")).text
    assert "lhs_precision_type = tf32, rhs_precision_type = tf32, accumulation_type = f32" in text
    assert not sites_of(pcp.Program.parse(text), "cuda")  # what says how it is computed is left alone
