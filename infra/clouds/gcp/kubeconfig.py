"""The kubeconfig of a GKE cluster: where its API is, and how to ask Google for a token; never a token itself."""

import json
from typing import Any

import pulumi
import pulumi_gcp as gcp

AUTH_PLUGIN = "gke-gcloud-auth-plugin"

INSTALL_HINT = (
    f"Install {AUTH_PLUGIN}, which kubectl and Pulumi use to sign in to GKE: "
    "https://cloud.google.com/kubernetes-engine/docs/how-to/cluster-access-for-kubectl#install_plugin"
)


def context_name(project: str, location: str, cluster: str) -> str:
    """The context's name, as ``gcloud container clusters get-credentials`` makes it."""
    return f"gke_{project}_{location}_{cluster}"


def dns_endpoint(cluster: gcp.container.Cluster) -> pulumi.Output[str]:
    """The host name of the cluster's API: unlike the name of a cluster, no two clusters ever have the same."""
    # The link is there to wait for: the endpoints' own settings are known before the cluster has a host name.
    return pulumi.Output.all(
        cluster.self_link, cluster.control_plane_endpoints_config.dns_endpoint_config.endpoint
    ).apply(_second)


def kubeconfig(cluster: gcp.container.Cluster, context: str, use_dns_endpoint: bool) -> pulumi.Output[str]:
    """A kubeconfig as a secret output.

    With the DNS endpoint the server's certificate is signed by a public authority, so it names none of its own.
    """
    if use_dns_endpoint:
        api = dns_endpoint(cluster).apply(lambda host: {"server": f"https://{host}"})
    else:
        api = pulumi.Output.all(cluster.endpoint, cluster.master_auth.cluster_ca_certificate).apply(
            lambda found: {"server": f"https://{found[0]}", "certificate-authority-data": found[1]}
        )
    return pulumi.Output.secret(api.apply(lambda found: _render(context, found)))


def _second(found: list[Any]) -> str:
    return found[1]


def _render(context: str, api: dict[str, str]) -> str:
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": api}],
            "users": [
                {
                    "name": context,
                    "user": {
                        "exec": {
                            "apiVersion": "client.authentication.k8s.io/v1beta1",
                            "command": AUTH_PLUGIN,
                            "installHint": INSTALL_HINT,
                            "provideClusterInfo": True,
                            "interactiveMode": "Never",
                        }
                    },
                }
            ],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        },
        indent=2,
    )
