"""Models and samplers of images beside those of the library diffusers, on random weights and noise."""

import itertools
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tests.execution import run

import pcp
from pcp.diffusion.pipeline import open_pipeline
from pcp.diffusion.sample import sample
from pcp.models.diffusion import autoencoder
from pcp.models.diffusion.families import ImageModel, from_diffusers, turned
from pcp.models.diffusion.parts import Parts
from pcp.models.diffusion.samplers import steps_of
from pcp.models.diffusion.schedule import Schedule
from pcp.tracing import specs_of, trace

torch = pytest.importorskip("torch")
diffusers = pytest.importorskip("diffusers")

BLOCKS = {"block_out_channels": (16, 32), "norm_num_groups": 8, "layers_per_block": 1}
MODELS = {
    "unet": lambda: diffusers.UNet2DModel(
        sample_size=8, down_block_types=("DownBlock2D", "AttnDownBlock2D"),
        up_block_types=("AttnUpBlock2D", "UpBlock2D"), **BLOCKS,
    ),
    "unet with classes": lambda: diffusers.UNet2DModel(
        sample_size=8, in_channels=1, out_channels=1, down_block_types=("AttnDownBlock2D", "DownBlock2D"),
        up_block_types=("UpBlock2D", "AttnUpBlock2D"), downsample_padding=0, downsample_type="resnet",
        upsample_type="resnet", resnet_time_scale_shift="scale_shift", num_class_embeds=4, attention_head_dim=None,
        mid_block_scale_factor=1.414, flip_sin_to_cos=False, freq_shift=1, center_input_sample=True, **BLOCKS,
    ),
    "dit": lambda: diffusers.DiTTransformer2DModel(
        num_attention_heads=2, attention_head_dim=8, in_channels=3, num_layers=2, sample_size=8, patch_size=2,
        num_embeds_ada_norm=5, out_channels=6,
    ),
}  # fmt: skip


def random_weights(module: Any) -> Any:
    """A module whose weights are none of those that begin as zeros or ones."""
    with torch.no_grad():
        for each in module.parameters():
            each.add_(torch.randn_like(each) * 0.03)
    return module.eval()


def ours_of(module: Any) -> tuple[ImageModel, dict[str, Any]]:
    model = ImageModel.of({**module.config, "_class_name": type(module).__name__}, "here")
    return model, from_diffusers(
        {k: v.detach().numpy() for k, v in module.state_dict().items()}, model, "here"
    )


@pytest.mark.parametrize("name", MODELS)
def test_predictions_and_gradients_are_those_of_diffusers(name: str) -> None:
    module = random_weights(MODELS[name]())
    model, weights = ours_of(module)
    x, times = torch.randn(2, model.channels, 8, 8), torch.tensor([3.0, 700.0])
    labels = torch.tensor([1, 2]) if model.classes else None
    said = module(x, times, **({} if labels is None else {"class_labels": labels})).sample[
        :, : model.channels
    ]
    by = torch.randn_like(said)
    (said * by).sum().backward()
    given = (x.permute(0, 2, 3, 1).numpy(), times.numpy(), None if labels is None else labels.int().numpy())
    cotangent = by.permute(0, 2, 3, 1).numpy()

    def scored(w: Any, x: Any, t: Any, b: Any, *label: Any) -> Any:
        said = model(w, x, t, label[0] if label else None)
        return (said * b).sum(), said

    others = [given[1], cotangent, *([] if labels is None else [given[2]])]
    program = pcp.value_and_grad(
        trace(scored, *map(specs_of, (weights, given[0], *others))), wrt=0, has_aux=True
    )
    (_, ours), gradients = run(program, weights, given[0], *others)
    theirs = said.detach().permute(0, 2, 3, 1).numpy()
    assert np.abs(np.asarray(ours) - theirs).max() < 1e-5 * max(1, np.abs(theirs).max())
    for parameter, each in module.named_parameters():
        expected = np.zeros(each.shape, np.float32) if each.grad is None else each.grad.numpy()
        found = turned(parameter, np.asarray(gradients[parameter]), back=True)
        assert np.abs(found - expected).max() < 1e-4 * max(1, np.abs(expected).max()), parameter


def test_an_autoencoder_encodes_and_decodes_as_that_of_diffusers() -> None:
    kinds = {"down_block_types": ("DownEncoderBlock2D",) * 2, "up_block_types": ("UpDecoderBlock2D",) * 2}
    module = random_weights(diffusers.AutoencoderKL(**BLOCKS, **kinds))
    model, weights = ours_of(module)
    x = torch.randn(2, 3, 8, 8)
    with torch.no_grad():
        latent = module.encode(x).latent_dist
        theirs = latent.mean, latent.logvar, module.decode(latent.mean).sample

    def through(w: Any, x: Any) -> Any:
        mean, variance = autoencoder.encode(Parts(w), x, model.settings)
        return mean, variance, autoencoder.decode(Parts(w), mean, model.settings)

    given = x.permute(0, 2, 3, 1).numpy()
    ours = run(trace(through, specs_of(weights), specs_of(given)), weights, given)
    for a, b in zip(ours, theirs, strict=True):
        expected = b.permute(0, 2, 3, 1).numpy()
        assert np.abs(np.asarray(a) - expected).max() < 1e-5 * max(1, np.abs(expected).max())


def schedulers() -> Any:
    """Schedulers of diffusers, PCP's sampler for each, and a number of steps."""
    kinds = itertools.product(
        ("linear", "scaled_linear", "squaredcos_cap_v2"),
        ("epsilon", "sample", "v_prediction"),
        ("leading", "trailing", "linspace"),
    )
    for betas, prediction, spacing in kinds:
        common = {"beta_schedule": betas, "prediction_type": prediction, "timestep_spacing": spacing}
        other = prediction == "sample"
        yield (
            diffusers.DDIMScheduler(**common, set_alpha_to_one=not other, clip_sample=betas != "linear"),
            "ddim",
            7,
        )
        yield (
            diffusers.DDPMScheduler(**common, variance_type="fixed_large" if other else "fixed_small"),
            "ddpm",
            7,
        )
        solver = {"solver_type": "heun" if other else "midpoint"}
        yield diffusers.DPMSolverMultistepScheduler(**common, **solver), "dpm++", 7
        yield (
            diffusers.DPMSolverMultistepScheduler(**common, **solver, final_sigmas_type="sigma_min"),
            "dpm++",
            20,
        )
        if betas != "squaredcos_cap_v2":
            yield (
                diffusers.DPMSolverMultistepScheduler(**common, **solver, use_karras_sigmas=True),
                "dpm++",
                7,
            )
    zero = {"rescale_betas_zero_snr": True, "prediction_type": "v_prediction", "timestep_spacing": "trailing"}
    yield diffusers.DDIMScheduler(**zero), "ddim", 7
    yield diffusers.DPMSolverMultistepScheduler(**zero), "dpm++", 7
    cosine = {"beta_schedule": "squaredcos_cap_v2", "lambda_min_clipped": -5.1}
    yield diffusers.DPMSolverMultistepScheduler(**cosine), "dpm++", 7
    for shift, karras in ((1.0, False), (3.0, False), (3.0, True)):
        yield diffusers.FlowMatchEulerDiscreteScheduler(shift=shift, use_karras_sigmas=karras), "euler", 7
    flow = {"use_flow_sigmas": True, "prediction_type": "flow_prediction", "flow_shift": 3.0}
    yield diffusers.DPMSolverMultistepScheduler(**flow), "dpm++", 7


@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
def test_every_step_of_every_sampler_is_that_of_diffusers() -> None:
    for scheduler, sampler, count in schedulers():
        settings = {**scheduler.config, "_class_name": type(scheduler).__name__}
        steps = steps_of(sampler, Schedule.of(settings, "here"), count)
        scheduler.set_timesteps(count)
        np.testing.assert_allclose(
            scheduler.timesteps.numpy(), steps.times, rtol=1e-6, atol=1e-3, err_msg=str(settings)
        )
        x, before = torch.randn(2, 3, 4, 4), 0.0
        for number, time in enumerate(scheduler.timesteps):
            row = {name: float(column[number]) for name, column in steps.columns.items()}
            said, now = torch.randn(2, 3, 4, 4), x.numpy()
            seeded = {"generator": torch.Generator().manual_seed(number)} if sampler == "ddpm" else {}
            x = scheduler.step(said, time, x, **seeded).prev_sample
            noise = torch.randn(2, 3, 4, 4, generator=torch.Generator().manual_seed(number)).numpy()
            image = row.get("image_x", 0) * now + row.get("image_p", 0) * said.numpy()
            image = image if steps.clip is None else image.clip(-steps.clip, steps.clip)
            values = {"x_x": now, "x_p": said.numpy(), "x_image": image, "x_before": before, "x_noise": noise}
            ours, before = sum(row.get(name, 0) * value for name, value in values.items()), image
            error = np.abs(ours - x.numpy()).max() / max(1, float(x.abs().max()))
            assert error < 3e-5, (settings, number)


def test_a_pipeline_of_diffusers_makes_the_same_images(tmp_path: Path) -> None:
    """From the folder that it writes, by PCP's own model, and by the model that `from_torch` imports."""
    module = random_weights(MODELS["unet"]())
    scheduler = diffusers.DDIMScheduler(beta_schedule="squaredcos_cap_v2")
    diffusers.DDIMPipeline(module, scheduler).save_pretrained(tmp_path / "pipeline")
    own = sample(open_pipeline(tmp_path / "pipeline"), 2, 4, seed=3)
    imported = pcp.from_torch(module, torch.randn(2, 3, 8, 8), torch.tensor(3), output="sample")
    assert own.shape == (2, 8, 8, 3)
    brought = sample(imported, 2, 4, seed=3, scheduler=scheduler)
    assert np.abs(brought.astype(int) - own).max() <= 1
    assert own.std() > 1
