"""Reading stack files: the repository's own, wrong ones as a whole, and the overlay of a rehearsal."""

from pathlib import Path
from typing import Any

import pytest

from slipway.command.reference import settings
from slipway.infra.clouds.existing.settings import ExistingCluster, PvcStore
from slipway.infra.clouds.gcp.catalogue import allocatable
from slipway.infra.clouds.gcp.settings import GcpCluster, GcpPool, GcsStore
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import lay_over, load, overlay_settings
from slipway.infra.settings.model import Settings
from tests.support.refusals import CPU, PREDICT, STEPS, TRAIN, problems, the_problem
from tests.support.stack_values import EXISTING, GCP, GONE, changed, stack_config

ROOT = Path(__file__).parents[3]


def of_stack(stack: str) -> dict[str, Any]:
    prefix = "slipway:"
    config = stack_config(stack, ROOT)
    return {key.removeprefix(prefix): value for key, value in config.items() if key.startswith(prefix)}


def mnist_of(settings: Settings) -> Any:
    return settings.pipelines["mnist"]


def test_the_local_stack_asks_for_nothing_but_a_kubeconfig() -> None:
    settings = load(of_stack("local"))
    (cluster,) = settings.clusters.values()
    assert isinstance(cluster, ExistingCluster)
    assert isinstance(settings.store, PvcStore)
    assert not any(pool.accelerator or pool.gpus for pool in cluster.pools.values())


def test_the_dev_stack_costs_nothing_while_idle_and_can_go() -> None:
    settings = load(of_stack("gcp-dev"))
    assert not settings.protect
    (cluster,) = settings.clusters.values()
    assert isinstance(cluster, GcpCluster)
    gpu_pools = [pool for pool in cluster.pools.values() if pool.accelerator]
    assert {(pool.machine_type, pool.accelerator) for pool in gpu_pools} == {
        ("n1-standard-4", "nvidia-tesla-t4"),
        ("a3-highgpu-1g", "nvidia-h100-80gb"),
    }
    assert all(pool.spot and (pool.nodes.total_min, pool.nodes.total_max) == (0, 1) for pool in gpu_pools)


PRODUCTION = {
    "model-training": (
        "us-central1-a",
        {
            "machine_type": "n1-standard-4",
            "accelerator": "nvidia-tesla-t4",
            "gpus": 1,
            "max_pods_per_node": 64,
            "disk_size_gb": 300,
            "disk_type": "pd-standard",
            "spot": False,
            "local_ssd_count": 0,
            "image_streaming": True,
            "gvnic": True,
            "labels": {"role": "t4"},
        },
    ),
    "h100-standard": (
        "us-west4-a",
        {
            "machine_type": "a3-highgpu-8g",
            "accelerator": "nvidia-h100-80gb",
            "gpus": 8,
            "max_pods_per_node": 64,
            "disk_size_gb": 2000,
            "disk_type": "pd-ssd",
            "spot": True,
            "local_ssd_count": 16,
            "image_streaming": False,
            "gvnic": False,
            "labels": {"role": "h100"},
        },
    ),
}


@pytest.mark.parametrize("name", PRODUCTION)
def test_production_is_the_tutorials_table(name: str) -> None:
    settings = load(of_stack("gcp-prod"))
    assert settings.protect
    assert isinstance(settings.store, GcsStore)
    zone, keys = PRODUCTION[name]
    cluster = settings.clusters[name]
    assert isinstance(cluster, GcpCluster)
    pool = cluster.pools[name]
    assert isinstance(pool, GcpPool)
    assert cluster.location == zone
    assert pool.nodes.count == 1
    assert {key: getattr(pool, key) for key in keys} == keys
    assert set(keys) <= pool.model_fields_set, "every key of the table is written out in the file"


def test_production_is_rehearsed_without_a_download() -> None:
    raw = of_stack("gcp-prod")
    settings = load(raw)
    assert mnist_of(settings).dataset == "mnist"
    rehearsed = load(
        lay_over({key: raw[key] for key in raw if key != "rehearsal"}, overlay_settings(raw["rehearsal"]))
    )
    assert mnist_of(rehearsed).dataset == "digits"
    assert rehearsed.clusters == settings.clusters


TEN_MISTAKES: dict[str, Any] = {
    f"{TRAIN}.acelerator": "nvidia-tesla-t4",
    f"{TRAIN}.accelerator": GONE,
    f"{TRAIN}.disk_size_gb": "three hundred",
    f"{TRAIN}.nodes": {"total_min": 2, "total_max": 1},
    f"{TRAIN}.zones": ["us-west4-a"],
    f"{PREDICT}.spot": False,
    f"{CPU}.machine_type": GONE,
    "clusters.dev.control_plane": {"authorized_networks": {"everyone": "0.0.0.0/0"}},
    "store.bucket": "Not A Bucket",
    "namespace": "kube-system",
    f"{STEPS}.predict.memory": "500Gi",
}
TEN_KEYS = {
    f"{TRAIN}.acelerator",
    f"{TRAIN}.disk_size_gb",
    f"{TRAIN}.nodes.total_min",
    f"{TRAIN}.zones[0]",
    f"{PREDICT}.machine_type",
    f"{CPU}.machine_type",
    "clusters.dev.control_plane.authorized_networks.everyone",
    "store.bucket",
    "namespace",
    f"{STEPS}.predict.memory",
}


def test_ten_mistakes_of_all_kinds_are_ten_problems_at_once() -> None:
    refusals = problems(changed(GCP, TEN_MISTAKES))
    assert sorted(problem.key for problem in refusals) == sorted(f"slipway:{key}" for key in TEN_KEYS)


def test_the_error_shows_every_problem_with_key_value_reason_and_fix() -> None:
    with pytest.raises(SettingsError) as caught:
        load(changed(GCP, TEN_MISTAKES))
    text = str(caught.value)
    assert text.startswith("10 problems in the stack's settings; nothing was created.")
    for problem in caught.value.problems:
        assert problem.key in text
        assert problem.reason in text
        assert problem.fix in text
    assert "slipway:store.bucket: 'Not A Bucket'" in text


@pytest.mark.parametrize(
    ("changes", "keys"),
    [
        # Without its machine type nothing else of the pool can be judged, nor the step on it.
        ({f"{TRAIN}.machine_type": "n1-sandard-4"}, [f"{TRAIN}.machine_type"]),
        ({f"{TRAIN}.gpus": "many"}, [f"{TRAIN}.gpus"]),
        ({"clusters.dev.pools": 5, "store.location": "Iowa"}, ["clusters.dev.pools", "store.location"]),
        (
            {"rehearsal": {"pipelines": {"mnist": {"dataset": "emnist", "epoch": 2}}}},
            ["rehearsal.pipelines.mnist.dataset", "rehearsal.pipelines.mnist.epoch"],
        ),
        ({"namespace": "Bad", "rehearsal": {"protect": True}}, ["namespace"]),
        ({"rehearsal": {"rehearsal": {"protect": True}}}, ["rehearsal.rehearsal"]),
    ],
)
def test_each_mistake_is_one_problem_of_its_own_key(changes: dict[str, Any], keys: list[str]) -> None:
    assert [problem.key for problem in problems(changed(GCP, changes))] == [f"slipway:{key}" for key in keys]


def test_numbers_stand_for_quantities_as_yaml_reads_them() -> None:
    settings = load(changed(GCP, {f"{STEPS}.train.cpu": 2, f"{STEPS}.prepare.cpu": 1.5}))
    assert mnist_of(settings).steps.train.cpu == "2"
    assert mnist_of(settings).steps.prepare.cpu == "1.5"


def test_a_stack_without_any_setting_is_one_problem() -> None:
    problem = the_problem({})
    assert "begins with `slipway:`" in problem.reason
    assert "docs/your-project.md" in problem.fix


def test_an_overlay_that_makes_another_key_wrong_is_named_for_it() -> None:
    smaller = {"clusters": {"dev": {"pools": {"train": {"disk_size_gb": 10}}}}}
    problem = the_problem(changed(GCP, {"rehearsal": smaller}))
    assert problem.key == "slipway:rehearsal"
    assert f"slipway:{STEPS}.train.ephemeral_storage" in problem.reason


def test_laying_over_replaces_lists_and_keeps_what_is_beside() -> None:
    base = {"a": {"b": [1, 2], "c": 3}, "d": 4}
    assert lay_over(base, {"a": {"b": [5]}, "d": {"e": 6}}) == {"a": {"b": [5], "c": 3}, "d": {"e": 6}}
    assert base == {"a": {"b": [1, 2], "c": 3}, "d": 4}


def test_what_is_not_wrong_is_not_refused() -> None:
    for changes in (
        {TRAIN: {**GCP["clusters"]["dev"]["pools"]["train"], "gpu_sharing": {"clients": 4}}},
        {f"{PREDICT}.gpu_partition": "3g.40gb"},
        {f"{PREDICT}.spot": False, f"{PREDICT}.flex_start": True, f"{PREDICT}.max_run_duration": "7d"},
        {f"{TRAIN}.reservation": "projects/other/reservations/mine"},
        {f"{CPU}.machine_type": "n2-custom-8-32768"},
        {"clusters.dev.control_plane": {"dns_endpoint": False, "authorized_networks": {"hq": "203.0.113.0/24"}}},
        {"pipelines": GONE},
        {f"{STEPS}.train.image": f"ghcr.io/me/image:v1@sha256:{'0' * 64}"},
    ):
        load(changed(GCP, changes))
    load(changed(EXISTING, {"store.host_path": "/var/lib/slipway"}))


def test_steps_may_use_all_that_a_node_leaves_beside_the_stores_mount() -> None:
    settings = load(GCP)
    cluster = settings.clusters["dev"]
    assert isinstance(cluster, GcpCluster)
    node = allocatable(cluster.pools["train"].node_shape)
    most = {f"{STEPS}.train.memory": f"{node.memory - 512}Mi", f"{STEPS}.train.cpu": f"{node.cpu - 250}m"}
    load(changed(GCP, most))
    problem = the_problem(changed(GCP, {f"{STEPS}.train.memory": f"{node.memory - 511}Mi"}))
    assert f"{node.memory - 512}Mi" in problem.fix


def test_the_reference_of_settings_is_up_to_date() -> None:
    assert settings.main(["--check"]) == 0


def test_the_reference_describes_every_key() -> None:
    rows = [line for line in settings.page().splitlines() if line.startswith("| `")]
    assert len(rows) > 80
    assert not [row for row in rows if not row.split("|")[-2].strip()]
