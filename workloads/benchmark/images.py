"""Write JPEG images as TFRecord files, to measure training from the store without ImageNet.

Each image is a blurred pattern with grain, about as large and as slow to decode as ImageNet's photos (500 x 375,
110 kB on average). Run as `python -m workloads.benchmark.images --count 1024 --output DIR`.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from slipway.workloads.runtime.devices import before_import
from slipway.workloads.runtime.exits import OK, run, stop_on_sigterm
from slipway.workloads.runtime.store import finished, publish, staging
from workloads.benchmark.inputs import IMAGE, LABEL

if TYPE_CHECKING:
    import tensorflow as tf

STEP = "benchmark.images"
HEIGHT, WIDTH = 375, 500
CLASSES = 1000
IMAGES_PER_FILE = 128
GRAIN = 19.0
"""Standard deviation of the noise on each of 0 to 255, which decides how large the files get."""
QUALITY = 90


def main(arguments: list[str] | None = None) -> int:
    """Run the step; returns the exit code.

    Raises:
        StepError: STORE_TROUBLE.
    """
    options = _parse(arguments)
    stop_on_sigterm("nothing was published")
    settings = {"count": options.count, "seed": options.seed}
    earlier = finished(options.output, STEP, {}, settings)
    if earlier is not None:
        print(f"Nothing to do: {options.output} holds these {earlier.summary['images']:,} images")
        return OK
    before_import(keras=False)
    with staging() as staged:
        shards = -(-options.count // IMAGES_PER_FILE)
        for shard in range(shards):
            first = shard * IMAGES_PER_FILE
            numbers = range(first, min(first + IMAGES_PER_FILE, options.count))
            _write(staged / f"train-{shard:05d}-of-{shards:05d}", numbers, options.seed)
        size = sum(path.stat().st_size for path in staged.iterdir())
        summary = {"images": options.count, "bytes": size}
        publish(staged, options.output, step=STEP, inputs={}, settings=settings, summary=summary)
    print(f"Wrote {options.count:,} images, {size / 1e6:,.1f} MB in {shards} file(s): {options.output}")
    return OK


def _write(path: Path, numbers: range, seed: int) -> None:
    import tensorflow as tf

    with tf.io.TFRecordWriter(str(path)) as writer:
        for number in numbers:
            jpeg = tf.io.encode_jpeg(_picture(number, seed), quality=QUALITY).numpy()
            features = {
                IMAGE: tf.train.Feature(bytes_list=tf.train.BytesList(value=[jpeg])),
                LABEL: tf.train.Feature(int64_list=tf.train.Int64List(value=[number % CLASSES + 1])),
            }
            writer.write(tf.train.Example(features=tf.train.Features(feature=features)).SerializeToString())


def _picture(number: int, seed: int) -> tf.Tensor:
    import tensorflow as tf

    coarse = tf.random.stateless_uniform([6, 8, 3], [seed, 2 * number], 0, 255)
    grain = tf.random.stateless_normal([HEIGHT, WIDTH, 3], [seed, 2 * number + 1], stddev=GRAIN)
    return tf.saturate_cast(tf.image.resize(coarse, [HEIGHT, WIDTH], "bicubic") + grain, tf.uint8)


def _parse(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m workloads.benchmark.images", description=__doc__)
    parser.add_argument("--output", type=Path, required=True, help="where to publish the files")
    parser.add_argument("--count", type=int, default=1024, help="how many images (default: 1024)")
    parser.add_argument("--seed", type=int, default=0, help="decides the images (default: 0)")
    options = parser.parse_args(arguments)
    if options.count < 1:
        parser.error("--count must be at least 1")
    if not 0 <= options.seed < 2**31:
        parser.error("--seed must be from 0 to 2147483647")
    return options


if __name__ == "__main__":
    run(main)
