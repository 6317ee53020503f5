"""What several clouds, and what is the same everywhere, declare alike in clusters."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.charts import Chart
from slipway.infra.platform import Claim, Store


def wait_for(
    opts: pulumi.ResourceOptions | None, *resources: pulumi.Resource, **more: Any
) -> pulumi.ResourceOptions:
    """``opts``, and ``more`` of them, for what is created after ``resources`` and deleted before them."""
    return pulumi.ResourceOptions.merge(opts, pulumi.ResourceOptions(depends_on=[*resources], **more))


def cluster_provider(
    name: str, kubeconfig: pulumi.Input[str], parent: pulumi.Resource, *, has_secrets: bool, **more: Any
) -> k8s.Provider:
    """The provider of a cluster. It adopts a Job that a killed `up` left, instead of failing on its name."""
    return k8s.Provider(
        name,
        kubeconfig=kubeconfig,
        upsert_existing_objects=True,
        enable_secret_mutable=has_secrets or None,
        opts=pulumi.ResourceOptions(parent=parent),
        **more,
    )


def source(chart: Chart) -> dict[str, Any]:
    """The arguments of a `Release` that say which chart it is of."""
    repository = None if chart.manifest else k8s.helm.v3.RepositoryOptsArgs(repo=chart.repository)
    return {"chart": chart.place, "version": chart.version, "repository_opts": repository}


def image(reference: str) -> dict[str, str]:
    """An image as most charts take it in their values; a digest goes with the tag."""
    repository, _, tag = reference.partition(":")
    return {"repository": repository, "tag": tag}


def kubeconfig_text(context: str, cluster: Mapping[str, Any], program: Mapping[str, Any]) -> str:
    """A kubeconfig with one ``context``; ``cluster`` says where its API is, and ``program`` gets a token."""
    user = {"exec": {"apiVersion": "client.authentication.k8s.io/v1beta1", **program, "interactiveMode": "Never"}}
    return json.dumps(
        {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": context, "cluster": cluster}],
            "users": [{"name": context, "user": user}],
            "contexts": [{"name": context, "context": {"cluster": context, "user": context}}],
            "current-context": context,
        },
        indent=2,
    )


CLAIM = "store"
"""Name of the PersistentVolumeClaim, and of the volume in pods."""


def file_system_volume(size: str, namespace: str, **source: Any) -> k8s.core.v1.PersistentVolumeSpecArgs:
    """The volume for the claim of ``namespace``. Its files outlive the cluster; ``source`` says where they are."""
    return k8s.core.v1.PersistentVolumeSpecArgs(
        capacity={"storage": size},
        access_modes=["ReadWriteMany"],
        volume_mode="Filesystem",
        persistent_volume_reclaim_policy="Retain",
        storage_class_name="",
        claim_ref=k8s.core.v1.ObjectReferenceArgs(
            api_version="v1", kind="PersistentVolumeClaim", namespace=namespace, name=CLAIM
        ),
        **source,
    )


def file_system_store(
    url: pulumi.Input[str], size: str, volume: k8s.core.v1.PersistentVolume, made_of: Sequence[pulumi.Resource]
) -> Store:
    """The store as the pods have it that claim ``volume``; ``made_of`` are what holds its files."""
    return Store(
        url=url,
        volume=k8s.core.v1.VolumeArgs(
            name=CLAIM,
            persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name=CLAIM),
        ),
        claim=Claim(
            name=CLAIM,
            size=size,
            access_mode="ReadWriteMany",
            # None at all, unlike the cluster's default: the claim is for this volume.
            storage_class="",
            # Not the name itself: the claim is deleted before the volume, which waits for it.
            volume_name=volume.metadata.name.apply(str),
        ),
        replaced_with=[*made_of, volume],
    )
