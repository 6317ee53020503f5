"""The kubeconfig of an EKS cluster: where its API is, and how to ask AWS for a token; never a token itself."""

import json
from typing import Any

import pulumi
import pulumi_aws as aws

INSTALL_HINT = (
    "Install the AWS CLI, version 2, which kubectl and Pulumi use to sign in to EKS: "
    "https://docs.aws.amazon.com/cli/latest/userguide/getting-started-install.html"
)


def profile_option() -> list[str]:
    """The AWS CLI's option for the profile that the stack names, where it names one."""
    return ["--profile", aws.config.profile] if aws.config.profile else []


def kubeconfig(cluster: aws.eks.Cluster, name: str, region: str) -> pulumi.Output[str]:
    """A kubeconfig as a secret output; its context is the cluster's ``name``."""
    profile = profile_option()
    found = pulumi.Output.all(cluster.endpoint, cluster.certificate_authority.data)
    return pulumi.Output.secret(found.apply(lambda api: _render(name, region, api, profile)))


def _render(name: str, region: str, api: list[Any], profile: list[str]) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": name, "cluster": {"server": api[0], "certificate-authority-data": api[1]}}],
            "users": [
                {
                    "name": name,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": "aws",
                            "args": [
                                *("eks", "get-token", "--cluster-name", name, "--region", region),
                                *("--output", "json", *profile),
                            ],
                            "installHint": INSTALL_HINT,
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
            "contexts": [{"name": name, "context": {"cluster": name, "user": name}}],
            "current-context": name,
        },
        indent=2,
    )
