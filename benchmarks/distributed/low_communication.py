"""What low communication costs in loss: workers that speak every H steps, beside data parallel training on the same batches.

    python -m benchmarks low_communication --prepare shakespeare.tokens
    python -m benchmarks low_communication --data shakespeare.tokens --device cuda:0
    python -m benchmarks low_communication --draw curves.png

A GPT-2 over characters of Shakespeare is trained with equal tokens by each algorithm. The learning rate is tuned for data
parallel training with the first seed and used by all; the outer step of each algorithm is then tuned with the first seed, if
several are given. Each run's result is one line of JSON, written when it ends; what is there is not run again.
"""

import argparse
import json
import logging
import platform
import statistics
import sys
import time
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from importlib.metadata import version
from pathlib import Path
from typing import Any

import jax

from benchmarks.distributed.attacks import ATTACKS
from benchmarks.distributed.fleet import StackedBatches
from benchmarks.distributed.loss_study import KINDS, Run, recipe_of, stored, trained
from pcp.training.data.token_file import TokenFile, write_token_file
from pcp.training.data.tokenizer import CharacterTokenizer

log = logging.getLogger("benchmarks.distributed.low_communication")

Results = dict[str, dict[str, Any]]


class Study:
    """Runs that are not in the file of results yet, one after another.

    Arguments:
        arguments: of the command line.
    """

    def __init__(self, arguments: argparse.Namespace) -> None:
        self._file = Path(arguments.results)
        self._tokens = TokenFile.open(_token_file(arguments))
        self._device, self._fleet = arguments.device, arguments.fleet
        self._evaluations = arguments.evaluations
        self._ends = time.monotonic() + arguments.budget
        self._longest = 0.0
        self._batches: tuple[int, StackedBatches] | None = None
        self.results: Results = stored(self._file)

    def loss(self, run: Run) -> float:
        """The final validation loss of a run, which is run if it was not.

        Raises:
            TimeoutError: it would probably outlast the budget.
        """
        if run.key not in self.results:
            if time.monotonic() + 1.2 * self._longest > self._ends:
                raise TimeoutError(
                    f"the budget is spent before {run.label}, seed {run.seed}; run the same again to go on"
                )
            began = time.monotonic()
            row = trained(
                run, self._tokens, self._device, self._batches_of(run), self._evaluations, self._fleet
            )
            self._longest = max(self._longest, time.monotonic() - began)
            self._keep(row)
        return float(self.results[run.key]["loss"])

    def _batches_of(self, run: Run) -> StackedBatches:
        if self._batches is None or self._batches[0] != run.seed:
            kind, _, number = self._device.partition(":")
            native = jax.devices(kind)[int(number or 0)]
            self._batches = (run.seed, StackedBatches(recipe_of(run, self._tokens).batches, native))
        return self._batches[1]

    def _keep(self, row: dict[str, Any]) -> None:
        packages = ("jax", "jaxlib", "numpy")
        row |= {
            "device": str(jax.devices(self._device.partition(":")[0])[0].device_kind),
            "versions": {"python": platform.python_version()} | {name: version(name) for name in packages},
            "command": "python -m benchmarks " + " ".join(sys.argv[1:]),
        }
        self.results[row["key"]] = row
        self._file.parent.mkdir(parents=True, exist_ok=True)
        with self._file.open("a") as file:
            file.write(json.dumps(row) + "\n")
        run = row["run"]
        print(
            f"{row['label']:60s} rate {run['learning_rate']:g} seed {run['seed']} {run['attack'] or 'clean':6s} "
            f"loss {row['loss']:.4f}  {row['seconds']:.1f} s + {row['compile_seconds']:.1f} s",
            flush=True,
        )


def _token_file(arguments: argparse.Namespace) -> Path:
    if arguments.data:
        return Path(arguments.data)
    file = Path(arguments.results).with_suffix(".tokens")
    if not file.exists():
        prepare(file)
    return file


def prepare(file: Path) -> None:
    """Write the characters of Shakespeare as tokens."""
    # A machine without network has not what downloads either.
    from pcp.training.data.corpus import load_text

    text = load_text()
    tokenizer = CharacterTokenizer.of_text(text)
    write_token_file(file, tokenizer.encode(text), tokenizer.vocabulary_size)


def variants(name: str, arguments: argparse.Namespace) -> Iterator[tuple[tuple[str, Any], ...]]:
    """The options of an algorithm, one set for each outer step."""
    h = arguments.inner_steps
    given: dict[str, Any] = {"merge": "mean", "download": arguments.download}
    if name != "data_parallel":  # the control is averaged, whatever merge is studied
        given |= {"inner_steps": h, "merge": arguments.merge}
    if name in ("streaming", "decoupled"):
        given |= {"fragments": arguments.fragments, "delay": arguments.delay}
    if name == "streaming":
        given["mixing"] = arguments.mixing
    if name == "decoupled" and arguments.merge == "mean":
        del given["merge"]  # its own average is what is asked for
    if arguments.upload and name not in ("data_parallel", "sparse"):
        given["upload"] = arguments.upload
    if name == "sparse":
        given |= {"upload": arguments.sparse_upload, "residual_decay": arguments.residual_decay}
    outer = [] if name == "data_parallel" else arguments.outer
    if name == "sparse":
        outer = [(rate, 0.0) for rate in arguments.sparse_outer]
    for rate, momentum in outer:
        given["outer_learning_rate"] = rate
        if name != "sparse":
            given["outer_momentum"] = momentum
        yield tuple(sorted(given.items()))
    if not outer:
        yield tuple(sorted(given.items()))


def study(arguments: argparse.Namespace) -> Results:
    """Tune, then train every algorithm with every seed; returns all results, also earlier ones."""
    runs = Study(arguments)
    sizes = {
        name: getattr(arguments, name) for name in ("workers", "tokens", "layers", "heads", "width", "batch")
    }
    sizes |= {"context": arguments.context, "inner_steps": arguments.inner_steps}
    first, *others = arguments.seeds

    def plain(rate: float) -> Run:
        return Run("data_parallel", (("download", "f32"), ("merge", "mean")), rate, first, **sizes)

    try:
        rate = arguments.learning_rates[0]
        if len(arguments.learning_rates) > 1:
            rate = min(arguments.learning_rates, key=lambda each: runs.loss(plain(each)))
        chosen = []
        for name in arguments.algorithms:
            tried = [
                Run(name, options, rate, first, **sizes)
                for options in dict.fromkeys(variants(name, arguments))
            ]
            chosen.append(min(tried, key=runs.loss) if len(tried) > 1 else tried[0])
        attacks = list(ATTACKS) if arguments.attacks == ["all"] else arguments.attacks
        for seed in (first, *others):
            for run in chosen:
                runs.loss(replace(run, seed=seed))
                for attack in attacks:
                    runs.loss(replace(run, seed=seed, attack=attack, hostile=arguments.hostile))
    except TimeoutError as reason:
        log.warning("%s", reason)
    return runs.results


def table(results: Iterable[dict[str, Any]]) -> str:
    """The results in Markdown: the mean over seeds, and how much more it is than data parallel training with the same seeds."""
    rows = list(results)
    groups: dict[str, list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault(json.dumps(row["run"] | {"seed": 0}, sort_keys=True), []).append(row)
    plain = [row for row in rows if row["label"] == "data_parallel" and not row["run"]["attack"]]
    controls = {_control(row): row["loss"] for row in plain}
    lines = [
        "| algorithm | workers | inner rate | attack | seeds | loss, nats | beyond data parallel | MB by a worker | seconds |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    for group in groups.values():
        run, losses = group[0]["run"], [row["loss"] for row in group]
        gaps = [row["loss"] - controls[_control(row)] for row in group if _control(row) in controls]
        spread = f" ± {statistics.stdev(losses):.4f}" if len(losses) > 1 else ""
        gap = f"{statistics.mean(gaps):+.4f} (worst {max(gaps):+.4f})" if gaps else ""
        attack = f"{run['hostile']} x {run['attack']}" if run["attack"] else ""
        lines.append(
            f"| {group[0]['label']} | {run['workers']} | {run['learning_rate']:g} | {attack} | {len(group)} | "
            f"{statistics.mean(losses):.4f}{spread} | {gap} | {group[0]['uploaded_bytes'] / 1e6:.2f} | "
            f"{statistics.mean(row['seconds'] for row in group):.1f} |"
        )
    last = rows[-1] if rows else {}
    if last:
        lines += ["", f"{last['tokens']:,} tokens, {last['parameters']:,} parameters, H = {last['run']['inner_steps']}; "
                  f"{last['device']}, {last['versions']}; `{last['command']}`."]  # fmt: skip
    return "\n".join(lines)


def _control(row: dict[str, Any]) -> tuple[Any, ...]:
    """What a run and the data parallel run that it is compared with have in common."""
    run = row["run"]
    return tuple(
        run[name] for name in sorted(run) if name not in ("algorithm", "options", "attack", "hostile")
    )


def draw(results: Sequence[dict[str, Any]], file: Path) -> None:
    """Draw the validation curves of the runs that have the most seeds, so none that only tuned; needs matplotlib."""
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure
    from matplotlib.ticker import ScalarFormatter

    seeds = Counter(_title(row) for row in results)
    labels = sorted(label for label, count in seeds.items() if count == max(seeds.values()))
    figure = Figure(figsize=(9, 5.4), dpi=150, layout="constrained")
    axes = figure.add_subplot()
    for row in results:
        if _title(row) in labels:
            run, color = row["run"], f"C{labels.index(_title(row)) % 10}"
            tokens = run["workers"] * run["batch"] * run["context"]
            steps, losses = zip(*row["curve"][1:], strict=True)
            axes.plot([step * tokens / 1e6 for step in steps], losses, color=color, linewidth=1, alpha=0.8)
    for number, label in enumerate(labels):
        axes.plot([], [], color=f"C{number % 10}", label=_legend(label, results, labels))
    axes.set_xlabel("tokens of all workers together, millions")
    axes.set_ylabel("validation loss (nats a character)")
    axes.set_yscale("log")
    axes.yaxis.set_major_formatter(ScalarFormatter())
    axes.yaxis.set_minor_formatter(ScalarFormatter())
    axes.grid(which="both", alpha=0.3)
    axes.legend(fontsize=9, loc="upper right")
    FigureCanvasAgg(figure)
    figure.savefig(file, format="png")


def _legend(label: str, results: Sequence[dict[str, Any]], labels: Sequence[str]) -> str:
    """A label, shorter where no other is of the same algorithm, with what was sent and what came of it."""
    rows = [row for row in results if _title(row) == label]
    same = [row for row in results if row["run"]["algorithm"] == rows[0]["run"]["algorithm"]]
    alone = len({_title(row) for row in same} & set(labels)) == 1
    name = rows[0]["run"]["algorithm"].replace("_", " ") if alone else label
    loss = statistics.mean(row["loss"] for row in rows)
    return f"{name}: {loss:.3f} nats, {rows[0]['uploaded_bytes'] / 1e6:,.0f} MB sent by a worker"


def _is_of(row: dict[str, Any], arguments: argparse.Namespace) -> bool:
    """Whether a result is of the sizes and the merge that the arguments say."""
    run = row["run"]
    sizes = all(run[name] == getattr(arguments, name) for name in ("workers", "batch", "layers", "width"))
    return sizes and (run["algorithm"] == "data_parallel" or dict(run["options"])["merge"] == arguments.merge)


def _title(row: dict[str, Any]) -> str:
    run = row["run"]
    attack = f", {run['hostile']} hostile: {run['attack']}" if run["attack"] else ""
    return f"{row['label']}, {run['workers']} workers, rate {run['learning_rate']:g}{attack}"


def _numbers(text: str) -> list[float]:
    return [float(part) for part in text.split(",")]


def _outer_steps(text: str) -> list[tuple[float, float]]:
    pairs = [part.split(":") for part in text.split(",")]
    return [(float(rate), float(momentum)) for rate, momentum in pairs]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the study's arguments."""
    add = parser.add_argument
    add("--prepare", metavar="FILE", help="only write the corpus as tokens, for a machine without network")
    add(
        "--draw",
        metavar="PNG",
        help="only draw the curves of the results (needs matplotlib), and print the table",
    )
    add("--results", default="low_communication.jsonl", help="file of results, added to and taken up again")
    add("--data", metavar="FILE", help="token file (default: made beside the results)")
    add("--device", default="cpu:0", help="where everything is computed")
    add("--budget", type=float, default=1e9, metavar="SECONDS", help="begin no run that would end later")
    add("--algorithms", type=lambda text: text.split(","), default=["data_parallel", "diloco", "streaming", "sparse"],
        help=f"of {', '.join(KINDS)}")  # fmt: skip
    add("--seeds", type=lambda text: [int(part) for part in text.split(",")], default=[1, 2, 3])
    add(
        "--learning-rates",
        type=_numbers,
        default=[5e-4, 1e-3, 2e-3],
        help="tuned over for data parallel training",
    )
    add(
        "--outer",
        type=_outer_steps,
        default=_outer_steps("0.7:0.9"),
        metavar="RATE:MOMENTUM,...",
        help="outer steps that are tuned over for each algorithm, with the first seed",
    )
    add(
        "--sparse-outer",
        type=_numbers,
        default=[1.0],
        metavar="RATE,...",
        help="of sparse, which has no momentum",
    )
    add("--workers", type=int, default=4)
    add("--tokens", type=int, default=10_000_000)
    add("--inner-steps", type=int, default=30, help="H")
    add("--fragments", type=int, default=3, help="P of streaming and decoupled")
    add("--delay", type=int, default=1, help="tau of streaming and decoupled")
    add("--mixing", type=float, default=0.0, help="alpha of streaming")
    add("--upload", default="", help="codec; each algorithm's own if not given")
    add("--sparse-upload", default="top-k", help="codec of sparse")
    add("--residual-decay", type=float, default=0.95, help="beta of sparse")
    add("--download", default="f32", help="codec")
    add("--merge", default="default", help="how pushes are merged; data parallel training takes the mean")
    add(
        "--attacks",
        type=lambda text: [part.strip() for part in text.split(",")],
        default=[],
        help=f"beside clean runs, what hostile workers do: all, or of {', '.join(ATTACKS)}",
    )
    add("--hostile", type=int, default=2, help="how many workers are hostile, with --attacks")
    for name, size in (("layers", 4), ("heads", 4), ("width", 208), ("context", 128), ("batch", 2)):
        add(f"--{name}", type=int, default=size)
    add(
        "--fleet",
        action="store_true",
        help="all workers' inner steps as one program, and data parallel training as one process: much faster on a GPU",
    )
    add("--evaluations", type=int, default=20, help="points of a curve")


def run(arguments: argparse.Namespace) -> None:
    """Prepare, draw, or train what is not in the results yet and print the table."""
    if arguments.prepare:
        prepare(Path(arguments.prepare))
        return
    if arguments.draw:
        results = stored(Path(arguments.results))
        draw([row for row in results.values() if _is_of(row, arguments)], Path(arguments.draw))
    else:
        results = study(arguments)
    print(table(results.values()))
