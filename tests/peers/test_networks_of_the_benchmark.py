"""The networks that are compared with PyTorch compute the same there and in JAX."""

import jax
import numpy as np
import torch
from benchmarks.programs import gradient_jax, networks_torch

from pcp.ir.tree import map_tree


def test_resnet_has_the_loss_and_gradients_of_jax() -> None:
    work = gradient_jax.resnet50(
        batch=3, size=32, depths=(2, 1), seed=np.random.SeedSequence().entropy % 2**31
    )
    expected, gradients = jax.jit(jax.value_and_grad(work.loss))(work.params, *work.batch)
    params = map_tree(lambda array: torch.tensor(array, requires_grad=True), work.params)
    loss = networks_torch.resnet50_loss(params, *map(torch.tensor, work.batch))
    loss.backward()
    np.testing.assert_allclose(loss.item(), float(expected), rtol=1e-5)
    for name in ("stem", "head"):
        for leaf, found in zip(jax.tree.leaves(params[name]), jax.tree.leaves(gradients[name]), strict=True):
            distance = np.linalg.norm(leaf.grad.numpy() - np.asarray(found))
            # Roundings move numbers over the kinks of ReLU, by chance of the seed; a wrong layer is wrong by its whole.
            assert distance < 3e-2 * np.linalg.norm(found)


def test_the_lstm_has_the_loss_of_jax() -> None:
    work = gradient_jax.lstm(16, 3, 9)
    params = map_tree(torch.tensor, work.params)
    loss = networks_torch.lstm_loss(params, *map(torch.tensor, work.batch))
    np.testing.assert_allclose(loss.item(), float(work.loss(work.params, *work.batch)), rtol=1e-5)
