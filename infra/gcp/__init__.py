"""Google Cloud: GKE clusters with GPU node pools, a bucket they share, and the identity that may use it."""

from infra.gcp.checks import problems
from infra.gcp.platforms import platforms

__all__ = ["platforms", "problems"]
