"""`python -m benchmarks`: every comparison, or the one that is named."""

import argparse
import importlib
import sys

BENCHMARKS = {
    "programs": {
        "cpu": "a training step of GPT-2 on a processor, by CPU time and error, beside PyTorch's and JAX's",
        "cpu-kernels": "products and attention on a processor beside PyTorch's, by size, order and number of cores",
        "decoding": "text of GPT-2 on a processor, token by token, with weights in fewer bits, beside PyTorch and llama.cpp",
        "compile_depth": "what compiling a training step takes with depth, beside JAX",
        "gpt2": "a training step of GPT-2 beside JAX and PyTorch",
        "gradient": "gradients of losses written in JAX, beside jax.grad",
        "gradient_corpus": "gradients of programs of other frameworks beside their own",
        "iree": "programs compiled by IREE beside XLA",
        "networks": "training steps of ResNet-50 and of an LSTM beside JAX and PyTorch",
        "prefill": "the logits of a prompt beside JAX and PyTorch",
        "streamed": "a training step of GPT-2 piece by piece in less memory, beside the whole",
    },
    "backends": {
        "memory": "what a call takes, as the system counts it, beside what its plan says",
        "matrix": "which operation runs in which element type on which backend",
        "providers": "single operations of the arena by NumPy and by PyTorch, beside XLA",
    },
    "gpu": {
        "gpu": "a training step of GPT-2 or Llama on a GPU beside PyTorch's and JAX's",
        "gpu-decoding": "tokens of GPT-2 or Llama on a GPU beside torch.compile with CUDA graphs",
        "gpu-curve": "loss curves of a planned step and of the same as it is written, on a GPU",
        "gpu-kernels": "attention, norms, cross entropy and AdamW on a GPU beside PyTorch's",
    },
    "models": {
        "models": "training steps of models of transformers and of one by hand, beside torch.compile and eager PyTorch",
    },
    "planning": {
        "bound": "a token of GPT-2 where what weights decide is computed once, beside in every call",
        "equality": "equal programs by equality saturation beside the plain ones",
        "native_kernels": "native kernels beside XLA's own code for the same sites",
        "plan_depth": "what planning takes with depth",
        "plan_overhead": "what calling a Plan costs",
        "plan_repeat": "how alike plannings of one program are that know nothing of each other",
        "small_programs": "a call, and the first answer, of a small program in the arena beside XLA and jax.jit",
        "prediction": "how well measured regions predict the times of others",
    },
    "serving": {
        "serving": "clients of pcp serve beside the same requests given to the engine at once",
    },
    "distributed": {
        "churn": "work merged beside a slow worker, and under failures, in virtual time",
        "compression": "bytes, error and time of codecs, beside NumPy",
        "faults": "how soon a real run goes on after faults at random moments, and whether it ends right",
        "low_communication": "the loss of training that seldom communicates, beside data parallel training",
        "scale": "what a Shepherd costs with up to 10,000 workers, and a tree of Shepherds",
        "scale_arithmetic": "what up to a million workers would ask of a Shepherd, by arithmetic",
        "unlike": "one run by Workers of unlike backends beside like ones: throughput and loss",
        "utilisation": "which share of the time Workers train over emulated lines, and how many bytes that takes",
        "wire": "how fast a blob is fetched, on loopback and over an emulated line, beside TLS sockets",
    },
}

# Only by name: on a CPU it takes hours; they need an optional package; they need namespaces of their own.
BY_NAME = (
    "models",
    "serving",
    "low_communication",
    "equality",
    "iree",
    "matrix",
    "memory",
    "providers",
    "unlike",
    "utilisation",
    "faults",
)


def main() -> None:
    """Run benchmarks."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--json", action="store_true", help="one JSON object a line")
    commands = parser.add_subparsers(dest="name", metavar="BENCHMARK")
    rooms = {name: room for room, benchmarks in BENCHMARKS.items() for name in benchmarks}
    # What is named needs no package of the others.
    wanted = [name for name in rooms if name in sys.argv[1:]] or list(rooms)
    modules = {}
    for name, room in rooms.items():
        command = commands.add_parser(name, help=BENCHMARKS[room][name])
        if name in wanted:
            modules[name] = importlib.import_module(f"benchmarks.{room}.{name.replace('-', '_')}")
            modules[name].add_arguments(command)
    arguments = parser.parse_args()
    for name in [arguments.name] if arguments.name else [n for n in modules if n not in BY_NAME]:
        given = (
            arguments
            if arguments.name
            else parser.parse_args((["--json"] if arguments.json else []) + [name])
        )
        try:
            modules[name].run(given)
        except ModuleNotFoundError as error:
            package = str(error.name).partition(".")[0]
            print(
                f"{name}: left out, {package} is not installed; `make test-peers` installs the peers",
                file=sys.stderr,
            )
            if arguments.name:
                sys.exit(1)


if __name__ == "__main__":
    main()
