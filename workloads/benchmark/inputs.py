"""What the benchmark trains on: numbers that lie on the devices already, or images from the store.

Stored images are TFRecord files as the Inception and ResNet models' scripts make them of ImageNet, named
`train-00000-of-01024`: each record has a JPEG in `image/encoded` and a class from 1 to 1000 in
`image/class/label`. `workloads.benchmark.images` writes some without ImageNet.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from slipway.workloads.runtime.exits import BAD_INPUT, StepError
from slipway.workloads.runtime.store import MANIFEST, NotWholeError, load_manifest, store_errors

if TYPE_CHECKING:
    import tensorflow as tf

SYNTHETIC = "synthetic"
PATTERN = "train-*-of-*"
IMAGE, LABEL = "image/encoded", "image/class/label"
READ_AT_ONCE = 10
"""Files that are read side by side: a mounted bucket answers slowly, but to many at once."""


def files(folder: Path) -> list[Path]:
    """The TFRecord files of `folder`, sorted: those that its manifest names, or all of that name without one.

    Raises:
        StepError: with BAD_INPUT where there are none, or one is missing or has another size than its manifest
        says.
    """
    with store_errors(folder):
        if not (folder / MANIFEST).exists():
            paths = sorted(path for path in folder.glob(PATTERN) if path.is_file())
            if not paths:
                raise StepError(BAD_INPUT, f"{folder}: no file {PATTERN}; workloads.benchmark.images writes some")
            return paths
        entries = load_manifest(folder).files
        for name, entry in entries.items():
            # Sizes alone: reading everything once to check it would leave it in the node's cache. Each record has
            # a checksum of its own, which TensorFlow verifies.
            if not (folder / name).is_file() or (folder / name).stat().st_size != entry.size:
                raise NotWholeError(folder, f"{name} is missing or has another size than its manifest says")
    return [folder / name for name in sorted(entries)]


def digest(folder: Path) -> str:
    """What names the content of `folder`: its manifest's digest, or that of names and sizes without one."""
    paths = files(folder)
    with store_errors(folder):
        if (folder / MANIFEST).exists():
            return load_manifest(folder).digest
        sizes = "".join(f"{path.name} {path.stat().st_size}\n" for path in paths)
    return hashlib.sha256(sizes.encode()).hexdigest()


@dataclass(frozen=True)
class Batches:
    """Batches without end for a training on `strategy`, whose replicas run on this process's `devices` (none: the
    CPU).

    Each replica gets `batch` images of `size` x `size`; `seed` decides which.
    """

    strategy: tf.distribute.Strategy
    devices: list[str]
    batch: int
    size: int
    seed: int

    def synthetic(self, classes: int) -> Iterator[tuple[Any, Any]]:
        """The same random images and labels again and again, made once, on each replica's own device."""
        import tensorflow as tf

        def images(replica: int) -> tf.Tensor:
            return tf.random.stateless_normal([self.batch, self.size, self.size, 3], [self.seed, replica])

        def labels(replica: int) -> tf.Tensor:
            return tf.random.stateless_uniform([self.batch], [self.seed, replica], 0, classes, tf.int32)

        return itertools.repeat((self._on_each(images), self._on_each(labels)))

    def _on_each(self, make: Callable[[int], tf.Tensor]) -> Any:
        import tensorflow as tf

        def value(context: tf.distribute.ValueContext) -> tf.Tensor:
            replica = context.replica_id_in_sync_group
            with tf.device(self.devices[replica % len(self.devices)] if self.devices else None):
                return make(replica)

        return self.strategy.experimental_distribute_values_from_function(value)

    def stored(self, folder: Path) -> Iterator[tuple[Any, Any]]:
        """The images of `folder`, read, decoded, cropped and flipped at random while the step before runs."""
        import tensorflow as tf

        names = [str(path) for path in files(folder)]
        if self.strategy.num_replicas_in_sync > 1:
            # They go on for ever, and processes that are told so need not ask each other before each step.
            def of_process(context: tf.distribute.InputContext) -> tf.data.Dataset:
                return (
                    self._of_files(names, context.num_input_pipelines, context.input_pipeline_id)
                    .repeat()
                    .prefetch(2)
                )

            return iter(self.strategy.distribute_datasets_from_function(of_process))
        batches = self._of_files(names)
        if self.devices and "GPU" in self.devices[0]:
            return iter(batches.apply(tf.data.experimental.prefetch_to_device(self.devices[0])))
        return iter(batches.prefetch(2))

    def _of_files(self, names: list[str], processes: int = 1, process: int = 0) -> tf.data.Dataset:
        """Batches of one replica from the files that one of several processes reads.

        Each file has one reader. Where there are fewer files than processes all read all, and use a part.
        """
        import tensorflow as tf

        shared = len(names) >= processes
        read = names[process::processes] if shared else names

        def records_of(name: tf.Tensor) -> tf.data.Dataset:
            in_file = tf.data.TFRecordDataset(name)
            return in_file if shared else in_file.shard(processes, process)

        records = (
            tf.data.Dataset.from_tensor_slices(read)
            .shuffle(len(read), self.seed)
            .repeat()
            .interleave(records_of, cycle_length=READ_AT_ONCE, num_parallel_calls=tf.data.AUTOTUNE)
        )
        numbers = tf.data.Dataset.random(self.seed + process, rerandomize_each_iteration=False)
        return (
            tf.data.Dataset.zip((records, numbers))
            .map(
                lambda record, number: _example(record, tf.stack([self.seed, number]), self.size),
                num_parallel_calls=tf.data.AUTOTUNE,
            )
            .batch(self.batch, drop_remainder=True)
        )


def _example(record: tf.Tensor, seed: tf.Tensor, size: int) -> tuple[tf.Tensor, tf.Tensor]:
    """Part of the image as ResNet is trained on it, (size, size, 3) uint8, and its class counted from 0."""
    import tensorflow as tf

    features = tf.io.parse_single_example(
        record, {IMAGE: tf.io.FixedLenFeature([], tf.string), LABEL: tf.io.FixedLenFeature([], tf.int64)}
    )
    begin, extent, _ = tf.image.stateless_sample_distorted_bounding_box(
        tf.io.extract_jpeg_shape(features[IMAGE]),
        tf.zeros([0, 0, 4], tf.float32),
        seed,
        min_object_covered=0.1,
        aspect_ratio_range=(0.75, 4 / 3),
        area_range=(0.08, 1.0),
        use_image_if_no_bounding_boxes=True,
    )
    window = tf.concat([begin[:2], extent[:2]], axis=0)
    image = tf.image.decode_and_crop_jpeg(features[IMAGE], window, channels=3)
    image = tf.image.stateless_random_flip_left_right(tf.image.resize(image, [size, size]), seed)
    return tf.ensure_shape(tf.cast(image, tf.uint8), [size, size, 3]), tf.cast(features[LABEL] - 1, tf.int32)
