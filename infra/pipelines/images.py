"""TensorFlow's official container images (hub.docker.com/r/tensorflow/tensorflow)."""

from infra.platform import Pool

CPU_IMAGE = "tensorflow/tensorflow:2.21.0"
"""The version that requirements.txt pins too, so that a rehearsal runs what a cluster runs."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs.

    The ``-gpu`` images from 2.18 on are reported to bring cuDNN 8.9 where TensorFlow loads 9, and to find no GPU
    then (github.com/tensorflow/build, issue 221, open; read 2026-11-20). The accelerator gate refuses such an
    image before a step uses it; the setting ``image`` of a step names another.
    """
    return f"{CPU_IMAGE}-gpu" if pool.accelerator else CPU_IMAGE
