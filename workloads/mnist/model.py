"""The network that reads digits: one convolution and two dense layers, as in TensorFlow's tutorial "Distributed
training with Keras" (tensorflow.org/tutorials/distribute/keras, seen November 2026).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import keras

CLASSES = 10
IMAGE_SHAPE = (28, 28, 1)
"""Height, width and channels of an input image: uint8, 0 to 255, white on black."""
PIXEL_SCALE = 1 / 255


def build(optimizer: keras.Optimizer | None = None, steps_per_execution: int = 1) -> keras.Model:
    """A new, compiled network: images (batch, 28, 28, 1) uint8 in, logits (batch, 10) float32 out.

    The scaling to 0..1 is its first layer, so that whoever serves it cannot forget it and images travel as
    bytes. `optimizer` is Keras' Adam where it is not given; `steps_per_execution` is how many training steps
    TensorFlow runs before it comes back to Python.
    """
    import keras
    from keras import layers

    model = keras.Sequential(
        [
            keras.Input(IMAGE_SHAPE, dtype="uint8", name="image"),
            layers.Rescaling(PIXEL_SCALE),
            layers.Conv2D(32, 3, activation="relu"),
            layers.MaxPooling2D(),
            layers.Flatten(),
            layers.Dense(64, activation="relu"),
            layers.Dense(CLASSES),
        ],
        name="mnist",
    )
    model.compile(
        loss=keras.losses.SparseCategoricalCrossentropy(from_logits=True),
        optimizer=optimizer or keras.optimizers.Adam(),
        metrics=["accuracy"],
        # XLA reached a third of the speed on a CPU, and Keras leaves it out under MirroredStrategy; this way one
        # GPU runs what many run.
        jit_compile=False,
        steps_per_execution=steps_per_execution,
    )
    return model


def parse_learning_rates(text: str) -> dict[int, float]:
    """Read `0:1e-3,3:1e-4`: from each epoch (counted from 0) on, the learning rate after its colon.

    Raises:
        ValueError: another form, no rate for epoch 0, an epoch twice, or a rate that is not above 0 and at most 1.
    """
    rates: dict[int, float] = {}
    for part in text.split(","):
        epoch_text, colon, rate_text = part.partition(":")
        try:
            epoch, rate = int(epoch_text), float(rate_text)
        except ValueError:
            colon = ""
        if not colon or epoch < 0 or epoch in rates or not 0 < rate <= 1:
            raise ValueError(f"{part!r} is not EPOCH:RATE with a new epoch and a rate above 0 and at most 1")
        rates[epoch] = rate
    if 0 not in rates:
        raise ValueError("the rate of epoch 0 is missing")
    return dict(sorted(rates.items()))


def learning_rate(rates: dict[int, float], epoch: int) -> float:
    """The learning rate of an epoch, counted from 0."""
    return rates[max(start for start in rates if start <= epoch)]
