"""Draws of operations on space: pooling, convolutions, resampling, padding."""

from typing import Any

import numpy as np
import torch.nn.functional as F
from tests.peers.from_torch.fuzz.drawing import Draw, Made, family


@family
def pooling(r: Draw) -> Made:
    n = r.pick(1, 2, 3)
    lead = r.pick((2, 2), (2,), (1, 1))
    shape = (*lead, *r.sizes(n, 4, 7))
    window, stride = r.integer(1, 3), r.pick(None, 1, 2, 3)
    padding, ceil = r.integer(0, window // 2), r.flag()
    if n > 1 and r.flag():
        window = tuple(r.integer(1, 3) for _ in range(n))
        padding = tuple(r.integer(0, w // 2) for w in window)
    dilation, places = r.integer(1, 2), r.flag()
    x = r.floats(*shape)
    name = r.pick("avg", "max", "lp", "adaptive_avg", "adaptive_max", "unpool")
    words = f"{name}_pool{n}d window={window} stride={stride} padding={padding} ceil={ceil}"
    match name:
        case "avg":
            options = {"count_include_pad": r.flag()}
            if n > 1 and r.flag():
                options["divisor_override"] = r.pick(1, 3, -2)
            return (
                f"{words} {options}",
                lambda x: getattr(F, f"avg_pool{n}d")(x, window, stride, padding, ceil, **options),
                x,
            )
        case "max":
            return (
                f"{words} dilation={dilation} indices={places}",
                lambda x: getattr(F, f"max_pool{n}d")(x, window, stride, padding, dilation, ceil, places),
                x,
            )
        case "lp":
            order = r.pick(1, 2, 3, 1.5)
            return (
                f"{words} {order}",
                lambda x: getattr(F, f"lp_pool{n}d")(x, order, window, stride, ceil),
                np.abs(x) + 0.1,
            )
        case "adaptive_avg" | "adaptive_max":
            sizes = tuple(r.integer(1, 5) for _ in range(n))
            options = {"return_indices": places} if name == "adaptive_max" else {}
            return (
                f"{name}_pool{n}d {sizes} {options}",
                lambda x: getattr(F, f"{name}_pool{n}d")(x, sizes, **options),
                x,
            )
    return (
        f"max_unpool{n}d {words}",
        lambda x: getattr(F, f"max_unpool{n}d")(*getattr(F, f"max_pool{n}d")(x, 2, return_indices=True), 2),
        r.normal(*shape),
    )


@family
def interpolation(r: Draw) -> Made:
    n = r.pick(1, 2, 3)
    modes = ["nearest", "nearest-exact", "area", {1: "linear", 2: "bilinear", 3: "trilinear"}[n]] + [
        "bicubic"
    ] * (n == 2)
    mode = r.pick(*modes)
    options: dict[str, Any] = {"mode": mode}
    if r.flag():
        options["size"] = tuple(r.integer(2, 9) for _ in range(n))
    else:
        factors = (0.35, 0.5, 0.6, 0.75, 1.0, 1.3, 1.5, 2.0, 2.7)
        options["scale_factor"] = tuple(r.pick(*factors) for _ in range(n)) if r.flag() else r.pick(*factors)
        if r.flag():
            options["recompute_scale_factor"] = r.flag()
    if "linear" in mode or mode == "bicubic":
        options["align_corners"] = r.flag()
        if n == 2 and r.flag():
            options["antialias"] = True
    return (
        f"interpolate {options}",
        lambda x: F.interpolate(x, **options),
        r.floats(*r.sizes(2, 1, 2), *r.sizes(n, 2, 7)),
    )


@family
def padding(r: Draw) -> Made:
    n = r.pick(1, 2, 3)
    mode = r.pick("constant", "reflect", "replicate", "circular")
    low = -1 if mode == "constant" else 0
    widths = tuple(r.integer(low, 2) for _ in range(2 * n))
    shape = (*r.pick((2, 2), (2,)), *r.sizes(n, 3, 5))
    if mode == "constant":
        value = r.pick(0, 1.5, float("-inf"))
        return f"pad {widths} {value}", lambda x: F.pad(x, widths, value=value), r.floats(*shape)
    return f"pad {widths} {mode}", lambda x: F.pad(x, widths, mode), r.floats(*shape)


@family
def convolution(r: Draw) -> Made:
    n = r.pick(1, 2, 3)
    groups = r.pick(1, 1, 2)
    options: dict[str, Any] = {"stride": r.integer(1, 3), "dilation": r.integer(1, 2), "groups": groups}
    padding = r.integer(0, 2)
    shape = (*r.pick((2,), ()), 2 * groups, *r.sizes(n, 4, 6))
    window = r.sizes(n, 1, 3)
    if r.flag():
        out = 3
        extra = r.integer(0, max(options["stride"], options["dilation"]) - 1)
        options |= {"padding": padding, "output_padding": extra}
        kernel = r.normal(2 * groups, out, *window)
        return (
            f"conv_transpose{n}d {options}",
            lambda x, k, b: getattr(F, f"conv_transpose{n}d")(x, k, b, **options),
            r.normal(*shape),
            kernel,
            r.normal(out * groups),
        )
    options["padding"] = r.pick(padding, "same" if options["stride"] == 1 else "valid")
    kernel = r.normal(3 * groups, 2, *window)
    return (
        f"conv{n}d {options}",
        lambda x, k, b: getattr(F, f"conv{n}d")(x, k, b, **options),
        r.normal(*shape),
        kernel,
        r.normal(3 * groups),
    )


@family
def images(r: Draw) -> Made:
    x = r.floats(*r.sizes(2, 1, 2), *r.sizes(2, 4, 6))
    options = {"dilation": r.integer(1, 2), "padding": r.integer(0, 1), "stride": r.integer(1, 2)}
    grid = 1.5 * r.normal(x.shape[0], 3, 2, 2)
    sampling = {
        "mode": r.pick("bilinear", "nearest", "bicubic"),
        "padding_mode": r.pick("zeros", "border", "reflection"),
        "align_corners": r.flag(),
    }
    corners = r.flag()
    size, window = (5, 6), r.sizes(2, 1, 3)
    folds = np.prod(
        [
            (s + 2 * options["padding"] - options["dilation"] * (w - 1) - 1) // options["stride"] + 1
            for s, w in zip(size, window, strict=True)
        ]
    )
    return r.pick(
        (f"grid_sample {sampling}", lambda x, g: F.grid_sample(x, g, **sampling), x, grid),
        (f"grid_sample {sampling}", lambda x, g: F.grid_sample(x, g, **sampling), x, grid),
        (
            f"affine_grid {corners}",
            lambda t: F.affine_grid(t, (2, 1, 3, 4), align_corners=corners),
            r.normal(2, 2, 3),
        ),
        ("pixel_shuffle", lambda x: F.pixel_shuffle(x, 2), r.floats(*r.pick((2,), ()), 4, 2, 3)),
        ("pixel_unshuffle", lambda x: F.pixel_unshuffle(x, 2), r.floats(*r.pick((2,), ()), 1, 4, 6)),
        ("channel_shuffle", lambda x: F.channel_shuffle(x, 2), r.floats(2, 4, 2, 3)),
        (f"unfold {options} {window}", lambda x: F.unfold(x, window, **options), x),
        (
            f"fold {options} {window}",
            lambda x: F.fold(x, size, window, **options),
            r.floats(2, 2 * int(np.prod(window)), int(folds)),
        ),
        ("local_response_norm", lambda x: F.local_response_norm(x, 2), r.floats(2, 4, 3, 3)),
    )
