"""The CUDA libraries that TensorFlow's GPU image lacks: published once, and read by GPU steps in that image."""

from slipway.infra.pipelines.contract import Supplement
from slipway.infra.pipelines.images import GPU_IMAGE, TAGS
from slipway.infra.platform import Resources

REQUIREMENTS = "slipway/runtime/cuda/requirements.txt"


def is_lacking(image: str) -> bool:
    """Whether ``image`` is the official one with CUDA, by tag or by any digest."""
    return image.partition("@")[0] == TAGS[1]


LIBRARIES = Supplement(
    name="libraries",
    module="slipway.runtime.cuda.install",
    # Only in the image that the libraries are for can be seen what it lacks.
    image=GPU_IMAGE,
    is_lacking=is_lacking,
    arguments=["--requirements", REQUIREMENTS, "--output", "{output}"],
    # 0.9 GB to download and 1.3 GB unpacked, twice for a moment.
    resources=Resources(cpu=1000, memory=3072, ephemeral_storage=8192),
    # Seconds, for the download and the start of a node.
    time_limit=3600,
    files=[REQUIREMENTS],
    scratch="2Gi",
    scratch_for="the CUDA libraries that TensorFlow's image lacks take 1.3Gi of it",
)

SUPPLEMENTS = {"cuda": LIBRARIES}
"""What images lack, by the name of the folder in the store."""
