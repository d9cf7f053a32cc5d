"""One run by Workers of unlike backends, beside the same run by as many like ones: throughput and loss.

Both fleets train the same model on the same batches. Every Worker is a process (`pcp worker`) under one real Shepherd, and may
use one processor; one on a GPU may use all, since it compiles with them. A Worker gets as many batches as it is fast
(`shares = "measured"`), so nobody waits long for a slow one. The
losses of the two differ by who trained which batches, not by the backends: with equal shares they are equal to 1e-6
(`tests/distributed/processes/test_unlike_backends.py`).

Tokens a second are counted from the end of the first rounds, when every Worker has compiled. A fleet of more Workers than
processors shares these.
"""

import argparse
import contextlib
import io
import json
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.distributed.machines.process import Process, Record
from benchmarks.options import add_option
from pcp import backends
from pcp.backends import UnknownBackend
from pcp.cli import main as pcp

ALL = ("cpu:0", "arena:cpu", "iree:llvm-cpu", "iree:vulkan")
POLL_SECONDS, END_SECONDS = 0.2, 60.0
TOML = """
model = "{model}"
data = "{data}"
steps = {steps}
workers = {workers}
inner_steps = {inner_steps}
batch = {batch}
evaluate_every = {evaluate_every}
checkpoint_every = 0
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the benchmark's arguments."""
    add_option(parser, "--model", "gpt2-nano", "name of the model")
    add_option(parser, "--data", "shakespeare", "what it trains on, as of pcp train")
    add_option(parser, "--steps", 200, "batches for each Worker")
    add_option(parser, "--inner-steps", 20, "of a round")
    add_option(parser, "--batch", 4, "sequences in a batch")
    add_option(parser, "--warm", 2, "rounds before throughput counts")
    add_option(parser, "--seconds", 900.0, "that a run may take")
    parser.add_argument(
        "--devices", help="of the unlike Workers, separated by commas (default: all that are here)"
    )
    parser.add_argument("--picture", type=Path, help="where to draw losses and shares, as PNG")


def run(arguments: argparse.Namespace) -> None:
    """Train with both fleets, and tell of both."""
    unlike = arguments.devices.split(",") if arguments.devices else devices_here()
    rows = {}
    for name, devices in (("like", ["cpu:0"] * len(unlike)), ("unlike", unlike)):
        with tempfile.TemporaryDirectory(prefix="pcp-unlike-") as folder:
            rows[name] = summary(trained(devices, Path(folder), arguments), devices, arguments.warm)
        if arguments.json:
            curve = {key: value for key, value in rows[name].items() if key != "curve"}
            print(json.dumps({"fleet": name, "processors": os.cpu_count()} | curve), flush=True)
    if not arguments.json:
        print(table(rows))
    if arguments.picture:
        draw(rows, arguments.picture)


def devices_here() -> list[str]:
    """One device of every backend that is here."""
    found = []
    for name in ALL:
        backend, _, kind = name.partition(":")
        try:
            here = backends.devices(backend) if backend in backends.backend_names() else backends.devices()
        except UnknownBackend:
            continue
        if backend not in backends.backend_names() or any(each.kind == kind for each in here):
            found.append(name)
    return found


def trained(devices: Sequence[str], folder: Path, arguments: argparse.Namespace) -> list[Record]:
    """What the Shepherd said of a whole run by Workers on these devices.

    Raises:
        RuntimeError: a process failed, or the run took too long; the message has its last words.
    """
    plan, run_folder = folder / "run.toml", folder / "run"
    chosen = {name: getattr(arguments, name) for name in ("model", "data", "steps", "inner_steps", "batch")}
    every = max(1, arguments.steps // 10)
    plan.write_text(TOML.format(**chosen, workers=len(devices), evaluate_every=every), encoding="utf-8")
    words = ["pcp", "shepherd", str(plan), "--run", str(run_folder), "--json"]
    processes = [Process([], words, folder, "shepherd")]
    shepherd, deadline = processes[0], time.monotonic() + arguments.seconds
    try:
        address = _address(shepherd, deadline)
        processors = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
        for number, device in enumerate(devices):
            key = str(folder / f"w{number}.pem")
            with contextlib.redirect_stdout(io.StringIO()):
                pcp(["keys", "worker", f"w{number}", "--run", str(run_folder), "--out", key, "--json"])
            words = ["pcp", "worker", "--connect", address, "--key", key, "--device", device, "--json"]
            if processors and not device.startswith("cuda"):
                words += ["--cpus", str(processors[number % len(processors)])]
            processes.append(Process([], words, folder, f"w{number}"))
        while shepherd.code is None:
            shepherd.read()
            for process in processes[1:]:
                if process.code:
                    raise RuntimeError(f"{process.name} ended with {process.code}: {process.explain()}")
            _wait(shepherd, deadline)
        shepherd.read()
        if shepherd.code:
            raise RuntimeError(f"the Shepherd ended with {shepherd.code}: {shepherd.explain()}")
    finally:
        for process in processes[1:]:
            _end(process)
        _end(shepherd)
    return shepherd.records


def _address(shepherd: Process, deadline: float) -> str:
    while True:
        for record in shepherd.read():
            if record.get("event") == "listening":
                return str(record["address"])
        if shepherd.code is not None:
            raise RuntimeError(f"the Shepherd ended with {shepherd.code}: {shepherd.explain()}")
        _wait(shepherd, deadline)


def _wait(shepherd: Process, deadline: float) -> None:
    if time.monotonic() > deadline:
        raise RuntimeError(f"the run takes longer than --seconds: {shepherd.explain()}")
    time.sleep(POLL_SECONDS)


def _end(process: Process) -> None:
    """A Worker whose run is complete ends by itself."""
    deadline = time.monotonic() + (END_SECONDS if process.name != "shepherd" else 0.0)
    while process.code is None and time.monotonic() < deadline:
        process.send(signal.SIGTERM)
        time.sleep(POLL_SECONDS)
    process.kill()


def summary(records: Sequence[Record], devices: Sequence[str], warm: int) -> dict[str, Any]:
    """Throughput, losses and shares of a run.

    Arguments:
        records: that the Shepherd wrote.
        devices: of its Workers.
        warm: rounds before throughput counts.

    Returns:
        `tokens_per_second`; `seconds` between the warm rounds and the end; `loss` of the last round, `validation_loss` at the
        end, in nats per token; `shares` of the batches by Worker, also of those that trained none; and `curve`, pairs of
        tokens and loss.
    """
    rounds = [record for record in records if "round" in record]
    counted = rounds[min(warm, len(rounds) - 2) :]
    seconds = counted[-1]["time"] - counted[0]["time"]
    batches: Counter[str] = Counter()
    for record in records:
        if record.get("lease") and "-" in record["lease"]:
            first, last = map(int, record["lease"].split("-"))
            batches[record["worker"]] += last - first + 1
    validated = [record["validation_loss"] for record in records if "validation_loss" in record]
    return {
        "workers": list(devices),
        "tokens_per_second": (counted[-1]["tokens"] - counted[0]["tokens"]) / seconds,
        "seconds": seconds,
        "rounds": len(rounds),
        "tokens": rounds[-1]["tokens"],
        "loss": rounds[-1]["loss"],
        "validation_loss": validated[-1] if validated else None,
        "shares": [
            [device, batches[f"w{number}"] / sum(batches.values())] for number, device in enumerate(devices)
        ],
        "curve": [(record["tokens"], record["loss"]) for record in rounds],
    }


def table(rows: dict[str, dict[str, Any]]) -> str:
    """The fleets as a table in Markdown."""
    lines = [
        f"| fleet on {os.cpu_count()} processors | tokens/s | loss | validation loss | rounds | share of the batches |",
        "|---|---|---|---|---|---|",
    ]
    for name, row in rows.items():
        shares = ", ".join(f"{device} {100 * share:.0f} %" for device, share in row["shares"])
        validation = "" if row["validation_loss"] is None else f"{row['validation_loss']:.4f}"
        lines.append(
            f"| {name} | {row['tokens_per_second']:.0f} | {row['loss']:.4f} | {validation} | {row['rounds']} | {shares} |"
        )
    return "\n".join(lines)


def draw(rows: dict[str, dict[str, Any]], path: Path) -> None:
    """Draw the losses of both fleets against tokens, and who trained how much; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained")
    FigureCanvasAgg(figure)
    left, right = figure.subplots(1, 2, width_ratios=(3, 2))
    colours = {"like": "tab:blue", "unlike": "tab:orange"}
    for name, row in rows.items():
        tokens, losses = zip(*row["curve"], strict=True)
        style = {"like": "-", "unlike": "--"}.get(name, "-")
        label = f"{name}: {row['tokens_per_second']:.0f} tokens/s"
        left.plot([each / 1000 for each in tokens], losses, style, color=colours.get(name), label=label)
    left.set(xlabel="thousand tokens, all Workers", ylabel="training loss of a round (nats per token)")
    left.set_title("The same run by like and unlike Workers")
    left.legend(frameon=False)
    labels, values, shades = [], [], []
    for name, row in rows.items():
        for device, share in row["shares"]:
            labels.append(f"{name}: {device}")
            values.append(100 * share)
            shades.append(colours.get(name, "grey"))
    places = list(range(len(labels)))[::-1]
    bars = right.barh(places, values, color=shades)
    right.bar_label(bars, fmt="%.0f %%", padding=2)
    right.set_yticks(places, labels)
    right.set(xlabel="share of the batches (%)", xlim=(0, 1.2 * max(values)))
    right.set_title("Who trained how much")
    for axes in (left, right):
        axes.spines[["top", "right"]].set_visible(False)
    figure.savefig(path, dpi=120)
