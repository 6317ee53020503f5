"""Pools and the store against the nodes and the claim that a cluster has: refused before anything is declared."""

import shutil
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from slipway.infra.clouds.existing.live_cluster import preflight_problems
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.clouds.existing.settings import PvcStore
from slipway.infra.clouds.existing.store import claim_name
from slipway.infra.platform import GPU_RESOURCE
from slipway.infra.program import declare
from slipway.infra.schema.problems import Problem, SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.checkout import ROOT
from tests.support.recording import record
from tests.support.servers.api_server import serving
from tests.support.stack_values import EXISTING, changed

CPU = "clusters.here.pools.cpu"
LINUX = {"kubernetes.io/os": "linux"}
GPU_POOL = {
    "selector": {"gpu": "t4"},
    "taints": [{"key": "nvidia.com/gpu", "value": "present"}],
    "cpu": "4",
    "memory": "8Gi",
    "accelerator": "nvidia-tesla-t4",
    "gpus": 2,
}
GPU_TAINT = {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}
CORDONED = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}
CONTROL_PLANE = {"key": "node-role.kubernetes.io/control-plane", "effect": "NoSchedule"}


def node(
    name: str = "one",
    labels: Mapping[str, str] | None = None,
    taints: Sequence[Mapping[str, str]] = (),
    **allocatable: str,
) -> dict[str, Any]:
    """A node that has what the pools of these tests ask for, unless ``allocatable`` says otherwise."""
    amounts = {"cpu": "4", "memory": "8148856Ki", "ephemeral_storage": "47093746742", **allocatable}
    return {
        "kind": "Node",
        "metadata": {"name": name, "labels": {**LINUX, **(labels or {})}},
        "spec": {"taints": list(taints)} if taints else {},
        "status": {"allocatable": {key.replace("_", "-"): amount for key, amount in amounts.items()}},
    }


def gpu_node(name: str, gpus: str | None, **more: Any) -> dict[str, Any]:
    made = node(name, {"gpu": "t4"}, [GPU_TAINT], memory="8Gi", **more)
    if gpus is not None:
        made["status"]["allocatable"][GPU_RESOURCE] = gpus
    return made


def values(kubeconfig: Path, changes: Mapping[str, Any] | None = None) -> dict[str, Any]:
    here = {
        "clusters.here.kubeconfig": str(kubeconfig),
        f"{CPU}.memory": "7Gi",
        "store.access_mode": "ReadWriteMany",
    }
    return changed(EXISTING, {**here, **(changes or {})})


def settings(kubeconfig: Path, changes: Mapping[str, Any] | None = None) -> Settings:
    return load(values(kubeconfig, changes))


def examined(
    kubeconfig: Path, nodes: Sequence[Mapping[str, Any]], changes: Mapping[str, Any] | None = None
) -> list[Problem]:
    with serving(kubeconfig, nodes):
        return preflight_problems(settings(kubeconfig, changes).request)


def only(seen: Sequence[Problem], key: str, *words: str) -> None:
    """There is one problem, about ``key``, whose texts have all ``words``."""
    assert [problem.key for problem in seen] == [f"slipway:{key}"]
    text = f"{seen[0].reason} {seen[0].fix}"
    assert [word for word in words if word not in text] == []


@pytest.mark.slow
def test_nodes_as_described_give_no_problem(kubeconfig: Path, warnings: list[str]) -> None:
    nodes = [node("tainted", taints=[CONTROL_PLANE]), node("small", cpu="1"), node(), gpu_node("gpu", "2")]
    assert examined(kubeconfig, nodes, {"clusters.here.pools.gpu": GPU_POOL}) == []
    assert warnings == []


@pytest.mark.slow
@pytest.mark.parametrize("preview", [True, False])
def test_a_wrong_selector_is_refused_with_all_other_problems_before_anything_is_declared(
    kubeconfig: Path, tmp_path: Path, preview: bool
) -> None:
    folder = tmp_path / "mnist"
    shutil.copytree(ROOT / "workloads/mnist", folder, ignore=shutil.ignore_patterns("__pycache__", "predict.py"))
    wrong = values(kubeconfig, {f"{CPU}.selector": {"pool": "cpu"}, "pipelines.mnist.uses": str(folder)})
    config = {f"slipway:{key}": value for key, value in wrong.items()}
    with serving(kubeconfig, [node(labels={"pool": "batch"})]), pytest.raises(SettingsError) as raised:
        record(declare, config, preview=preview)
    keys = {problem.key for problem in raised.value.problems}
    assert keys == {f"slipway:{CPU}.selector", f"{folder}/pipeline.yaml: steps.predict.run"}
    assert "`pool=batch`" in str(raised.value)


@pytest.mark.parametrize(
    ("selector", "words"),
    [
        ({"pool": "cpu"}, ["the nodes have `pool=gpu`, `pool=web`"]),
        (
            {"pol": "gpu"},
            ["no node has a label `pol`", "The nodes: `a`, `b`", "kubectl label node <name> pol=gpu"],
        ),
        ({"pool": "gpu", "zone": "1"}, ["each of the labels is on a node, and all of them on none"]),
    ],
)
def test_a_selector_that_no_node_matches(kubeconfig: Path, selector: dict[str, str], words: list[str]) -> None:
    nodes = [node("a", {"pool": "gpu"}), node("b", {"pool": "web", "zone": "1"})]
    only(examined(kubeconfig, nodes, {f"{CPU}.selector": selector}), f"{CPU}.selector", *words)


def test_of_many_nodes_a_few_are_named(kubeconfig: Path) -> None:
    nodes = [node(f"node-{index}") for index in range(40)]
    seen = examined(kubeconfig, nodes, {f"{CPU}.selector": {"pool": "cpu"}})
    only(seen, f"{CPU}.selector", "`node-4` and 35 more")


def test_an_autoscaler_may_still_have_to_add_the_nodes(kubeconfig: Path, warnings: list[str]) -> None:
    wrong = {f"{CPU}.selector": {"pool": "cpu"}}
    only(examined(kubeconfig, [node()], wrong), f"{CPU}.selector", "`autoscaled: true`")
    assert examined(kubeconfig, [node()], {**wrong, f"{CPU}.autoscaled": True}) == []
    assert warnings == []


def test_taints_that_the_pool_does_not_name(kubeconfig: Path) -> None:
    nodes = [node("one", taints=[CONTROL_PLANE]), node("two", taints=[CONTROL_PLANE, GPU_TAINT])]
    seen = examined(kubeconfig, nodes)
    only(seen, f"{CPU}.taints", "node `one`: `node-role.kubernetes.io/control-plane:NoSchedule`")
    fix = '{key: node-role.kubernetes.io/control-plane, value: "", effect: NoSchedule}'
    assert fix in seen[0].fix
    assert examined(kubeconfig, nodes, {f"{CPU}.taints": [CONTROL_PLANE]}) == []


def test_a_taint_of_another_value_is_another_taint(kubeconfig: Path) -> None:
    named = {**GPU_TAINT, "value": "true"}
    seen = examined(kubeconfig, [node(taints=[GPU_TAINT])], {f"{CPU}.taints": [named]})
    only(seen, f"{CPU}.taints", "`nvidia.com/gpu=present:NoSchedule`")


def test_a_taint_that_keeps_nobody_off_is_none(kubeconfig: Path) -> None:
    assert examined(kubeconfig, [node(taints=[{**GPU_TAINT, "effect": "PreferNoSchedule"}])]) == []


def test_a_cordoned_node_is_a_warning(kubeconfig: Path, warnings: list[str]) -> None:
    assert examined(kubeconfig, [node(taints=[CORDONED])]) == []
    assert len(warnings) == 1
    assert "node.kubernetes.io/unschedulable" in warnings[0]


@pytest.mark.parametrize("key", ["ToBeDeletedByClusterAutoscaler", "karpenter.sh/disrupted"])
def test_a_node_that_an_autoscaler_takes_away_is_no_mistake(
    kubeconfig: Path, warnings: list[str], key: str
) -> None:
    leaves = {"key": key, "value": "1795702487", "effect": "NoSchedule"}
    assert examined(kubeconfig, [node(taints=[leaves])], {f"{CPU}.autoscaled": True}) == []
    assert warnings == []


def test_fewer_nodes_than_described_are_a_warning(kubeconfig: Path, warnings: list[str]) -> None:
    assert examined(kubeconfig, [node()], {f"{CPU}.nodes": 2}) == []
    assert len(warnings) == 1
    assert f"slipway:{CPU}.nodes: the cluster has 1 of 2 nodes: `one`" in warnings[0]


@pytest.mark.parametrize(
    ("changes", "key", "words"),
    [
        ({f"{CPU}.cpu": "4001m"}, "cpu", ["4000m, on `two`"]),
        ({f"{CPU}.memory": "8Gi"}, "memory", ["7957Mi, on `one`"]),
        ({f"{CPU}.ephemeral_storage": "50Gi"}, "ephemeral_storage", ["44912Mi, on `one`"]),
    ],
)
def test_more_than_any_node_has(kubeconfig: Path, changes: dict[str, Any], key: str, words: list[str]) -> None:
    nodes = [node("one", cpu="3920m"), node("two", memory="4Gi", ephemeral_storage="1Gi")]
    only(examined(kubeconfig, nodes, changes), f"{CPU}.{key}", *words)


def test_what_a_node_does_not_report_is_not_compared(kubeconfig: Path) -> None:
    silent = node()
    del silent["status"]["allocatable"]["ephemeral-storage"]
    assert examined(kubeconfig, [silent], {f"{CPU}.ephemeral_storage": "50Gi"}) == []


@pytest.mark.parametrize(
    ("gpus", "words"),
    [("1", ["the most is 1, on `gpu`"]), ("0", ["device plugin", "declare"]), (None, ["device plugin"])],
)
def test_fewer_gpus_than_described(kubeconfig: Path, gpus: str | None, words: list[str]) -> None:
    nodes = [node(), gpu_node("gpu", gpus)]
    pools = {"clusters.here.pools.gpu": GPU_POOL}
    only(examined(kubeconfig, nodes, pools), "clusters.here.pools.gpu.gpus", *words)
    # The stack's own plugin has yet to start.
    assert examined(kubeconfig, nodes, {**pools, "clusters.here.device_plugin": {"declare": True}}) == []


def test_nodes_that_the_stack_labels_have_to_be_there_and_need_no_label(kubeconfig: Path) -> None:
    labelled = {
        f"{CPU}.selector": {"slipway/pool": "a"},
        "clusters.here.pools.first": {
            "selector": {"slipway/pool": "a"},
            "label_nodes": ["one"],
            "cpu": "4",
            "memory": "7Gi",
        },
    }
    assert examined(kubeconfig, [node()], labelled) == []
    seen = examined(
        kubeconfig, [node()], {f"{CPU}.selector": {"slipway/pool": "a"}, f"{CPU}.label_nodes": ["one", "on"]}
    )
    only(seen, f"{CPU}.label_nodes[1]", "no such node", "`one`")


def test_nodes_that_the_stack_taints_have_the_pools_taints(kubeconfig: Path) -> None:
    tainted = {
        f"{CPU}.selector": {"slipway/pool": "a"},
        f"{CPU}.label_nodes": ["one"],
        f"{CPU}.taints": [GPU_TAINT],
        f"{CPU}.taint_nodes": True,
    }
    other = {"clusters.here.pools.all": {"selector": LINUX, "cpu": "4", "memory": "7Gi"}}
    assert examined(kubeconfig, [node()], tainted) == []
    seen = examined(kubeconfig, [node()], {**tainted, **other})
    only(seen, "clusters.here.pools.all.taints", "nvidia.com/gpu")


@pytest.mark.parametrize(
    ("manager", "taint_nodes", "fix"),
    [
        ("pulumi-kubernetes-1a2b3c4d", True, ""),
        ("pulumi-kubernetes-1a2b3c4d", False, "taints: []"),
        ("kubectl-taint", False, "list it under `taints`"),
    ],
)
def test_a_taint_that_the_stack_gave_is_taken_back_before_pods_need_it(
    kubeconfig: Path, manager: str, taint_nodes: bool, fix: str
) -> None:
    tainted = node("one", {"slipway/pool": "a"}, [GPU_TAINT])
    tainted["metadata"]["managedFields"] = [
        {"manager": manager, "fieldsV1": {"f:spec": {"f:taints": {}}}},
        {"manager": "kubelet", "fieldsV1": {"f:metadata": {"f:labels": {}}}},
    ]
    pool = {f"{CPU}.selector": {"slipway/pool": "a"}, f"{CPU}.label_nodes": ["one"], f"{CPU}.taints": []}
    problems = examined(kubeconfig, [tainted], {**pool, f"{CPU}.taint_nodes": taint_nodes})
    assert [fix in problem.fix for problem in problems] == [True] * bool(fix)


def test_nodes_that_may_not_be_listed_are_passed_over(kubeconfig: Path, warnings: list[str]) -> None:
    with serving(kubeconfig, [node()], refused=("/api/v1/nodes",)) as cluster:
        assert preflight_problems(settings(kubeconfig, {f"{CPU}.selector": {"pool": "cpu"}}).request) == []
    assert "/api/v1/nodes" in cluster.asked
    assert warnings == []


def test_a_runtime_class_has_to_be_there(kubeconfig: Path) -> None:
    nvidia, named = {"kind": "RuntimeClass", "metadata": {"name": "nvidia"}}, f"{CPU}.runtime_class"
    assert examined(kubeconfig, [node(), nvidia], {named: "nvidia"}) == []
    only(examined(kubeconfig, [node(), nvidia], {named: "nvida"}), named, "did you mean `nvidia`?")
    only(examined(kubeconfig, [node()], {named: "nvidia"}), named, "there is none", "kubectl get runtimeclass")


def test_runtime_classes_are_asked_for_where_a_pool_names_one_and_the_user_may_read_them(kubeconfig: Path) -> None:
    path, named = "/apis/node.k8s.io/v1/runtimeclasses", {f"{CPU}.runtime_class": "nvidia"}
    for changes, times in (({}, 0), (named, 1)):
        with serving(kubeconfig, [node()], refused=(path,)) as cluster:
            assert preflight_problems(settings(kubeconfig, changes).request) == []
        assert cluster.asked.count(path) == times


def test_a_cluster_that_is_switched_off_is_passed_over_in_seconds(kubeconfig: Path) -> None:
    with serving(kubeconfig):
        pass
    began = time.monotonic()
    assert preflight_problems(settings(kubeconfig).request) == []
    assert preflight_problems(settings(kubeconfig.with_name("missing")).request) == []
    assert time.monotonic() - began < 10


def test_rehearsals_and_previews_without_a_cluster_ask_none(kubeconfig: Path) -> None:
    wrong = settings(kubeconfig, {f"{CPU}.selector": {"pool": "cpu"}})
    seen: list[Sequence[Problem]] = []

    def program() -> None:
        ExistingEmulator(wrong.request).prepare()
        seen.append(preflight_problems(wrong.request))

    with serving(kubeconfig, [node()]) as cluster:
        record(program, {}, preview=True)
    assert (seen, cluster.asked) == ([[]], [])


def test_the_context_of_the_settings_is_asked(kubeconfig: Path) -> None:
    assert examined(kubeconfig, [], {"clusters.here.context": "elsewhere"}) == []
    only(examined(kubeconfig, [], {"clusters.here.context": "here"}), f"{CPU}.selector", "The nodes: none")


WITH_NOTEBOOK = """
description: Has a notebook.
steps:
  fit:
    run: [python, fit.py, --output, "{output}"]
apps:
  notes:
    kind: notebook
"""


def claim(kubeconfig: Path, size: str, capacity: str | None = None, storage_class: str = "fast") -> dict[str, Any]:
    """The stack's claim as an earlier `pulumi up` made it with ``size``."""
    earlier = settings(kubeconfig, {"store.size": size})
    assert isinstance(earlier.store, PvcStore)
    return {
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": claim_name(earlier.store, earlier.namespace), "namespace": earlier.namespace},
        "spec": {"storageClassName": storage_class, "resources": {"requests": {"storage": size}}},
        "status": {"capacity": {"storage": capacity or size}},
    }


def storage_class(**more: Any) -> dict[str, Any]:
    return {"kind": "StorageClass", "metadata": {"name": "fast"}, **more}


EXPANDS = storage_class(allowVolumeExpansion=True)


@pytest.mark.parametrize(
    ("classes", "words"),
    [
        ([storage_class()], ["StorageClass `fast` does not set `allowVolumeExpansion`"]),
        ([storage_class(allowVolumeExpansion=False)], ["does not set `allowVolumeExpansion`"]),
        ([], ["StorageClass `fast` is gone"]),
    ],
)
def test_a_claim_grows_only_with_a_class_that_expands(
    kubeconfig: Path, classes: list[dict[str, Any]], words: list[str]
) -> None:
    live = [node(), claim(kubeconfig, "5Gi"), *classes]
    seen = examined(kubeconfig, live, {"store.size": "10Gi"})
    only(seen, "store.size", *words, "has 5Gi and cannot grow", "write `size: 5Gi`")
    assert examined(kubeconfig, live, {"store.size": "5Gi"}) == []
    # The same size, spelt otherwise.
    assert examined(kubeconfig, live, {"store.size": "5120Mi"}) == []


@pytest.mark.parametrize("classes", [[], [EXPANDS]], ids=["gone", "expands"])
def test_the_claim_of_an_app_grows_only_with_a_class_that_expands(
    kubeconfig: Path, tmp_path: Path, classes: list[dict[str, Any]]
) -> None:
    (tmp_path / "pipeline.yaml").write_text(WITH_NOTEBOOK)
    (tmp_path / "fit.py").write_text("")
    lock = "numpy==2.3.0 --hash=sha256:" + "0" * 64
    (tmp_path / "requirements.txt").write_text(lock)

    def with_notebook(size: str) -> dict[str, Any]:
        notes = {"pool": "cpu", "storage": size}
        section = {"uses": str(tmp_path), "steps": {"fit": {"pool": "cpu"}}, "apps": {"notes": notes}}
        return {"pipelines": {"tried": section}}

    live = [
        node(),
        {**claim(kubeconfig, "5Gi"), "metadata": {"name": "tried-notes", "namespace": "slipway"}},
        *classes,
    ]
    assert examined(kubeconfig, live, with_notebook("5Gi")) == []
    assert examined(kubeconfig, [node()], with_notebook("10Gi")) == []
    seen = examined(kubeconfig, live, with_notebook("10Gi"))
    key = "pipelines.tried.apps.notes.storage"
    if classes:
        assert seen == []
    else:
        only(seen, key, "claim `tried-notes`", "has 5Gi and cannot grow", "write `storage: 5Gi`")
    only(examined(kubeconfig, live, with_notebook("4Gi")), key, "shrinks no volume")


def test_a_claim_with_a_class_that_expands_may_grow_and_not_shrink(kubeconfig: Path) -> None:
    live = [node(), claim(kubeconfig, "5Gi"), EXPANDS]
    assert examined(kubeconfig, live, {"store.size": "10Gi"}) == []
    only(examined(kubeconfig, live, {"store.size": "4Gi"}), "store.size", "has 5Gi", "shrinks no volume")


def test_a_size_whose_growth_failed_may_go_back_to_more_than_the_volume_has(kubeconfig: Path) -> None:
    live = [node(), claim(kubeconfig, "500Gi", "5Gi"), EXPANDS]
    assert examined(kubeconfig, live, {"store.size": "6Gi"}) == []
    only(examined(kubeconfig, live, {"store.size": "5Gi"}), "store.size", "shrinks no volume")


def test_the_first_claim_may_have_any_size(kubeconfig: Path) -> None:
    assert examined(kubeconfig, [node()], {"store.size": "1Gi"}) == []


def test_a_claim_is_checked_where_nodes_may_not_be_listed(kubeconfig: Path) -> None:
    live = [claim(kubeconfig, "5Gi"), storage_class()]
    with serving(kubeconfig, live, refused=("/api/v1/nodes",)):
        only(preflight_problems(settings(kubeconfig, {"store.size": "9Gi"}).request), "store.size", "cannot grow")


def test_a_class_that_may_not_be_read_is_passed_over(kubeconfig: Path) -> None:
    path = "/apis/storage.k8s.io/v1/storageclasses/fast"
    with serving(kubeconfig, [node(), claim(kubeconfig, "5Gi"), storage_class()], refused=(path,)) as cluster:
        assert preflight_problems(settings(kubeconfig, {"store.size": "9Gi"}).request) == []
    assert path in cluster.asked


NETWORK = {"resource": "rdma/hca", "count": 2}


def test_a_network_that_no_node_offers(kubeconfig: Path) -> None:
    pool = {"clusters.here.pools.gpu": {**GPU_POOL, "interconnect": NETWORK}}
    seen = examined(kubeconfig, [node(), gpu_node("gpu", "2")], pool)
    only(seen, "clusters.here.pools.gpu.interconnect.resource", "not even `gpu`", "device plugin")
    seen = examined(kubeconfig, [node(), gpu_node("gpu", "2", **{"rdma/hca": "1"})], pool)
    only(seen, "clusters.here.pools.gpu.interconnect.count", "the most is 1", "write 1")
    assert examined(kubeconfig, [node(), gpu_node("gpu", "2", **{"rdma/hca": "2"})], pool) == []
