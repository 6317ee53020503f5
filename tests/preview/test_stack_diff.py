"""What an update would do, on small stacks made by hand: one rule each."""

from dataclasses import replace
from typing import Any

import pytest

from slipway.evaluated.model import Changes, Operation, ResourceChange
from slipway.evaluated.operations import compare_resources
from slipway.infra.kubernetes.review import REVIEW as KUBERNETES
from slipway.infra.review.contract import Review
from slipway.infra.review.facts import InPlace, Source
from slipway.infra.review.stack import KUBERNETES_PROVIDER, UNKNOWN, Resource, Secret, Stack, Unknown
from slipway.preview import differences
from slipway.preview.differences import output_remarks
from tests.support.reviewing import declared

CLUSTER = "cloud:index:Cluster"
POOL = "cloud:index:Pool"
POLICY = "cloud:index:Policy"
TEMPLATE = "cloud:index:Template"
CONFIG_MAP = "kubernetes:core/v1:ConfigMap"

REVIEW = Review(
    replacing=lambda: {
        CLUSTER: ["location", "name"],
        POOL: ["cluster", "template.id", "config.spot", "config.disks{}", "config.disks.size"],
        POLICY: [],
        TEMPLATE: [],
    },
    in_place=lambda: {POOL: [InPlace(["config.taints"], "nodes are kept", Source("https://example.org", None))]},  # type: ignore[arg-type]
    moving=frozenset({TEMPLATE}),
    computed=lambda: {POOL: ["config.zones"]},
)


def stack(*resources: Resource) -> Stack:
    return Stack("test", {resource.urn: resource for resource in resources})


def compare(before: Stack, after: Stack) -> Changes:
    return differences.compare(before, after, compare_resources(before, after, [REVIEW, KUBERNETES]))


def changed(before: Resource, after: Resource) -> ResourceChange:
    (change,) = compare(stack(before), stack(after)).resources
    return change


def changes(before: list[Resource], after: list[Resource]) -> dict[str, ResourceChange]:
    return {resource.name: resource for resource in compare(stack(*before), stack(*after)).resources}


def paths(change: ResourceChange) -> dict[str, tuple[Any, Any, bool]]:
    return {each.path: (each.before, each.after, each.forces) for each in change.properties}


def cluster(location: str = "here", **more: Any) -> Resource:
    return declared(CLUSTER, "main", {"name": "main", "location": location}, **more)


def pool(of: Resource, config: dict[str, Any] | None = None, **more: Any) -> Resource:
    return declared(
        POOL,
        "cpu",
        {"cluster": UNKNOWN, "config": config or {}},
        property_dependencies={"cluster": frozenset({of.urn})},
        dependencies=frozenset({of.urn}),
        **more,
    )


def test_nothing_changed() -> None:
    both = stack(cluster(), pool(cluster()), declared("cloud:index:Around", "it", custom=False))
    found = compare(both, both)
    assert found.resources == []
    assert found.unchanged == 2
    assert found.remarks == []


def test_created_and_deleted_resources_list_no_properties() -> None:
    found = changes([declared(POLICY, "old", {"text": "a"})], [declared(POLICY, "new", {"text": "a"})])
    assert {name: (each.operation, each.properties) for name, each in found.items()} == {
        "new": (Operation.CREATE, []),
        "old": (Operation.DELETE, []),
    }


def test_components_and_lookups_are_not_changes() -> None:
    before = [declared(POLICY, "seen", {"id": "a"}, read=True), declared("cloud:index:Around", custom=False)]
    found = compare(stack(*before), stack())
    assert found.resources == []


def test_an_update_in_place_says_what_it_means() -> None:
    change = changed(pool(cluster(), {"taints": []}), pool(cluster(), {"taints": [{"key": "gpu"}]}))
    assert change.operation is Operation.UPDATE
    assert paths(change) == {"config.taints[0]": (None, {"key": "gpu"}, False)}
    assert change.note == "nodes are kept"
    assert change.known


def test_a_replacement_says_which_property_forces_it() -> None:
    change = changed(pool(cluster(), {"spot": True, "taints": ["a"]}), pool(cluster(), {"spot": False}))
    assert change.operation is Operation.REPLACE
    assert paths(change) == {"config.spot": (True, False, True), "config.taints": (["a"], None, False)}
    assert change.because == change.note == ""


@pytest.mark.parametrize(
    ("before", "after", "forces"),
    [
        ([{"size": 1}], [{"size": 1}, {"size": 2}], True),
        ([{"size": 1}], [{"size": 2}], True),
        ([{"size": 1, "label": "a"}], [{"size": 1, "label": "b"}], False),
        ([{"label": "a"}], None, True),
    ],
)
def test_a_block_replaces_by_its_number_and_its_replacing_properties(
    before: Any, after: Any, forces: bool
) -> None:
    change = changed(pool(cluster(), {"disks": before}), pool(cluster(), {"disks": after}))
    assert (change.operation is Operation.REPLACE) == forces


def test_an_unknown_type_is_reported_as_unknown() -> None:
    change = changed(declared("other:index:Thing", "it", {"a": 1}), declared("other:index:Thing", "it", {"a": 2}))
    assert change.operation is Operation.UPDATE
    assert not change.known


def test_a_replaced_resource_replaces_its_dependents() -> None:
    found = changes([cluster(), pool(cluster())], [cluster("there"), pool(cluster("there"))])
    assert found["main"].operation is found["cpu"].operation is Operation.REPLACE
    assert found["cpu"].because == "its cluster comes from Cluster main, which is replaced"
    assert paths(found["cpu"]) == {"cluster": ("[unknown]", "[unknown]", True)}


def test_an_updated_resource_keeps_its_dependents() -> None:
    updated = declared(CLUSTER, "main", {"name": "main", "location": "here", "labels": {"a": "b"}})
    assert list(changes([cluster(), pool(cluster())], [updated, pool(updated)])) == ["main"]


def test_depends_on_alone_replaces_nothing() -> None:
    after = declared(POLICY, "it", {"a": 1}, dependencies=frozenset({cluster().urn}))
    assert list(changes([cluster(), after], [cluster("there"), after])) == ["main"]


def test_a_change_that_forces_no_replacement_is_an_update() -> None:
    policy = declared(POLICY, "it", {"id": UNKNOWN}, property_dependencies={"id": frozenset({cluster().urn})})
    found = changes([cluster(), policy], [cluster("there"), policy])
    assert found["it"].operation is Operation.UPDATE
    assert paths(found["it"]) == {"id": ("[unknown]", "[unknown]", False)}


def test_unknown_values_of_the_same_source_are_equal() -> None:
    policy = declared(POLICY, "it", {"id": UNKNOWN}, property_dependencies={"id": frozenset({cluster().urn})})
    updated = declared(CLUSTER, "main", {"name": "main", "location": "here", "labels": {"a": "b"}})
    assert list(changes([cluster(), policy], [updated, policy])) == ["main"]


def linked(to: Resource | None, source: str = "", path: str = "id", **more: Any) -> Resource:
    """A policy of which one property is wholly unknown, and comes from ``to``."""
    needed = {path: frozenset({to.urn})} if to else {}
    return declared(POLICY, "it", {path: Unknown(source)}, property_dependencies=needed, **more)


@pytest.mark.parametrize(("before", "after"), [("", ""), ("main.id", "other.id"), ("main.id", "main.arn")])
def test_unknown_values_of_different_sources_differ(before: str, after: str) -> None:
    here, there = cluster(), declared(CLUSTER, "other", {"name": "other"})
    found = changes([here, there, linked(here, before)], [here, there, linked(there, after)])
    assert found["it"].operation is Operation.UPDATE
    assert list(paths(found["it"])) == ["id"]


def test_a_property_without_its_former_source_replaces_if_it_forces() -> None:
    here, there = cluster(), declared(CLUSTER, "other", {"name": "other"})
    moved = replace(pool(there), urn=pool(here).urn)
    found = changes([here, there, pool(here)], [here, there, moved])
    assert found["cpu"].operation is Operation.REPLACE
    assert [each.path for each in found["cpu"].properties if each.forces] == ["cluster"]


def test_a_renamed_source_is_the_same_source() -> None:
    old, new = cluster(), declared(CLUSTER, "renamed", {"name": "main", "location": "here"}, aliases=["main"])
    assert changes([old, linked(old, "main.id")], [new, linked(new, "renamed.id")]) == {}


def test_one_of_several_sources_of_a_property_may_change_without_the_unknown_parts_of_it() -> None:
    """The engine knows what a whole property comes from, not what each value in it does."""
    here, there = cluster(), declared(CLUSTER, "other", {"name": "other"})
    old = declared(POLICY, "it", {"spec": {"a": UNKNOWN}}, property_dependencies={"spec": frozenset({here.urn})})
    both = {"spec": frozenset({here.urn, there.urn})}
    assert changes([here, there, old], [here, there, replace(old, property_dependencies=both)]) == {}


def test_partly_unknown_secrets_are_compared_by_the_known_part() -> None:
    old, new = (
        declared(POLICY, "it", {"text": Secret(digest, partial=True)}, property_dependencies=needed)
        for digest, needed in (("1", {"text": frozenset({cluster().urn})}), ("2", {}))
    )
    assert paths(changed(old, new)) == {"text": ("[secret]", "[secret]", False)}
    found = changes([cluster(), old], [cluster("there"), old])
    assert list(found) == ["main", "it"]


def test_a_removed_property_that_the_provider_computes_is_kept() -> None:
    before = pool(cluster(), {"zones": ["a", "b"], "labels": {"x": "y"}})
    found = compare(stack(before), stack(pool(cluster(), {"labels": {"x": "y"}})))
    assert found.resources == []
    assert found.remarks == [
        "cpu (Pool) keeps its config.zones: the stack no longer sets it, and the provider leaves it as it is"
    ]
    fewer = changed(before, pool(cluster(), {"zones": ["a"], "labels": {"x": "y"}}))
    assert paths(fewer) == {"config.zones[1]": ("b", None, False)}
    more = changed(pool(cluster(), {}), before)
    assert set(paths(more)) == {"config.zones", "config.labels"}


def test_a_resource_deleted_first_replaces_its_dependents() -> None:
    user = declared(POOL, "cpu", {"cluster": "a"}, property_dependencies={"cluster": frozenset({cluster().urn})})
    next_ = declared(POOL, "next", {"cluster": "b"}, property_dependencies={"cluster": frozenset({user.urn})})
    found = changes([cluster(), user, next_], [cluster("there"), user, next_])
    assert found["next"].because == "its cluster comes from Pool cpu, which is replaced"


def test_a_fixed_name_is_deleted_first_and_replaces_its_users() -> None:
    """The engine takes all that comes from a resource that is deleted first for unknown, known as it may be."""
    user = declared(
        POOL, "cpu", {"cluster": "main"}, property_dependencies={"cluster": frozenset({cluster().urn})}
    )
    found = changes([cluster(), user], [cluster("there"), user])
    assert found["cpu"].operation is Operation.REPLACE
    assert found["cpu"].because == "its cluster comes from Cluster main, which is replaced"
    assert found["cpu"].properties == []


def test_a_known_value_from_a_replaced_resource_replaces_nothing() -> None:
    old = declared(CLUSTER, "main", {"name": "a"})
    new = declared(CLUSTER, "main", {"name": "b"})
    user = declared(POOL, "cpu", {"cluster": "same"}, property_dependencies={"cluster": frozenset({old.urn})})
    assert list(changes([old, user], [new, user])) == ["main"]


def test_every_update_of_some_types_changes_their_outputs() -> None:
    def group(template: Resource) -> Resource:
        properties = {"template": {"id": UNKNOWN, "version": UNKNOWN}}
        return declared(POOL, "cpu", properties, property_dependencies={"template": frozenset({template.urn})})

    old, new = (declared(TEMPLATE, "machines", {"type": size}) for size in ("small", "large"))
    found = changes([old, group(old)], [new, group(new)])
    assert found["cpu"].operation is Operation.UPDATE
    assert list(paths(found["cpu"])) == ["template.version"]


def test_ignored_changes_are_left_out() -> None:
    before, after = (
        pool(
            cluster(),
            {"spot": spot, "nodes": [{"count": 1}]},
            ignore_changes=["config.spot", "config.nodes[*].count"],
        )
        for spot in (True, False)
    )
    assert compare(stack(before), stack(after)).resources == []


@pytest.mark.parametrize("pattern", ["text", "*", "rules[*].port"])
def test_replace_on_changes(pattern: str) -> None:
    before, after = (
        declared(POLICY, "it", {"text": text, "rules": [{"port": text}]}, replace_on_changes=[pattern])
        for text in ("a", "b")
    )
    change = changed(before, after)
    assert change.operation is Operation.REPLACE
    assert any(forces for _, _, forces in paths(change).values())


def test_replace_with() -> None:
    together = declared(POLICY, "it", {"a": 1}, replace_with=frozenset({cluster().urn}))
    found = changes([cluster(), together], [cluster("there"), together])
    assert found["it"].operation is Operation.REPLACE
    assert found["it"].because == "it is replaced with Cluster main"


def test_an_alias_by_name_and_by_urn_is_the_same_resource() -> None:
    old = declared(POLICY, "old", {"a": 1})
    for alias in ("old", old.urn):
        renamed = declared(POLICY, "new", {"a": 1}, aliases=[alias])
        found = compare(stack(old), stack(renamed))
        assert found.resources == []
        assert found.unchanged == 1


def test_the_alias_of_a_component_holds_for_its_children() -> None:
    def tree(name: str, *aliases: str) -> list[Resource]:
        around = declared("cloud:index:Around", name, custom=False, aliases=aliases)
        return [around, declared(POLICY, f"{name}-policy", {"a": 1}, parent=around.urn)]

    assert compare(stack(*tree("old")), stack(*tree("new", "old"))).resources == []
    assert len(compare(stack(*tree("old")), stack(*tree("new"))).resources) == 2


def test_an_update_fails_on_a_protected_resource() -> None:
    protected, open_ = cluster(protect=True), cluster("there")
    assert changed(protected, cluster("there", protect=True)).protected
    assert compare(stack(protected), stack()).resources[0].protected
    found = compare(stack(protected), stack(open_))
    assert not found.resources[0].protected
    assert found.remarks == ["main (Cluster) is no longer protected"]
    in_place = declared(CLUSTER, "main", {"name": "main", "location": "here", "labels": {}}, protect=True)
    assert not changed(protected, in_place).protected


def provider(**properties: Any) -> Resource:
    return declared(KUBERNETES_PROVIDER, "main", properties)


def on(cluster_provider: Resource, **properties: Any) -> Resource:
    return declared(
        CONFIG_MAP, "files", {"metadata": {"name": "files"}, **properties}, provider=cluster_provider.urn
    )


def test_another_cluster_replaces_the_provider_and_its_objects() -> None:
    old, new = provider(kubeconfig=Secret("a")), provider(kubeconfig=Secret("b"))
    found = changes([old, on(old)], [new, on(new)])
    assert paths(found["main"]) == {"kubeconfig": ("[secret]", "[secret]", True)}
    assert found["files"].operation is Operation.REPLACE
    assert found["files"].because == "the provider main is replaced"


def test_a_kubeconfig_of_the_same_cluster_updates_its_provider() -> None:
    old = provider(kubeconfig=Secret("a"), clusterIdentifier="here")
    new = provider(kubeconfig=Secret("b"), clusterIdentifier="here")
    found = changes([old, on(old)], [new, on(new)])
    assert {name: each.operation for name, each in found.items()} == {"main": Operation.UPDATE}


def test_another_kubeconfig_says_that_it_may_lead_to_the_same_cluster() -> None:
    old, new = provider(kubeconfig="~/.kube/config"), provider(kubeconfig="~/.kube/other")
    found = changes([old, on(old)], [new, on(new)])
    assert found["main"].operation is found["files"].operation is Operation.REPLACE
    assert "unless both lead to the same server" in found["main"].because
    moved = provider(kubeconfig="~/.kube/config", renderYamlToDirectory="there")
    assert changed(old, moved).because == ""


def test_another_identifier_is_another_cluster() -> None:
    old, new = provider(clusterIdentifier="here"), provider(clusterIdentifier="there")
    assert changed(old, new).operation is Operation.REPLACE


def test_an_object_that_moves_to_another_cluster_is_replaced() -> None:
    here = provider(kubeconfig="a")
    there = declared(KUBERNETES_PROVIDER, "other", {"kubeconfig": "b"})
    found = changes([here, there, on(here)], [here, there, on(there)])
    assert found["files"].because == "it moves from the provider main to the provider other"
    same = declared(KUBERNETES_PROVIDER, "other", {"kubeconfig": "a"})
    assert changes([here, same, on(here)], [here, same, on(same)]) == {}


def test_a_secret_is_compared_and_never_shown() -> None:
    old, new = (declared(POLICY, "it", {"key": {"private": Secret(digest)}}) for digest in ("1234", "5678"))
    change = changed(old, new)
    assert paths(change) == {"key.private": ("[secret]", "[secret]", False)}
    assert compare(stack(old), stack(old)).resources == []
    gone = changed(old, declared(POLICY, "it", {}))
    assert paths(gone) == {"key": ({"private": "[secret]"}, None, False)}
    assert "1234" not in gone.model_dump_json() + change.model_dump_json()


def test_files_are_named_by_their_paths_and_counted_by_lines() -> None:
    job = declared(
        "kubernetes:batch/v1:Job",
        "train",
        {
            "spec": {
                "template": {
                    "spec": {
                        "volumes": [
                            {
                                "configMap": {
                                    "name": "files",
                                    "items": [{"key": "a.train.py", "path": "a/train.py"}],
                                }
                            }
                        ]
                    }
                }
            }
        },
    )
    old, new = (
        declared(CONFIG_MAP, "files", {"metadata": {"name": "files"}, "data": {"a.train.py": text}})
        for text in ("one\ntwo\n", "one\n2\nthree\n")
    )
    found = changes([old, job], [new, job])
    assert paths(found["files"]) == {'data["a/train.py"]': ("2 lines", "3 lines (+2 \N{MINUS SIGN}1)", True)}


def test_a_policy_in_json_is_compared_inside() -> None:
    old, new = (
        declared(POLICY, "it", {"policy": f'{{"Statement": [{{"Effect": "{effect}", "Action": "get"}}]}}'})
        for effect in ("Deny", "Allow")
    )
    assert paths(changed(old, new)) == {"policy.Statement[0].Effect": ("Deny", "Allow", False)}


def test_no_value_is_long() -> None:
    old, new = (declared(POLICY, "it", {"text": "a" * 5000 + end, "map": {"k": end * 900}}) for end in ("x", "y"))
    change = changed(old, new)
    assert all(len(str(value)) <= 210 for path in paths(change).values() for value in path[:2])
    before, after, _ = paths(change)["text"]
    assert before.endswith("x")
    assert after.endswith("y")


def test_new_removed_and_opened_outputs_are_reported() -> None:
    assert output_remarks({"a": True, "b": False}, {"a": False, "c": False}) == [
        "new outputs: c",
        "removed outputs: b",
        "outputs that are no longer secret: a",
    ]


def test_an_output_that_moved_below_its_pipeline_is_reported_as_moved() -> None:
    before = {"predictions": False, "runs.train": False, "runs.predict": False, "connect": False, "store": False}
    after = {
        "mnist.predictions": False,
        "mnist.accuracy": False,
        "mnist.runs": False,
        "connect.dev": False,
        "show.x": False,
    }
    assert output_remarks(before, after) == [
        "new outputs: mnist.accuracy",
        "outputs that moved: predictions is now mnist.predictions, runs is now mnist.runs",
        "removed outputs: store",
    ]


@pytest.mark.parametrize(
    ("settings", "operation"), [({"enableSecretMutable": "true"}, Operation.UPDATE), ({}, Operation.REPLACE)]
)
def test_a_secret_is_changed_in_place_where_its_provider_does_so(
    settings: dict[str, str], operation: Operation
) -> None:
    provider = declared(KUBERNETES_PROVIDER, "main", settings)

    def holding(value: str) -> list[Resource]:
        properties = {"metadata": {"name": "keys"}, "stringData": {"key": Secret(value)}}
        return [provider, declared("kubernetes:core/v1:Secret", "keys", properties, provider=provider.urn)]

    assert changes(holding("1"), holding("2"))["keys"].operation is operation
