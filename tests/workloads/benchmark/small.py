"""The benchmark with a small network in place of ResNet-50, of the same kinds of layers.

What it does around the network is the same, and takes a tenth of the time. By its command line it is
`python -m tests.workloads.benchmark.small` with the arguments of `workloads.benchmark.resnet50`.
"""

from __future__ import annotations

from typing import Any

from slipway.workloads.runtime.exits import run
from workloads.benchmark import resnet50


def network(*, input_shape: tuple[int, ...], classes: int, **_: Any) -> Any:
    """A convolution with a shortcut around it; takes the arguments of `keras.applications.ResNet50`."""
    from keras import Input, Model, layers

    images = Input(input_shape)
    values = layers.Conv2D(2, 3, padding="same")(images)
    normalized = layers.BatchNormalization()(layers.Conv2D(2, 3, padding="same")(values))
    activated = layers.Activation("relu")(layers.Add()([values, normalized]))
    return Model(images, layers.Dense(classes)(layers.GlobalAveragePooling2D()(activated)))


def main(arguments: list[str] | None = None) -> int:
    """The benchmark's own `main`, once its network is replaced."""
    import keras

    keras.applications.ResNet50 = network
    return resnet50.main(arguments)


if __name__ == "__main__":
    run(main)
