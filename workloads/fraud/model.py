"""The model: a score of a transaction's features, and a weight for each customer and each terminal."""

import os
import zlib
from collections.abc import Sequence
from pathlib import Path

import numpy as np

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import keras

BUCKETS = 2**17
"""How many names are told apart. Two names that share a bucket share a weight."""
CUSTOMER, TERMINAL = 3.0, 5.0
"""How much a weight of a name counts for: what is learnt of one name rests on its own few transactions."""

Arrays = dict[str, np.ndarray]


def build(features: int, hidden: int, l2: float, learning_rate: float, seed: int) -> keras.Model:
    """A model that knows nothing yet, ready to be trained.

    The weight of a name is zero until a day with the name is learnt; labels of those days are all that it has.
    So it learns which cards and terminals were abused, which are likely to be abused again.
    """
    keras.utils.set_random_seed(seed)
    penalty = keras.regularizers.L2(l2)
    known = keras.Input((features,), name="features")
    scores = [keras.layers.Dense(1, kernel_initializer="zeros", kernel_regularizer=penalty, name="linear")(known)]
    if hidden:
        layer = keras.layers.Dense(hidden, "tanh", kernel_regularizer=penalty, name="hidden")(known)
        last = keras.layers.Dense(1, use_bias=False, kernel_initializer="zeros", kernel_regularizer=penalty)
        scores.append(last(layer))
    names = []
    for kind, factor in (("customer", CUSTOMER), ("terminal", TERMINAL)):
        names.append(keras.Input((), dtype="int32", name=kind))
        weights = keras.layers.Embedding(
            BUCKETS, 1, embeddings_initializer="zeros", embeddings_regularizer=penalty, name=f"weight_of_{kind}"
        )
        scores.append(keras.layers.Rescaling(factor)(weights(names[-1])))
    model = keras.Model([known, *names], keras.layers.Add()(scores))
    model.compile(keras.optimizers.Adam(learning_rate), keras.losses.BinaryCrossentropy(from_logits=True))
    return model


def load_day(path: Path) -> Arrays:
    """What `prepare.py` wrote of a day."""
    with np.load(path) as day:
        return {name: day[name] for name in day.files}


def inputs(day: Arrays) -> list[np.ndarray]:
    """What the model reads of a day: the label is not among it."""
    return [day["features"], _buckets(day["customer"]), _buckets(day["terminal"])]


def scores(model: keras.Model, day: Arrays) -> np.ndarray:
    """The larger, the more likely a fraud: a logit for each transaction."""
    return model.predict_on_batch(inputs(day))[:, 0]


def averaged(models: Sequence[keras.Model]) -> keras.Model:
    """One model with the means of the weights of ``models``."""
    mean = keras.models.clone_model(models[0])
    mean.set_weights(
        [np.mean(layer, axis=0) for layer in zip(*(model.get_weights() for model in models), strict=True)]
    )
    return mean


def _buckets(names: np.ndarray) -> np.ndarray:
    return np.array([zlib.crc32(name.encode()) % BUCKETS for name in names.tolist()], dtype=np.int32)
