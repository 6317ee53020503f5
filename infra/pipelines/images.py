"""TensorFlow's official container images (hub.docker.com/r/tensorflow/tensorflow)."""

from infra.platform import Pool

CPU_IMAGE = "tensorflow/tensorflow:2.21.0"
"""The version that requirements.txt pins too, so that a rehearsal runs what a cluster runs."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs."""
    return f"{CPU_IMAGE}-gpu" if pool.accelerator else CPU_IMAGE
