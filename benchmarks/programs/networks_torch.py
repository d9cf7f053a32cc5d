"""The networks of `gradient_jax` in PyTorch, with the same parameters."""

from typing import Any

import torch
import torch.nn.functional as F

Tree = Any


def _weight(kernel: torch.Tensor) -> torch.Tensor:
    """A kernel in PyTorch's order of axes; its memory stays, and is that of channels last."""
    return kernel.permute(3, 2, 0, 1)


def _convolution(x: torch.Tensor, kernel: torch.Tensor, stride: int = 1) -> torch.Tensor:
    size, height = kernel.shape[0], x.shape[2]
    total = max((-(-height // stride) - 1) * stride + size - height, 0)  # as JAX's "SAME"
    if total % 2:
        x = F.pad(x, (total // 2, total - total // 2) * 2)
        return F.conv2d(x, _weight(kernel), stride=stride)
    return F.conv2d(x, _weight(kernel), stride=stride, padding=total // 2)


def _batch_norm(x: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> torch.Tensor:
    return F.batch_norm(x, None, None, scale, bias, training=True, eps=1e-5)


def resnet50_loss(params: Tree, images: torch.Tensor, labels: torch.Tensor, _: Any = None) -> torch.Tensor:
    """The mean cross entropy; images have channels last."""
    x = images.permute(0, 3, 1, 2)
    x = F.relu(_batch_norm(_convolution(x, params["stem"]["weight"], 2), *params["stem"]["norm"]))
    x = F.max_pool2d(F.pad(x, (0, 1, 0, 1), value=-torch.inf), 3, 2)
    for stage, blocks in enumerate(params["stages"]):
        for index, block in enumerate(blocks):
            stride = 2 if stage and not index else 1
            y = F.relu(_batch_norm(_convolution(x, block["down"]), *block["norm_1"]))
            y = F.relu(_batch_norm(_convolution(y, block["wide"], stride), *block["norm_2"]))
            y = _batch_norm(_convolution(y, block["up"]), *block["norm_3"])
            if "shortcut" in block:
                x = _batch_norm(_convolution(x, block["shortcut"], stride), *block["norm_4"])
            x = F.relu(x + y)
    logits = x.mean((2, 3)) @ params["head"]["weight"] + params["head"]["bias"]
    return F.cross_entropy(logits, labels.long())


def lstm_loss(params: Tree, inputs: torch.Tensor, targets: torch.Tensor, _: Any = None) -> torch.Tensor:
    """The mean squared error, by the LSTM of PyTorch's library."""
    start = inputs.new_zeros((1, inputs.shape[1], params["recurrent"].shape[0]))
    # Its kernel takes transposed weights and two biases.
    weights = [
        params["input"].T.contiguous(),
        params["recurrent"].T.contiguous(),
        params["bias"],
        torch.zeros_like(params["bias"]),
    ]
    outputs, _, _ = torch.lstm(inputs, (start, start), weights, True, 1, 0.0, True, False, False)
    return F.mse_loss(outputs @ params["head"], targets)
