"""An image that is built in the cluster from a Dockerfile before the steps that run in it."""

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class ImageBuild:
    """The folder whose files a Dockerfile may copy, the Dockerfile's path in it, and values of its ``ARG``.

    ``context`` is relative to the repository, or absolute. ``name`` tells the image from others of the pipeline;
    it is empty for the one that all steps have that name none.
    """

    context: str
    dockerfile: str = "Dockerfile"
    arguments: Mapping[str, str] = field(default_factory=dict[str, str])
    name: str = ""
