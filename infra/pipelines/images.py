"""TensorFlow's official container images (hub.docker.com/r/tensorflow/tensorflow)."""

from infra.platform import Pool

CPU_IMAGE = "tensorflow/tensorflow:2.21.0"
"""The version that requirements.txt pins too, so that a rehearsal runs what a cluster runs."""

GPU_IMAGE = f"{CPU_IMAGE}-gpu"
"""The same with CUDA, but from 2.18 on with cuDNN 8.9 where TensorFlow loads 9, so that it finds no GPU
(github.com/tensorflow/build, issue 221, open; read 2026-11-20). ``infra.pipelines.cuda`` has what it lacks."""


def tensorflow_image(pool: Pool) -> str:
    """The image for steps on ``pool``: with CUDA where the pool has GPUs."""
    return GPU_IMAGE if pool.accelerator else CPU_IMAGE
