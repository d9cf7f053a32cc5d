"""Models of images: their parameters by name, what they refuse, and what they are trained on."""

import numpy as np
import pytest
from tests.execution import run

from pcp.models.diffusion import loss as diffusion
from pcp.models.diffusion.families import ImageModel, UnsupportedImageModel, from_diffusers, turned
from pcp.models.diffusion.published import IMAGE_MODELS, image_model
from pcp.models.parameters import InvalidConfiguration
from pcp.ops.random import fold_in, normal, uniform
from pcp.tensor import ShapeMismatch, Tensor
from pcp.tracing import spec, specs_of, trace

RNG = np.random.default_rng()
UNET = {
    "_class_name": "UNet2DModel", "sample_size": 8, "in_channels": 2, "out_channels": 2, "block_out_channels": [8, 8],
    "down_block_types": ["DownBlock2D", "AttnDownBlock2D"], "up_block_types": ["AttnUpBlock2D", "UpBlock2D"],
    "layers_per_block": 1, "norm_num_groups": 4,
}  # fmt: skip


def test_parameters_are_told_drawn_and_read_under_the_names_of_diffusers() -> None:
    model = ImageModel.of(UNET, "here")
    drawn, shapes = model.initial_parameters(3), model.parameter_shapes()
    assert {name: array.shape for name, array in drawn.items()} == {
        name: each.shape for name, each in shapes.items()
    }
    assert drawn["conv_in.weight"].shape == (3, 3, 2, 8)
    assert drawn["mid_block.attentions.0.to_out.0.bias"].shape == (8,)
    again = model.initial_parameters(3)
    assert all(np.array_equal(array, again[name]) for name, array in drawn.items())
    theirs = {name: turned(name, array, back=True) for name, array in drawn.items()}
    assert theirs["conv_in.weight"].shape == (8, 2, 3, 3)
    read = from_diffusers(theirs, model, "here")
    assert all(np.array_equal(array, read[name]) for name, array in drawn.items())
    old = {
        name.replace(".to_q.", ".query.").replace(".to_out.0.", ".proj_attn."): a
        for name, a in theirs.items()
    }
    assert from_diffusers(old, model, "here").keys() == read.keys()


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"_class_name": "UNet2DConditionModel"},
            "here is of a UNet2DConditionModel; PCP's own models of images are UNet2DModel",
        ),
        (
            {"down_block_types": ["SkipDownBlock2D", "DownBlock2D"]},
            "sets down_block_types to 'SkipDownBlock2D'",
        ),
        (
            {"time_embedding_type": "fourier"},
            "sets time_embedding_type to 'fourier'; PCP's UNet2DModel supports only 'positional'",
        ),
    ],
)
def test_other_models_are_refused(changes: dict[str, object], words: str) -> None:
    with pytest.raises(UnsupportedImageModel, match=words):
        ImageModel.of({**UNET, **changes}, "here")


def test_other_weights_are_refused() -> None:
    model = ImageModel.of(UNET, "here")
    theirs = {name: turned(name, array, back=True) for name, array in model.initial_parameters().items()}
    bias = theirs.pop("conv_in.bias")
    with pytest.raises(
        UnsupportedImageModel, match=r"here does not hold the \d+ parameters .* it lacks conv_in.bias"
    ):
        from_diffusers(theirs, model, "here")
    with pytest.raises(UnsupportedImageModel, match="it has more beside them"):
        from_diffusers({**theirs, "conv_in.bias": bias, "more": bias}, model, "here")
    with pytest.raises(UnsupportedImageModel, match=r"here: conv_in.bias is \(5,\); expected \(8,\)"):
        from_diffusers({**theirs, "conv_in.bias": np.zeros(5, np.float32)}, model, "here")


@pytest.mark.parametrize("shape", [(8, 8, 3), (7, 8, 2), (8, 8), (0, 8, 2)])
def test_images_of_other_shapes_are_refused(shape: tuple[int, ...]) -> None:
    with pytest.raises(
        ShapeMismatch, match=r"this UNet2DModel takes \(height, width, 2\), height and width multiples of 2"
    ):
        ImageModel.of(UNET, "here").check(shape)


def test_a_model_with_classes_takes_a_label() -> None:
    model, _ = image_model("unet-nano", 8, 1, 4)
    parts = (model.parameter_shapes(), spec((2, 8, 8, 1), "f32"), spec((2,), "f32"))
    with pytest.raises(ShapeMismatch, match="a UNet2DModel of 4 classes takes a label; none was given"):
        trace(lambda p, x, t: model(p, x, t, None), *parts)


def test_models_by_name_fit_the_images() -> None:
    for name in IMAGE_MODELS:
        for size, channels, classes in ((8, 1, 10), (12, 3, 0), (32, 3, 2)):
            model, schedule = image_model(name, size, channels, classes)
            model.check((size, size, channels))
            assert schedule.times == 1000
    with pytest.raises(
        InvalidConfiguration, match="unet-nano takes images whose sides are multiples of 2; they are 9"
    ):
        image_model("unet-nano", 9, 1, 0)


@pytest.mark.parametrize("name", ["dit-nano", "unet-nano"])
def test_a_new_model_is_asked_for_what_its_schedule_says(name: str) -> None:
    """It begins with predictions of zero, so its loss is the mean square of what is wanted, of noise that is known."""
    model, schedule = image_model(name, 8, 1, 0)
    images = RNG.integers(0, 256, (4, 8, 8, 1), dtype=np.uint8)
    key = RNG.integers(0, 2**32, 2, dtype=np.uint32)
    weights = model.initial_parameters()

    def both(w: dict[str, Tensor], x: Tensor, k: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        told = diffusion.loss(w, x, None, k, model, schedule)
        return told, normal(fold_in(k, 0), x.shape), uniform(fold_in(k, 1))

    program = trace(both, specs_of(weights), *map(specs_of, (images, key)))
    loss, noise, begin = map(np.asarray, run(program, weights, images, key))
    clean = images / 127.5 - 1
    place = np.minimum(((np.arange(4) + begin) / 4 * 1000).astype(int), 999)
    alpha, sigma = (level[place].reshape(-1, 1, 1, 1) for level in schedule.levels())
    wanted = noise - clean if schedule.is_flow else alpha * noise - sigma * clean
    assert float(loss) == pytest.approx(float((wanted**2).mean()), rel=1e-4)
