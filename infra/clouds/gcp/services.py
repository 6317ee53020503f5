"""The Google Cloud APIs that the stack calls, switched on in its project."""

from collections.abc import Sequence

import pulumi
import pulumi_gcp as gcp

SERVICES = (
    "artifactregistry.googleapis.com",
    "cloudresourcemanager.googleapis.com",
    "compute.googleapis.com",
    "container.googleapis.com",
    "iam.googleapis.com",
    "iamcredentials.googleapis.com",
    "logging.googleapis.com",
    "monitoring.googleapis.com",
    "storage.googleapis.com",
)

IMAGE_STREAMING_SERVICE = "containerfilesystem.googleapis.com"
"""What image streaming reads images through.

Source: https://cloud.google.com/kubernetes-engine/docs/how-to/image-streaming, 2026-11-20.
"""


KEYS_SERVICE = "cloudkms.googleapis.com"

FILESTORE_SERVICE = "file.googleapis.com"


INGRESS_SERVICES = ("certificatemanager.googleapis.com", "iap.googleapis.com")
"""What apps need that people reach by a load balancer: certificates, and Identity-Aware Proxy."""


def enable_services(
    project: str, *, image_streaming: bool, keys: bool, filestore: bool = False, ingress: bool = False
) -> Sequence[gcp.projects.Service]:
    """Switches on the APIs. They stay on when the stack is destroyed: others in the project may use them."""
    names = [*SERVICES]
    if image_streaming:
        names.append(IMAGE_STREAMING_SERVICE)
    if keys:
        names.append(KEYS_SERVICE)
    if filestore:
        names.append(FILESTORE_SERVICE)
    if ingress:
        names.extend(INGRESS_SERVICES)
    return [
        gcp.projects.Service(
            name.partition(".")[0],
            project=project,
            service=name,
            disable_on_destroy=False,
            opts=pulumi.ResourceOptions(custom_timeouts=pulumi.CustomTimeouts(create="20m")),
        )
        for name in names
    ]
