"""The step that puts at hand, on a CPU node, the CUDA libraries that TensorFlow's GPU image lacks."""

from dataclasses import replace

from infra.kubernetes.gates import Gates
from infra.pipelines.images import GPU_IMAGE, lacks_cuda_libraries
from infra.platform import Resources
from infra.step import LIBRARIES, Step

MODULE = "workloads.cuda.install"
REQUIREMENTS = "workloads/cuda/requirements.txt"

TIME_LIMIT = 3600
"""Seconds, for a download of 0.9 GB and the start of a node."""


def libraries(beside: Step, gates: Gates) -> Step:
    """The step that publishes the libraries. It runs where ``beside`` runs, a step on a CPU pool."""
    there = beside.pool.allocatable
    return gates.guard(
        Step(
            pipeline="cuda",
            name=LIBRARIES,
            module=MODULE,
            arguments=["--requirements", REQUIREMENTS, "--output", "{output}"],
            # The image that the libraries are for: only in it can be seen what it lacks.
            image=GPU_IMAGE,
            platform=beside.platform,
            pool=beside.pool,
            # 0.9 GB to download and 1.3 GB unpacked, twice for a moment.
            resources=Resources(
                cpu=min(1000, there.cpu),
                memory=min(3072, there.memory),
                ephemeral_storage=min(8192, there.ephemeral_storage),
            ),
            time_limit=TIME_LIMIT,
            files=[REQUIREMENTS],
        )
    )


def with_libraries(step: Step, beside: Step, gates: Gates) -> Step:
    """``step`` with the libraries as an input where its image lacks them, else as it is.

    That image pinned by digest, ``tensorflow/tensorflow:…-gpu@sha256:…``, is the same image.
    """
    if not lacks_cuda_libraries(step.image):
        return step
    return replace(
        step,
        arguments=[*step.arguments, f"--{LIBRARIES}={{{LIBRARIES}}}"],
        inputs={**step.inputs, LIBRARIES: libraries(beside, gates)},
    )
