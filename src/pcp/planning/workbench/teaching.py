"""What a task says to whoever writes a kernel: how, by an example, and a template to be completed."""

from pcp.ir import TensorSpec
from pcp.planning.workbench.task import Task

LONGEST_REGION = 4000
"""Characters of a region's text that the README repeats."""
_JAX = '''"""{about}"""

import jax
import jax.numpy as jnp
from jax import lax


def kernel({names}):
    """{signature}

    It is traced by `jax.jit` once, for these shapes: look at shapes as you like, but not at numbers.
    """
    raise NotImplementedError("write the kernel: README.md shows how")
'''
_PALLAS = '''"""{about}"""

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl


def kernel({names}, interpret):
    """{signature}

    `interpret` is true on a processor: hand it to `pl.pallas_call`. It is traced once, for these shapes.
    """
    raise NotImplementedError("write the kernel: README.md shows how")
'''
_CPP = """// {about}
//
// {signature}
// Arrays are dense, row by row. Start no thread that outlives the call.

#include <cmath>
#include <cstdint>

#include "xla/ffi/api/ffi.h"

namespace ffi = xla::ffi;

static ffi::Error kernel({parameters}) {{
  return ffi::Error::Internal("write the kernel: README.md shows how");
}}

XLA_FFI_DEFINE_HANDLER_SYMBOL(pcp_kernel, kernel,
                              ffi::Ffi::Bind()
{bindings});
"""
_CUDA = """// {about}
//
// {signature}
// Arrays are dense, row by row. Nothing but [launch] in kernel.toml says how many threads there are.

extern "C" __global__ void kernel({parameters}) {{
}}
"""
_TRITON = '''"""{about}"""

import triton
import triton.language as tl


@triton.jit
def kernel({pointers}, BLOCK: tl.constexpr):
    """{signature}

    Parameters are pointers to the arrays, dense, row by row, then to the results; and constants, which `config` gives values.
    """
    tl.static_assert(False, "write the kernel: README.md shows how")


grid = (1,)  # programs; or a function of the constants, as lambda meta: (triton.cdiv(1000, meta["BLOCK"]),)
config = triton.Config({{"BLOCK": 256}}, num_warps=4, num_stages=3)
'''
_README = """# A kernel for {family}

Compute what `region.mlir` computes, faster than now, on {device} ({hardware}).

| | |
|---|---|
| takes | {takes} |
| returns | {returns} |
| largest error that is admitted | {tolerance:g} |
| error of the region itself | {plain_error} |
| time of the region itself | {plain_time} |
| region | `{digest}` |
{known}
The error of a result y is ||y - y64|| / ||y64||, where y64 is what the region computes in float64; no slice along any axis may
be wrong by more than ten times as much.

## The files

* `kernel.toml`: the manifest. Choose a name, and say what the kernel does to numbers.
* `{file}`: the kernel, to be written.
* `region.mlir`: what it computes, as StableHLO. Composites call functions below, which say what they are.
* `pcp_task/inputs_N.npz`, `pcp_task/expected_N.npz`: inputs, and what they come to in float64; arrays have the names of the
  region's arguments and results. Narrow floats stand there as float32.
* `pcp_task/task.json`: all of the above for programs, with every time that was measured.

## How to write it

{lesson}

## How to check it

```console
pcp kernels verify .{flag}
pcp kernels add .{flag}
```

`verify` says whether the kernel is right and how fast it is. `add` does the same, and keeps the kernel if it is admitted, so
that plans with a tolerance may choose it where they meet this very region. A kernel is refused if

* it does not compile, or takes or returns other shapes or types;
* it differs from call to call, or returns what belongs to an earlier call;
* it is wrong on skewed, large, masked or repeated operands, or hides NaN;
* its error is larger than it claims;
* it is not surely faster: it must take less than 0.98 of the region's own time, in turn, in the same process.

The message says which, with numbers; the exit code is 3. {trust}

```mlir
{region}
```
"""
_LESSONS = {
    "jax": """\
Write `kernel` in `kernel.py`. It takes the arrays above, in order, and returns one array, or a tuple of them. For a softmax
of rows that looks like this:

```python
def kernel(x):
    weights = jnp.exp((x - x.max(-1, keepdims=True)).astype(jnp.bfloat16)).astype(jnp.float32)
    return weights / weights.sum(-1, keepdims=True)
```

What `jax.jit` makes of it is kept as StableHLO, and that is what plans run: callbacks and custom calls are refused. Faster is
what moves less memory, computes in fewer bits where the tolerance allows, or has another order of loops. Products of bfloat16
with `preferred_element_type=jnp.float32` often are.""",
    "pallas": """\
Write `kernel` in `kernel.py`. It takes the arrays above, in order, and returns one array, or a tuple of them. For a sum
of two arrays that looks like this:

```python
def body(x, y, out):
    out[...] = x[...] + y[...]

def kernel(x, y, interpret):
    shape = jax.ShapeDtypeStruct(x.shape, x.dtype)
    return pl.pallas_call(body, out_shape=shape, grid=(), interpret=interpret)(x, y)
```

On a processor (`device = "cpu"`) Pallas is interpreted: what it does becomes plain StableHLO, by which it can be tested but is
seldom fast. For a GPU (`device = "cuda"`) it is compiled to machine code, so `pcp kernels` wants `--allow-native` then.""",
    "cpp": """\
Write the handler `pcp_kernel` in `kernel.cc`, by XLA's foreign function interface. It is built with `-O3` and the vector
units of this processor. For a sum of two arrays that looks like this:

```cpp
static ffi::Error kernel(ffi::Buffer<ffi::F32> x, ffi::Buffer<ffi::F32> y, ffi::ResultBuffer<ffi::F32> out) {
  const float *a = x.typed_data(), *b = y.typed_data();
  float *c = out->typed_data();
  for (int64_t i = 0; i < static_cast<int64_t>(x.element_count()); ++i) c[i] = a[i] + b[i];
  return ffi::Error::Success();
}
```

Write every element of every result: the memory holds whatever was there before. Do not write to operands, nor keep anything
between calls.""",
    "triton": """\
Write `kernel` in `kernel.py`, in Triton's language, and below it `grid`, how many programs there are, and `config`, the block
sizes and other constants. It takes pointers to the arrays above, then to the results. For a sum of two arrays of 160000 numbers
that looks like this:

```python
@triton.jit
def kernel(x, y, out, SIZE: tl.constexpr, BLOCK: tl.constexpr):
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = i < SIZE
    tl.store(out + i, tl.load(x + i, inside) + tl.load(y + i, inside), inside)

grid = lambda meta: (triton.cdiv(meta["SIZE"], meta["BLOCK"]),)
config = triton.Config({"SIZE": 160000, "BLOCK": 256}, num_warps=4, num_stages=3)
```

That is what `kernel[grid](x, y, out, SIZE=160000, BLOCK=256, num_warps=4, num_stages=3)` would launch. Sizes and strides are
constants; `@triton.autotune` is not taken: choose, and measure with `verify`. Triton compiles it once, and PTX is kept: for
`capability = 80` in `kernel.toml` it runs on that GPU and all later ones; 86, 89 and 90 may be faster there, and 90 runs on no
other. Write every element of every result: the memory holds whatever was there before. Do not write to operands.""",
    "cuda": """\
Write the kernel in `kernel.cu`, and in `kernel.toml`, below `[launch]`, how many blocks of how many threads it is launched
with. It takes pointers to the arrays above, then to the results. For a sum of two arrays of 160000 numbers, with
`grid = [625, 1, 1]`, it looks like this:

```cpp
extern "C" __global__ void kernel(const float* x, const float* y, float* out) {
  int i = blockIdx.x * blockDim.x + threadIdx.x;
  if (i < 160000) out[i] = x[i] + y[i];
}
```

NVRTC compiles it, or nvcc where that is not here, without headers of the host. Write every element of every result: the
memory holds whatever was there before. Do not write to operands.""",
}
TEMPLATES = tuple(_LESSONS)
"""Languages that there are templates for."""
FILES = {"cpp": "kernel.cc", "cuda": "kernel.cu", "stablehlo": "kernel.mlir"}
"""The file of a kernel that is not python."""
_ON_A_GPU = (
    "runs as you, on a GPU that has no protection between programs of one process, so both commands want\n"
    "`--allow-native`: give it for code that you have read."
)
_TRUST = {
    "cpp": "C++ runs as you, with all that you may do, so both commands want `--allow-native`: give it for code that you have\n"
    "read.",
    "cuda": f"CUDA {_ON_A_GPU}",
    "triton": f"Triton's kernels {_ON_A_GPU.replace('runs', 'run', 1)}",
}


def manifest(task: Task, language: str, about: str = "One sentence about how it computes.") -> str:
    """The manifest of a kernel for a task, with what its lines mean.

    Arguments:
        language: that the kernel is in.
        about: one sentence for people.
    """
    file = FILES.get(language, "kernel.py")
    device = {"cuda": "cuda", "triton": "cuda", "pallas": task.target.platform}.get(language)
    lines = [
        (f'name = "{task.default_name}"', "the family, a dot, and what is particular about it"),
        ('effect = "lowers precision"', 'or "reassociating": as exact as another order of sums; or "exact": the same bits'),
        (f'about = "{about}"', ""),
        (f'entry = "{file}{"" if language == "stablehlo" else ":kernel"}"', ""),
        (f'language = "{language}"', ""),
        *([(f'device = "{device}"', "")] if device else []),
        *([("capability = 80", "")] if language == "triton" else []),
        ('region = "region.mlir"', "what it computes; leave it"),
        (f"tolerance = {task.tolerance!r}", "the error that it claims not to exceed"),
        ('nonfinite = "nan"', 'an infinity may become NaN; "exact": nothing may; "spreads": NaN may stand anywhere'),
        ("version = 1", "raise it with every change of what is computed"),
    ]  # fmt: skip
    if language == "cuda":
        lines += [
            ("\n[launch]", ""),
            ("grid = [1, 1, 1]", "blocks"),
            ("block = [256, 1, 1]", "threads of a block"),
            ("shared_bytes = 0", "that they share, beside what the source declares"),
        ]
    return "".join(f"{line:28} # {words}\n" if words else f"{line}\n" for line, words in lines)


def templates(task: Task, language: str) -> dict[str, str]:
    """The manifest and the kernel to be completed, by the names of their files."""
    written = {"cpp": _cpp, "cuda": _cuda}.get(language)
    text = {"pallas": _PALLAS, "triton": _TRITON}.get(language, _JAX)
    kernel = (
        written(task)
        if written is not None
        else text.format(
            about=_about(task),
            names=", ".join(_identifiers(task)),
            signature=_signature(task),
            pointers=", ".join(
                _identifiers(task) + [f"y{place}" for place in range(len(task.region.results))]
            ),
        )
    )
    return {"kernel.toml": manifest(task, language), FILES.get(language, "kernel.py"): kernel}


def readme(task: Task, language: str) -> str:
    """The page that stands beside a task."""
    text = task.region.text
    known = [f"| {row.path} | {row.ratio:.2f} of the region's own time |" for row in task.known[:8]]
    return _README.format(
        family=task.family,
        device=task.target.device,
        hardware=task.hardware,
        takes=_listed(task),
        returns=", ".join(str(entry.spec) for entry in task.region.results),
        tolerance=task.tolerance,
        plain_error="unknown" if task.plain.least_plain is None else f"{task.plain.least_plain:.2g}",
        plain_time=f"{task.plain_seconds * 1e3:.4g} ms",
        digest=task.region.digest,
        known="".join(f"{line}\n" for line in known),
        file=FILES.get(language, "kernel.py"),
        lesson=_LESSONS[language],
        flag=" --allow-native" if language in _TRUST else "",
        trust=_TRUST.get(
            language,
            "The file is executed in a separate process; docs/outside/kernels_from_outside.md says what that protects from.",
        ),
        region=text
        if len(text) <= LONGEST_REGION
        else f"{text[:LONGEST_REGION]}\n... and so on: see region.mlir",
    )


def _about(task: Task) -> str:
    return f"A kernel for {task.family}, region {task.region.digest[:12]}."


def _listed(task: Task) -> str:
    pairs = zip(_identifiers(task), task.region.arguments, strict=True)
    return ", ".join(f"{name} {entry.spec}" for name, entry in pairs)


def _signature(task: Task) -> str:
    returned = ", ".join(str(entry.spec) for entry in task.region.results)
    return f"Takes {_listed(task)}; returns {returned}."


def _identifiers(task: Task) -> list[str]:
    return [f"x{place}" for place in range(len(task.region.arguments))]


def _cpp(task: Task) -> str:
    taken = [_ffi(entry.spec) for entry in task.region.arguments]
    returned = [_ffi(entry.spec) for entry in task.region.results]
    parameters = [f"ffi::Buffer<{each}> {name}" for each, name in zip(taken, _identifiers(task), strict=True)]
    parameters += [f"ffi::ResultBuffer<{each}> y{place}" for place, each in enumerate(returned)]
    kinds = [*(("Arg", each) for each in taken), *(("Ret", each) for each in returned)]
    lines = [f"{' ' * 34}.{kind}<ffi::Buffer<{each}>>()" for kind, each in kinds]
    return _CPP.format(
        about=_about(task),
        signature=_signature(task),
        parameters=f",\n{' ' * 25}".join(parameters),
        bindings="\n".join(lines),
    )


def _ffi(spec: TensorSpec) -> str:
    """XLA's name for an element type."""
    name = str(spec.dtype)
    special = {"bool": "PRED", "bf16": "BF16"}
    kinds = {"i": "S", "u": "U", "f": "F", "c": "C"}
    return "ffi::" + special.get(name, f"{kinds.get(name[0], '')}{name[1:].upper()}")


def _cuda(task: Task) -> str:
    taken = [
        f"const {_c(entry.spec)}* {name}"
        for name, entry in zip(_identifiers(task), task.region.arguments, strict=True)
    ]
    returned = [f"{_c(entry.spec)}* y{place}" for place, entry in enumerate(task.region.results)]
    return _CUDA.format(
        about=_about(task), signature=_signature(task), parameters=", ".join([*taken, *returned])
    )


def _c(spec: TensorSpec) -> str:
    """The type of CUDA C++ for an element type; numbers that it has none for are bits."""
    known = {
        "f32": "float",
        "f64": "double",
        "bool": "bool",
        "i32": "int",
        "i64": "long long",
        "u8": "unsigned char",
    }
    return known.get(
        str(spec.dtype), {1: "char", 2: "unsigned short", 4: "unsigned"}.get(spec.dtype.itemsize, "double")
    )
