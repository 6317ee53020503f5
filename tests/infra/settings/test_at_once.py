"""A file with many mistakes is corrected once: what is reported first is all there is."""

from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.settings.loading import load
from tests.infra.clouds.existing.test_rules import STACK
from tests.support.clouds.aws_values import AWS
from tests.support.refusals import CPU, PREDICT, STEPS, TRAIN, problems
from tests.support.stack_values import EXISTING, GCP, GONE, changed

Mistakes = Mapping[str, tuple[Any, str]]
"""By the place that is changed: what stands there, and the key that has to be reported."""

ON_AWS: Mistakes = {
    "clusters.dev.cloud": ("asw", "clusters.dev.cloud"),
    f"{TRAIN}.instance_type": (GONE, f"{TRAIN}.instance_type"),
    f"{TRAIN}.labels": ({"role": "a b"}, f"{TRAIN}.labels.role"),
    f"{CPU}.disk_size_gb": ("big", f"{CPU}.disk_size_gb"),
    f"{CPU}.taints": ([{"key": "a b"}], f"{CPU}.taints[0].key"),
    f"{PREDICT}.capacity_block": ("cr-1", f"{PREDICT}.capacity_block"),
    "clusters.dev.control_plane.logs": (["audits"], "clusters.dev.control_plane.logs[0]"),
    "clusters.dev.network": ({"services_cidr": "8.8.0.0/16"}, "clusters.dev.network.services_cidr"),
    "clusters.dev.admins": (["root"], "clusters.dev.admins[0]"),
    "store.kms_key": ("mine", "store.kms_key"),
    "store.mount": ("mountpoint", "store.mount"),
    f"{STEPS}.prepare.memory": (8192, f"{STEPS}.prepare.memory"),
    f"{STEPS}.train.pool": ("trian", f"{STEPS}.train.pool"),
    f"{STEPS}.predict.time_limit": ("soon", f"{STEPS}.predict.time_limit"),
    "namespace": ("kube-system", "namespace"),
}
ON_GCP: Mistakes = {
    "clusters.dev.location": (GONE, "clusters.dev.location"),
    "clusters.dev.control_plane.dns_endpoint": ("perhaps", "clusters.dev.control_plane.dns_endpoint"),
    "clusters.dev.flow_logz": (True, "clusters.dev.flow_logz"),
    f"{TRAIN}.disk_size_gb": ("big", f"{TRAIN}.disk_size_gb"),
    f"{TRAIN}.gpu_partition": ("1g.10gb", f"{TRAIN}.gpu_partition"),
    f"{PREDICT}.spott": ("yes", f"{PREDICT}.spott"),
    f"{PREDICT}.machine_type": (GONE, f"{PREDICT}.machine_type"),
    f"{PREDICT}.nodes": ({"total_min": 3, "total_max": 1}, f"{PREDICT}.nodes.total_min"),
    f"{STEPS}.train.memory": ("500Gi", f"{STEPS}.train.memory"),
    f"{STEPS}.prepare.cpu": ("64", f"{STEPS}.prepare.cpu"),
    "store.bucket": ("Not A Bucket", "store.bucket"),
    "store.location": (GONE, "store.location"),
    "pipelines.mnist.learning_rates": ({3: 0.1}, "pipelines.mnist.learning_rates"),
    "service_account": ("default", "service_account"),
}
ON_EXISTING: Mistakes = {
    "clusters.here.cloud": (GONE, "clusters.here.cloud"),
    "clusters.here.pools.cpu.cpu": (GONE, "clusters.here.pools.cpu.cpu"),
    "clusters.here.pools.cpu.selector": ({"a": "b c"}, "clusters.here.pools.cpu.selector.a"),
    "clusters.here.pools.cpu.acelerator": ("nvidia-t4", "clusters.here.pools.cpu.acelerator"),
    "store.size": ("lots", "store.size"),
    "store.host_path": ("/etc", "store.host_path"),
    f"{STEPS}.train.memory": ("9Gi", f"{STEPS}.train.memory"),
    f"{STEPS}.train.gpu": (1, f"{STEPS}.train.gpu"),
    "pipelines.mnist.epochs": (True, "pipelines.mnist.epochs"),
    "pipelines.mnist.dataset": ({"name": "idx", "source": "/abs"}, "pipelines.mnist.dataset"),
    "pipelines.mnist.source": (7, "pipelines.mnist.source"),
}
SHARED: Mistakes = {
    "store.server": (GONE, "store.server"),
    "store.path": ("/exports/../etc", "store.path"),
    "store.kind": ("nsf", "store.kind"),
    "clusters.here.pools.cpu.memory": ("8 GB", "clusters.here.pools.cpu.memory"),
    "clusters.here.pools.gpu.label_nodes": (["GPU 1", "gpu-2"], "clusters.here.pools.gpu.label_nodes[0]"),
    "clusters.here.device_plugin.version": ("0.19.0", "clusters.here.device_plugin.version"),
    f"{STEPS}.train.image": ("tensorflow:latest", f"{STEPS}.train.image"),
    "policies": ({"suppress": {"x": {"reason": " "}}}, "policies.suppress.x.reason"),
}
ON_NFS = changed(STACK, {"store": {"kind": "nfs", "server": "filer.example.com", "path": "/exports/slipway"}})


@pytest.mark.parametrize(
    ("base", "mistakes"),
    [(AWS, ON_AWS), (GCP, ON_GCP), (EXISTING, ON_EXISTING), (ON_NFS, SHARED)],
    ids=["aws", "gcp", "existing", "nfs"],
)
def test_every_mistake_is_reported_at_once_and_corrected_once(base: Mapping[str, Any], mistakes: Mistakes) -> None:
    load(base)
    refusals = problems(changed(base, {place: value for place, (value, _) in mistakes.items()}))
    reported = {problem.key.removeprefix("slipway:") for problem in refusals}
    assert {key for _, key in mistakes.values()} <= reported
    uncorrected = {place: value for place, (value, key) in mistakes.items() if key not in reported}
    load(changed(base, uncorrected))


def test_problems_come_in_the_order_of_the_file() -> None:
    wrong = changed(GCP, {f"{TRAIN}.nodes": 3, "store.location": "Iowa", f"{STEPS}.predict.gpus": "many"})
    assert [problem.key for problem in problems(wrong)] == [
        f"slipway:{TRAIN}.nodes",
        "slipway:store.location",
        f"slipway:{STEPS}.predict.gpus",
    ]


def test_what_a_misspelt_key_holds_is_judged_as_if_it_were_spelt_right() -> None:
    wrong = changed(GCP, {f"{TRAIN}.acelerator": "nvidia-t4", f"{TRAIN}.accelerator": GONE})
    assert [(problem.key, problem.reason, problem.fix) for problem in problems(wrong)] == [
        (f"slipway:{TRAIN}.acelerator", "there is no such key", "did you mean `accelerator`?"),
        (f"slipway:{TRAIN}.acelerator", "not in the catalogue of accelerators", "did you mean `nvidia-tesla-t4`?"),
    ]


def test_a_mapping_that_an_alias_repeats_is_judged_at_each_place() -> None:
    shared = {"machine_type": "n1-standard-4", "accelerator": "nvidia-tesla-t4", "gpus": "many"}
    values = changed(GCP, {"store.location": "Iowa"})
    values["clusters"]["dev"]["pools"] |= {"train": shared, "predict": shared}
    assert [problem.key for problem in problems(values)] == [
        f"slipway:{TRAIN}.gpus",
        f"slipway:{PREDICT}.gpus",
        "slipway:store.location",
    ]
