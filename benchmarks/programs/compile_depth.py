"""What compiling a training step takes with depth, and what the step takes then: PCP beside JAX (and PyTorch, which is eager).

    python -m benchmarks compile_depth --layers 6 12 24 48

PCP cuts a deep program into segments and compiles equal ones once; `PCP_COMPILE_IN_SEGMENTS=0` compiles it as a whole. JAX is
there as most models are written, with a Python loop over layers, and with their parameters stacked for `lax.scan`.
"""

import argparse
import json

from benchmarks.programs.gpt2 import compare
from pcp.models.published import gpt2_config


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    parser.add_argument(
        "--layers", type=int, nargs="+", default=[6, 12, 24, 48], help="depths (default: 6 12 24 48)"
    )
    parser.add_argument("--width", type=int, default=384, help="of the layers (default: 384)")
    parser.add_argument("--vocabulary", type=int, default=8192, help="default: 8192")
    parser.add_argument("--context", type=int, default=128, help="tokens of a sequence (default: 128)")
    parser.add_argument("--batch", type=int, default=2, help="sequences (default: 2)")
    parser.add_argument("--steps", type=int, default=20, help="measured steps (default: 20)")


def run(arguments: argparse.Namespace) -> None:
    """Print a row for each depth and contestant."""
    for layers in arguments.layers:
        heads = max(1, arguments.width // 64)
        config = gpt2_config(layers, heads, arguments.width, arguments.context, arguments.vocabulary, True)
        for row in compare(config, arguments.batch, arguments.steps, scanned=True):
            if arguments.json:
                print(json.dumps({"layers": layers, **row}), flush=True)
                continue
            taken = [row["trace_seconds"], row["compile_seconds"]]
            shown = " ".join("       -" if each is None else f"{each:6.1f} s" for each in taken)
            step = f"{row['step_seconds'] * 1e3:8.1f} ± {row['step_seconds_spread'] * 1e3:6.1f} ms"
            print(
                f"{layers:3d} layers  {row['contestant']:22s} trace, compile {shown}  step {step}  "
                f"x JAX {row['times_jax']:.2f}  error of the loss {row['loss_error']:.1e}",
                flush=True,
            )
