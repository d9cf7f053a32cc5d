"""What a model of images is trained on: to predict, from an image with noise, what its schedule says."""

from pcp import nn
from pcp.models.diffusion.families import ImageModel
from pcp.models.diffusion.schedule import Schedule
from pcp.models.parameters import Parameters
from pcp.ops.elementwise import convert, less, minimum, where
from pcp.ops.indexing.reading import take
from pcp.ops.movement import iota, reshape
from pcp.ops.random import fold_in, normal, uniform
from pcp.tensor import Tensor, as_tensor

_DROPPED = 0.1
"""Share of the labels that are left out, so that the model also knows images of no class."""


def loss(
    parameters: Parameters,
    images: Tensor,
    labels: Tensor | None,
    key: Tensor,
    model: ImageModel,
    schedule: Schedule,
) -> Tensor:
    """The mean square error of what is predicted, at times drawn evenly over the schedule, one in each part of it.

    Arguments:
        parameters: of the model.
        images: u8 of shape (batch, height, width, channels).
        labels: i32 of shape (batch,), or None of a model without classes.
        key: u32[2], of times and noise.

    Source: Ho et al., "Denoising Diffusion Probabilistic Models", 2020, equation 14; velocities: Salimans and Ho, "Progressive
    Distillation", 2022; flows: Lipman et al., "Flow Matching for Generative Modeling", 2022.
    """
    batch, times = images.shape[0], schedule.times
    clean = convert(images, "f32") * (1 / 127.5) - 1.0
    noise = normal(fold_in(key, 0), clean.shape)
    drawn = (convert(iota((batch,)), "f32") + uniform(fold_in(key, 1))) * (1 / batch)
    place = minimum(convert(drawn * times, "i32"), times - 1)
    alpha, sigma = (
        reshape(take(as_tensor(level), place, 0), (batch, 1, 1, 1)) for level in schedule.levels()
    )
    told = reshape(sigma, (batch,)) * times if schedule.is_flow else convert(place, "f32")
    if labels is None and model.classes:
        labels = iota((batch,)) * 0
    if labels is not None and model.no_class is not None:
        labels = where(less(uniform(fold_in(key, 2), (batch,)), _DROPPED), model.no_class, labels)
    predicted = model(parameters, alpha * clean + sigma * noise, told, labels)
    wanted = {
        "epsilon": noise,
        "sample": clean,
        "v_prediction": alpha * noise - sigma * clean,
        "flow_prediction": noise - clean,
    }
    return nn.mse(predicted, wanted[schedule.prediction])
