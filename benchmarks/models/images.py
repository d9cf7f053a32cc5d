"""Networks of convolutions and windows, of transformers with random weights, at the sizes of their papers."""

from typing import Any

IMAGE, CLASSES = 224, 1000


def resnet50(layers: int | None) -> Any:
    """ResNet-50, whose batch norms are in training."""
    import transformers as hf

    config = hf.ResNetConfig(depths=_depths((3, 4, 6, 3), layers), num_labels=CLASSES)
    return hf.ResNetForImageClassification(config)


def convnext(layers: int | None) -> Any:
    """ConvNeXt-T."""
    import transformers as hf

    config = hf.ConvNextConfig(depths=_depths((3, 3, 9, 3), layers), num_labels=CLASSES)
    return hf.ConvNextForImageClassification(config)


def swin(layers: int | None) -> Any:
    """Swin-T, whose windows are 7 by 7."""
    import transformers as hf

    more = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0, "drop_path_rate": 0.0}
    config = hf.SwinConfig(depths=_depths((2, 2, 6, 2), layers), num_labels=CLASSES, **more)
    return hf.SwinForImageClassification(config)


def mobilenet(layers: int | None) -> Any:
    """MobileNetV2, whose batch norms are in training; it has one depth."""
    import transformers as hf

    del layers
    config = hf.MobileNetV2Config(num_labels=CLASSES, classifier_dropout_prob=0.0)
    return hf.MobileNetV2ForImageClassification(config)


def _depths(whole: tuple[int, ...], layers: int | None) -> list[int]:
    return [min(depth, layers or depth) for depth in whole]
