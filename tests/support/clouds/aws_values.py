"""Plain values of a small, valid stack on AWS, for tests that change one thing in it."""

from collections.abc import Mapping
from typing import Any

from tests.support.stack_values import GCP

AWS: Mapping[str, Any] = {
    "clusters": {
        "dev": {
            "cloud": "aws",
            "region": "ap-south-1",
            "zones": ["aps1-az1", "aps1-az2"],
            "control_plane": {"authorized_networks": {"here": "203.0.113.7/32"}},
            "pools": {
                "cpu": {"instance_type": "m7i.xlarge", "nodes": {"min": 1, "max": 2}},
                "train": {"instance_type": "g4dn.xlarge", "spot": True, "nodes": {"min": 0, "max": 1}},
                "predict": {"instance_type": "p5.4xlarge", "spot": True, "nodes": {"min": 0, "max": 1}},
            },
        }
    },
    "store": {"kind": "s3"},
    "pipelines": GCP["pipelines"],
}
"""The same pipelines as on Google Cloud, in pools of the same names."""
