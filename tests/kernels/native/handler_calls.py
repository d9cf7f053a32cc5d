"""Calls of every native handler as programs make them, and the same with something changed; run in a process of its own.

    python -m tests.kernels.native.handler_calls SEED COUNT

Each line is a call that was made, before it is made, so that the last one is what ended the process.
"""

import random
import sys
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import pcp
from pcp import kernels, nn
from pcp.ir import DType, TensorSpec
from pcp.ir.bindings import ir
from pcp.ir.toolkit.attributes import string_of
from pcp.ir.toolkit.tensor_types import spec_of
from pcp.ir.toolkit.walking import named_operations
from pcp.kernels.artifact import Native
from pcp.kernels.features import masked
from pcp.kernels.native import LIBRARIES
from pcp.kernels.native.building import build_here
from pcp.kernels.native.calling import target_of
from pcp.kernels.native.loading import _load
from pcp.kernels.products.kept import with_kept_panels
from pcp.kernels.residuals import with_residuals
from pcp.planning.paths.preparation import prepared
from pcp.rewrite.raising import raised
from tests.kernels.rows import batch_norm

HUGE = (-1, 0, 1, 2, 3, 7, 1 << 20, 1 << 31, (1 << 31) - 1, 1 << 40, (1 << 62) + 1, (1 << 63) - 1, -(1 << 63))
TYPES = (DType.f32, DType.bf16, DType.i32, DType.i8, DType.u8, DType.f64, DType.bool)
Numbers = float | int | tuple[int, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A call of a handler: what it takes, makes, and is told."""

    handler: str
    takes: tuple[TensorSpec, ...]
    makes: tuple[TensorSpec, ...]
    attributes: tuple[tuple[str, Numbers], ...]

    def __str__(self) -> str:
        return f"{self.handler}({', '.join(map(str, self.takes))}) -> {', '.join(map(str, self.makes))} {dict(self.attributes)}"

    def run(self, numbers: np.random.Generator) -> str:
        """What it says; empty if it takes it."""
        import jax

        library = next(each for each in LIBRARIES.values() if self.handler in each.handlers)
        target = target_of(self.handler, build_here(library.name).digest)
        _load(target)
        arrays = [_array(spec, numbers) for spec in self.takes]
        told = {
            name: np.array(value, np.int64)
            if isinstance(value, tuple)
            else np.float32(value)
            if isinstance(value, float)
            else np.int64(value)
            for name, value in self.attributes
        }
        with jax.enable_x64(True):
            results = [jax.ShapeDtypeStruct(spec.shape, spec.dtype.numpy) for spec in self.makes]
            try:
                call = jax.ffi.ffi_call(target, results)
                jax.block_until_ready(jax.jit(lambda *x: call(*x, **told))(*arrays))
            except Exception as refused:
                return str(refused).splitlines()[0]
        return ""


def _array(spec: TensorSpec, numbers: np.random.Generator) -> Any:
    made = numbers.normal(size=spec.shape) * 3
    if spec.dtype is DType.f32 and numbers.random() < 0.2:
        made.flat[: 1 + made.size // 3] = numbers.choice([np.nan, np.inf, -np.inf, 1e38, 1e-45])
    with np.errstate(all="ignore"):
        return made.astype(spec.dtype.numpy)


def _programs() -> Iterator[pcp.Program]:
    def of(*shape: int) -> TensorSpec:
        return pcp.spec(shape, "f32")

    rows, vector = of(9, 37), of(37)
    yield pcp.value_and_grad(
        raised(pcp.trace(lambda x, s, b, g: (nn.layer_norm(x, s, b) * g).sum(), rows, vector, vector, rows))
    )
    yield pcp.trace(lambda x, r, s: (x + r, nn.rms_norm(x + r, s)), rows, rows, vector)
    yield pcp.value_and_grad(
        raised(
            pcp.trace(lambda x, s, b, g: (nn.relu(batch_norm(x, s, b)) * g).sum(), rows, vector, vector, rows)
        )
    )
    yield pcp.value_and_grad(
        raised(
            pcp.trace(
                lambda x: (pcp.reduce_window(x, "max", (1, 3, 2, 1), (1, 2, 1, 1), "SAME") ** 2).sum(),
                of(2, 9, 7, 18),
            )
        )
    )
    yield pcp.value_and_grad(
        raised(pcp.trace(lambda x, b, g: (nn.gelu(x + b) * g).sum(), rows, vector, rows))
    )
    yield pcp.value_and_grad(
        raised(pcp.trace(lambda x, u, g: (nn.silu(x) * u * g).sum(), rows, rows, rows)), wrt=(0, 1)
    )
    yield pcp.trace(lambda x, k: nn.dropout(x, k, 0.3), rows, pcp.spec((2,), "u32"))
    heads = of(2, 40, 4, 16)
    for window in (None, 7):
        yield pcp.value_and_grad(
            raised(
                pcp.trace(
                    lambda q, k, v, g, w=window: (
                        nn.scaled_dot_product_attention(q, k, v, causal=True, window=w) * g
                    ).sum(),
                    *[heads] * 4,
                )
            ),
            wrt=(0, 1, 2),
        )
    yield pcp.value_and_grad(
        raised(
            pcp.trace(lambda x, t: nn.negative_log_likelihood(x, t).mean(), of(9, 51), pcp.spec((9,), "i32"))
        )
    )
    yield pcp.trace(lambda x, w: x @ w, of(9, 37), of(37, 33))
    yield pcp.trace(lambda x, w: x @ w, of(64, 150), of(150, 65))
    yield pcp.trace(lambda x, w: x @ w, pcp.spec((40, 37), "bf16"), pcp.spec((37, 33), "bf16"))
    yield pcp.trace(lambda x, w, b: nn.gelu(nn.linear(x, w, b)), of(40, 37), of(37, 33), of(33))
    yield pcp.trace(lambda r, x, w, b: r + nn.linear(x, w, b), of(40, 33), of(40, 37), of(37, 33), of(33))
    yield pcp.value_and_grad(
        pcp.trace(lambda x, k: pcp.conv2d(x, k, 2, "SAME").sum(), of(2, 9, 7, 16), of(3, 2, 16, 17)), (0, 1)
    )
    for stride in (1, 2):
        yield pcp.value_and_grad(
            pcp.trace(
                lambda x, k, s=stride: pcp.conv_general(
                    x, k, (s, s), [(1, 2), (2, 1)], 1, (1, 1), 18, ("NHWC", "HWIO", "NHWC")
                ).sum(),
                of(2, 9, 14, 18),
                of(3, 4, 1, 18),
            ),
            (0, 1),
        )
    for form in ("bf16", "int8", "int4"):
        weights = nn.quantise(np.ones((9, 64), np.float32), form)
        for count in (2, 11):
            yield pcp.trace(nn.quantised_product, of(count, 64), weights)
    yield pcp.training_step(
        lambda w, x: (w["a"] * x).sum() + (w["b"] ** 2).sum(), pcp.optimizers.adamw(1e-3), {"a": of(33), "b": of(5, 7)}, of(33)
    )  # fmt: skip


def made_by_programs() -> dict[str, list[Call]]:
    """Calls of each handler as kernels make them."""
    found: dict[str, list[Call]] = {}
    with masked("amx_bf16"):  # with tiles some kernels are not offered
        for program in _programs():
            for site in kernels.sites_of(prepared(program), "cpu"):
                for kernel in map(kernels.kernel_named, site.kernels):
                    if not isinstance(kernel.artifact, Native):
                        continue
                    given = with_residuals(site, kernel, "cpu")
                    made = kernels.replaced(site.region, kernel) if given is None else given.candidate
                    kept = with_kept_panels(made, range(1, len(made.arguments)))
                    for call in (*_calls(made), *(_calls(kept) if kept is not made else ())):
                        if call not in found.setdefault(call.handler, []):
                            found[call.handler].append(call)
    handlers = {handler for library in LIBRARIES.values() for handler in library.handlers}
    for name in {
        f"{name}_x3" for name in found
    } & handlers:  # kernels by tiles call these, with the same arrays and attributes
        found[name] = [replace(call, handler=name) for call in found[name.removesuffix("_x3")]]
    return found


def _calls(program: pcp.Program) -> Iterator[Call]:
    module = program.module()
    for op in named_operations(module.operation, "stablehlo.custom_call"):
        name = string_of(op.attributes["call_target_name"])
        if not name.startswith("pcp."):
            continue
        told = ir.DictAttr(op.attributes["backend_config"])
        attributes = tuple((told[i].name, _number(told[i].attr)) for i in range(len(told)))
        yield Call(
            name.partition("@")[0].removeprefix("pcp."),
            tuple(spec_of(each.type) for each in op.operands),
            tuple(spec_of(each.type) for each in op.results),
            attributes,
        )


def _number(attribute: ir.Attribute) -> Numbers:
    if isinstance(attribute, ir.DenseI64ArrayAttr):
        return tuple(attribute)
    if isinstance(attribute, ir.FloatAttr):
        return float(attribute.value)
    return int(ir.IntegerAttr(attribute).value)


def changed(call: Call, draw: random.Random) -> Call:
    """The same call, one or more things of it changed."""
    changes: list[Callable[[Call, random.Random], Call]] = [
        _array_changed,
        _attribute_changed,
        _count_changed,
    ]
    for _ in range(draw.choice((1, 1, 2, 3))):
        call = draw.choices(changes, (4, 4, 1))[0](call, draw)
    return call


def _array_changed(call: Call, draw: random.Random) -> Call:
    part = draw.choice([name for name in ("takes", "makes") if getattr(call, name)] or ["takes"])
    specs = list(getattr(call, part))
    if not specs:
        return call
    which = draw.randrange(len(specs))
    shape, dtype = list(specs[which].shape), specs[which].dtype
    how = draw.randrange(5)
    if how == 0:
        dtype = draw.choice(TYPES)
    elif how == 1:
        shape.insert(draw.randint(0, len(shape)), draw.choice((0, 1, 2)))
    elif shape and how == 2:
        del shape[draw.randrange(len(shape))]
    elif shape:
        axis = draw.randrange(len(shape))
        shape[axis] = max(0, draw.choice((0, 1, shape[axis] - 1, shape[axis] + 1, 2 * shape[axis], 5)))
    specs[which] = TensorSpec(tuple(shape), dtype)
    return replace(call, **{part: tuple(specs)})


def _attribute_changed(call: Call, draw: random.Random) -> Call:
    if not call.attributes:
        return call
    which = draw.randrange(len(call.attributes))
    name, value = call.attributes[which]
    if isinstance(value, float):
        value = draw.choice((0.0, -1.0, float("nan"), float("inf"), 1e30))
    elif isinstance(value, int):
        value = draw.choice(HUGE)
    else:
        numbers = list(value)
        how = draw.randrange(6)
        if how == 0 or not numbers:
            numbers.insert(draw.randint(0, len(numbers)), draw.choice(HUGE))
        elif how == 1:
            del numbers[draw.randrange(len(numbers))]
        else:
            at = draw.randrange(len(numbers))
            numbers[at] = draw.choice((*HUGE, min(numbers[at] + 1, max(HUGE)), max(0, numbers[at] - 1)))
        value = tuple(numbers)
    attributes = list(call.attributes)
    attributes[which] = (name, value)
    return replace(call, attributes=tuple(attributes))


def _count_changed(call: Call, draw: random.Random) -> Call:
    part = draw.choice(("takes", "makes"))
    specs = list(getattr(call, part))
    if specs and draw.random() < 0.5:
        del specs[draw.randrange(len(specs))]
    else:
        specs.append(draw.choice(specs or [TensorSpec((3,), DType.f32)]))
    return replace(call, **{part: tuple(specs)}) if specs or part == "takes" else call


def main(given: Sequence[str]) -> None:
    """Make the calls of a seed."""
    seed, count = map(int, given)
    draw, numbers = random.Random(seed), np.random.default_rng(seed)
    made = made_by_programs()
    print("handlers", *sorted(made), flush=True)
    for calls in made.values():
        for call in calls:
            print("as made", call, flush=True)
            said = call.run(numbers)
            assert not said, said
    handlers = sorted(made)
    for _ in range(count):
        call = changed(draw.choice(made[draw.choice(handlers)]), draw)
        print("changed", call, flush=True)
        print("said", call.run(numbers), flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
