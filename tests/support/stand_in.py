"""A place to run that no cloud knows: what tests of the parts above `slipway.infra.platform` declare Jobs on."""

from collections.abc import Sequence

import pulumi
import pulumi_kubernetes as k8s

from slipway.infra.placed import Step
from slipway.infra.platform import Claim, Platform, Pool, Resources, Store, Taint

GPU_TAINT = Taint("nvidia.com/gpu", "present", "NoSchedule")


def cpu_pool(name: str = "cpu", cluster: str = "here", max_nodes: int = 2) -> Pool:
    return Pool(
        name=name,
        cluster=cluster,
        selector={"pool": name},
        taints=[],
        allocatable=Resources(cpu=3900, memory=13000, ephemeral_storage=40000),
        max_nodes=max_nodes,
    )


def gpu_pool(
    name: str = "gpu",
    *,
    gpus: int = 1,
    taints: Sequence[Taint] = (GPU_TAINT,),
    shared: bool = False,
    resources: Sequence[pulumi.Resource] = (),
) -> Pool:
    return Pool(
        name=name,
        cluster="here",
        selector={"pool": name},
        taints=taints,
        allocatable=Resources(cpu=3900, memory=13000, ephemeral_storage=40000, gpus=gpus),
        max_nodes=1,
        accelerator="nvidia-tesla-t4",
        resources=resources,
        shared_gpus=shared,
    )


def platform(*pools: Pool, name: str = "here", ready: Sequence[pulumi.Resource] = ()) -> Platform:
    """Declares the provider of the platform ``name``, whose store is a claim."""
    return Platform(
        name=name,
        provider=k8s.Provider(name, kubeconfig="{}"),
        kubeconfig=pulumi.Output.secret("{}"),
        pools={pool.name: pool for pool in pools or (cpu_pool(), gpu_pool())},
        store=Store(
            url="pvc://slipway/store",
            volume=k8s.core.v1.VolumeArgs(
                name="store",
                persistent_volume_claim=k8s.core.v1.PersistentVolumeClaimVolumeSourceArgs(claim_name="store"),
            ),
            pod_annotations={"store.example/mount": "true"},
            claim=Claim("store", "1Gi", "ReadWriteOnce"),
        ),
        service_account_annotations={"identity.example/account": "runner@example"},
        ready=ready,
        connect="true",
        kubectl="kubectl --context here",
    )


def step(on: Platform, pool: str = "cpu", name: str = "train", **changes: object) -> Step:
    values: dict[str, object] = {
        "pipeline": "digits",
        "name": name,
        "module": f"work.{name}",
        "arguments": ["--output", "{output}"],
        "image": "example/image:1",
        "platform": on,
        "pool": on.pools[pool],
        "resources": Resources(cpu=1000, memory=2048, ephemeral_storage=1024),
        "time_limit": 3600,
        **changes,
    }
    return Step(**values)  # type: ignore[arg-type]
