"""A thin product for a GPU, in two languages: kernels from outside, as tests write them to folders."""

import hashlib
from pathlib import Path

import pcp
from pcp.kernels.candidate import Candidate, read_candidate

ROWS = 20000
THIN_IN_CUDA = f"""
extern "C" __global__ void thin(const float* a, const float* b, float* c) {{
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i >= {ROWS} * 8) return;
  int r = i / 8, j = i % 8;
  c[i] = a[3 * r] * b[j] + a[3 * r + 1] * b[8 + j] + a[3 * r + 2] * b[16 + j];
}}
"""
MANIFEST = """
name = "product.thin"
effect = "lowers precision"
about = "Thin."
entry = "kernel.cu:thin"
region = "region.mlir"
tolerance = 1e-5

[launch]
grid = [625, 1, 1]
block = [256, 1, 1]
"""
THIN_IN_TRITON = f"""
import triton
import triton.language as tl


@triton.jit
def thin(a, b, c, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < ROWS * 8
    r, j = i // 8, i % 8
    sums = tl.load(a + 3 * r, inside) * tl.load(b + j)
    for k in tl.static_range(1, 3):
        sums += tl.load(a + 3 * r + k, inside) * tl.load(b + 8 * k + j)
    tl.store(c + i, sums, inside)


grid = lambda meta: (triton.cdiv({ROWS} * 8, meta["BLOCK"]),)
config = triton.Config({{"ROWS": {ROWS}, "BLOCK": 256}}, num_warps=4)
"""
TRITON_MANIFEST = """
name = "product.thin_in_triton"
effect = "lowers precision"
about = "Thin."
entry = "kernel.py:thin"
language = "triton"
device = "cuda"
capability = 80
region = "region.mlir"
tolerance = 1e-5
"""


def digest_of(place: Path) -> str:
    """One of its own for every place, which stands for the content's."""
    return hashlib.sha256(str(place).encode()).hexdigest()


def folder(
    place: Path, file: str, source: str, manifest: str, region: pcp.Program | None = None
) -> Candidate:
    """A kernel in a folder below a place; for the thin product, unless another region is given."""
    content = place / "content"
    content.mkdir(parents=True)
    if region is None:
        region = pcp.trace(lambda x, y: x @ y, pcp.spec((ROWS, 3), "f32"), pcp.spec((3, 8), "f32"))
    for name, text in (("region.mlir", region.text), (file, source), ("kernel.toml", manifest)):
        (content / name).write_text(text)
    return read_candidate(content)


PRODUCT_IN_TRITON = """
import triton
import triton.language as tl


@triton.jit
def thin(x, y, out, SIZE: tl.constexpr, ROWS: tl.constexpr, INNER: tl.constexpr):
    i = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    j = tl.program_id(1) * ROWS + tl.arange(0, ROWS)
    k = tl.arange(0, INNER)
    sums = tl.zeros((ROWS, ROWS), tl.float32)
    for first in range(0, SIZE, INNER):
        left = tl.load(x + i[:, None] * SIZE + (first + k)[None, :])
        right = tl.load(y + (first + k)[:, None] * SIZE + j[None, :])
        sums = tl.dot(left, right, sums)
    tl.store(out + i[:, None] * SIZE + j[None, :], sums)


grid = lambda meta: (meta["SIZE"] // meta["ROWS"],) * 2
config = triton.Config({"SIZE": 1024, "ROWS": 128, "INNER": 64}, num_warps=8, num_stages=3)
"""
"""A product of 1024 x 1024 in bfloat16 to float32."""
WITH_DESCRIPTORS = PRODUCT_IN_TRITON.replace(
    "    sums = tl.zeros",
    """\
    of_x = tl.make_tensor_descriptor(x, [SIZE, SIZE], [SIZE, 1], [ROWS, INNER])
    of_y = tl.make_tensor_descriptor(y, [SIZE, SIZE], [SIZE, 1], [INNER, ROWS])
    sums = tl.zeros""",
).replace(
    """\
        left = tl.load(x + i[:, None] * SIZE + (first + k)[None, :])
        right = tl.load(y + (first + k)[:, None] * SIZE + j[None, :])
""",
    """\
        left = of_x.load([tl.program_id(0) * ROWS, first])
        right = of_y.load([first, tl.program_id(1) * ROWS])
""",
)
"""The same, read by the unit for tensors of compute capability 9.0."""
