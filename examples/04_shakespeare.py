"""A character model learns Shakespeare: data, model, one program for a whole training step, and text from the result.

    python examples/04_shakespeare.py [--steps 500] [--data my.txt] [--layers 2] [--width 64] [--context 32]

`pcp train` does the same with checkpoints, validation, a loss plot and any number of workers.
"""

import argparse

import pcp
from pcp.inference import Sampling, TextModel
from pcp.models import decoder
from pcp.models.parameters import Parameters, parameter_count
from pcp.models.published import gpt2_config
from pcp.training.data.batches import Batches
from pcp.training.data.corpus import load_text
from pcp.training.data.tokenizer import CharacterTokenizer


def main() -> None:
    """Train and sample."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--data", default="shakespeare", help="`shakespeare`, or a text file")
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--context", type=int, default=32)
    parser.add_argument("--batch", type=int, default=16)
    settings = parser.parse_args()

    text = load_text(settings.data)
    tokenizer = CharacterTokenizer.of_text(text)
    batches = Batches(tokenizer.encode(text), settings.batch, settings.context, seed=0)

    config = gpt2_config(
        layers=settings.layers,
        heads=4,
        width=settings.width,
        context=settings.context,
        vocabulary=tokenizer.vocabulary_size,
    )
    parameters = decoder.initial_parameters(config)
    print(
        f"{parameter_count(parameters)} parameters, {len(text)} characters, {config.vocabulary} of them different"
    )

    def loss(params: Parameters, tokens: pcp.Tensor, targets: pcp.Tensor) -> pcp.Tensor:
        return decoder.loss(params, tokens, targets, config)

    sequence = pcp.spec((settings.batch, settings.context), "i32")
    step = pcp.training_step(loss, pcp.optimizers.adamw(3e-3), parameters, sequence, sequence, clip_norm=1.0)
    plan = pcp.plan(step)
    state = step.initial_state(parameters)
    for number in range(settings.steps):
        state, metrics = plan.run(state, batches.batch(number))
        if number % max(1, settings.steps // 10) == 0 or number == settings.steps - 1:
            print(f"step {number:5}  loss {float(metrics['loss']):.4f}")

    trained = {name: state["params"][name] for name in state["params"]}
    written = pcp.generate(TextModel(trained, config, tokenizer), text[:8], 200, Sampling(temperature=0.8))
    print(text[:8] + written)


if __name__ == "__main__":
    main()
