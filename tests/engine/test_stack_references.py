"""A program that reads the outputs of another stack gets them as that stack's program exported them."""

import asyncio
from collections.abc import Callable
from typing import Any

import pulumi
import pulumi_kubernetes as k8s
import pytest
from pulumi.runtime.sync_await import _sync_await  # pyright: ignore[reportPrivateUsage]

from slipway.engine.evaluate import evaluate
from slipway.engine.monitor import Evaluation
from slipway.infra.review.stack import Secret

NAME = "acme/slipway/platform"


def platform() -> None:
    bucket = pulumi.CustomResource("gcp:storage/bucket:Bucket", "store", {"name": "bucket"})
    pulumi.export("pools", {"train": {"gpus": 2, "taints": [{"key": "gpu"}]}})
    pulumi.export("kubeconfig", {"dev": pulumi.Output.secret("a secret kubeconfig")})
    pulumi.export("bucket", bucket.id)


def referring(program: Callable[[], object], preview: bool) -> Evaluation:
    there = evaluate(platform, project="slipway", stack="platform", config={}, preview=preview)
    return evaluate(
        program, project="slipway", stack="team", config={}, preview=preview, stacks={NAME: there.exported}
    )


@pytest.mark.parametrize("preview", [False, True])
def test_a_reference_has_the_outputs_of_the_other_stack(preview: bool) -> None:
    read: dict[str, Any] = {}

    def team() -> None:
        reference = pulumi.StackReference(NAME)
        read["pools"] = _sync_await(asyncio.ensure_future(reference.get_output_details("pools"))).value
        read["other"] = _sync_await(asyncio.ensure_future(reference.get_output_details("other"))).value
        provider = k8s.Provider("dev", kubeconfig=reference.require_output("kubeconfig")["dev"])
        k8s.core.v1.ConfigMap(
            "settings",
            data={"bucket": reference.require_output("bucket")},
            opts=pulumi.ResourceOptions(provider=provider),
        )

    by_name = {resource.name: resource for resource in referring(team, preview).resources.values()}
    assert read == {"pools": {"train": {"gpus": 2, "taints": [{"key": "gpu"}]}}, "other": None}
    assert by_name["dev"].properties["kubeconfig"] == Secret("")
    assert by_name["dev"].inputs["kubeconfig"] == "a secret kubeconfig"
    # Which output of the other stack a value is can be told, also where only an update of that stack knows it.
    bucket = by_name["settings"].inputs["data"]["bucket"]
    assert bucket.name == "store.id" if preview else bucket == "bucket"
    assert by_name[NAME].read


def test_nothing_is_known_of_the_outputs_of_a_stack_that_was_not_evaluated() -> None:
    def team() -> None:
        pulumi.export("subnet", pulumi.StackReference("acme/network/prod").require_output("subnet"))

    evaluation = referring(team, preview=True)
    assert not evaluation.outputs["subnet"].known
    assert "acme/network/prod" in " ".join(evaluation.unanswered)
