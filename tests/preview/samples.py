"""Previews made by hand, with something in every place."""

import io

from rich.console import Console

from slipway.evaluated.model import (
    Changes,
    Cost,
    CostDifference,
    CostLine,
    Failure,
    Finding,
    JobRun,
    Operation,
    Outcome,
    Preview,
    PropertyChange,
    QuotaNeed,
    ResourceChange,
    RunCost,
    StackPreview,
    StepCost,
    Suppressed,
)
from slipway.infra.review.contract import Severity
from slipway.preview.terminal import show

POOL = "urn:pulumi:dev::slipway::slipway:gcp:GkeCluster$gcp:container/nodePool:NodePool::dev-train"
JOB = "urn:pulumi:dev::slipway::slipway:kubernetes:StepJob$kubernetes:batch/v1:Job::mnist-train"


def finding(policy: str = "public-bucket", severity: Severity = Severity.ERROR, name: str = "store") -> Finding:
    return Finding(
        policy=policy,
        severity=severity,
        resource=f"urn:{name}",
        name=name,
        reason="everybody can read it",
        fix="enforce `publicAccessPrevention`",
    )


def changes(properties: int = 1, resources: int = 1) -> Changes:
    return Changes(
        resources=[
            ResourceChange(
                urn=f"{POOL}-{index}",
                type="gcp:container/nodePool:NodePool",
                name=f"dev-train-{index}",
                operation=Operation.REPLACE,
                properties=[
                    PropertyChange(
                        path=f"nodeConfig.diskType{n}", before="a|b", after=f"c`d{index or ''}", forces=n == 0
                    )
                    for n in range(properties)
                ],
            )
            for index in range(resources)
        ]
        + [
            ResourceChange(
                urn=JOB,
                type="kubernetes:batch/v1:Job",
                name="mnist-train",
                operation=Operation.REPLACE,
                properties=[
                    PropertyChange(
                        path="metadata.name",
                        before="mnist-train-0123456789",
                        after="mnist-train-abcdef0123",
                        forces=True,
                    )
                ],
            )
        ],
        unchanged=70,
        runs=[
            JobRun(
                urn=JOB,
                name="mnist-train",
                outcome=Outcome.RUNS,
                cluster="dev",
                pool="train",
                accelerator="nvidia-tesla-t4",
                gpus=1,
                because="workloads/mnist/train.py changed",
            )
        ],
    )


def cost(unknown: tuple[str, ...] = ()) -> Cost:
    return Cost(
        idle_hourly=0.18,
        idle_monthly=131.4,
        most_hourly=1.5,
        least_nodes=1,
        most_nodes=3,
        run=RunCost(
            dollars=0.42,
            most=0.42,
            steps=[
                StepCost(
                    job="mnist-train", pool="train", seconds=600, basis="limit", dollars=0.4, paid_anyway=False
                )
            ],
        ),
        lines=[
            CostLine(
                resource="dev-cpu", what="e2-standard-4", hourly=0.134, idle=0.134, most=0.268, as_of="2026-01-05"
            ),
            *(CostLine(resource=name, what="z9-huge", hourly=None, idle=None, most=None) for name in unknown),
            CostLine(
                resource="store",
                what="storage",
                hourly=None,
                idle=None,
                most=None,
                metered=True,
                metered_price="$0.02 per GiB-month",
            ),
        ],
        unknown=list(unknown),
    )


def stack(name: str = "gcp-dev", *, properties: int = 1, resources: int = 1) -> StackPreview:
    return StackPreview(
        stack=name,
        resources=74,
        changes=changes(properties, resources),
        cost=cost(),
        difference=CostDifference(idle_hourly=0.02, idle_monthly=14.6, most_hourly=0),
        findings=[finding(), finding("gpu-pool-always-on", Severity.WARNING, "train")],
        suppressed=[
            Suppressed(finding=finding("unprotected-stack"), why="a sandbox @everyone", until="2027-01-01")
        ],
        quotas=[
            QuotaNeed(metric="NVIDIA_T4_GPUS", where="us-central1", needed=1, unit="GPUs", see="gcloud compute …")
        ],
    )


def broken(name: str = "wrong") -> StackPreview:
    return StackPreview(
        stack=name,
        failures=[
            Failure(
                revision="base",
                message="1 problem in the stack's settings",
                problems=[
                    {"key": "slipway:store.kind", "value": "'gsc'", "reason": "not a kind", "fix": "write `gcs`"}
                ],
            )
        ],
    )


def preview(*stacks: StackPreview, base: str = "origin/main (1a2b3c4)") -> Preview:
    return Preview(base=base, prices_as_of="2026-01-05", stacks=list(stacks))


def printed(content: Preview, width: int = 160) -> str:
    """What a terminal shows."""
    file = io.StringIO()
    show(content, Console(file=file, width=width, highlight=False))
    return file.getvalue()
