"""What a stack with clusters tells the stacks of its teams, and what those make of it."""

import json
from collections.abc import Mapping
from typing import Any

import pytest

from slipway.infra.clouds.registry import emulators
from slipway.infra.platform_output import PlatformFacts
from slipway.infra.program import declare
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds import aws
from tests.support.clouds.autopilot import STACK as AUTOPILOT
from tests.support.recording import Recording, record, secret_inputs
from tests.support.stack_values import EXISTING, GCP, changed

pytestmark = pytest.mark.slow

VOLUME = "kubernetes:core/v1:PersistentVolume"
GRANT = "gcp:storage/bucketIAMMember:BucketIAMMember"

TEAMS = {
    "fraud": {"namespace": "fraud", "service_account": "runner"},
    "vision": {"namespace": "see", "service_account": "eye"},
}
AWS: Mapping[str, Any] = aws.raw()
EFS: Mapping[str, Any] = aws.raw(lambda values: values.update(store={"kind": "efs"}))
NFS = {"kind": "nfs", "server": "filer.example.com", "path": "/exports/all"}


def declared(base: Mapping[str, Any], changes: Mapping[str, Any], preview: bool = False, **how: Any) -> Recording:
    values = changed(base, {"pipelines": {}, **changes})
    settings: Settings = load(values, how.pop("resolve", lambda _: {}))
    config: dict[str, Any] = {f"slipway:{key}": value for key, value in values.items()}
    stand_ins = emulators(settings.request)
    for stand_in in stand_ins:
        config = {**stand_in.configuration, **config}
    return record(declare, config, preview=preview, emulators=stand_ins, **how)


def pair(
    base: Mapping[str, Any],
    changes: Mapping[str, Any] | None = None,
    memory: str = "2Gi",
    apps: Mapping[str, Any] | None = None,
) -> tuple[Recording, Recording]:
    """The stack ``base`` with teams, and one of the team `fraud` on its cluster."""
    platform = declared(base, {"teams": TEAMS, **(changes or {})}, stack_name="platform")
    outputs = {name: export for name, export in platform.exports.items() if name not in platform.secret_exports}
    (cluster,) = base["clusters"]
    team = {
        "namespace": "fraud",
        "clusters": {"dev": {"stack": "platform", "cluster": cluster}},
        "pipelines": {
            "mnist": {
                "steps": {entry: {"pool": "cpu", "memory": memory} for entry in ("prepare", "train", "predict")},
                **({"apps": dict(apps)} if apps else {}),
            }
        },
    }
    exported = {"organization/slipway/platform": platform.evaluation.exported}
    return platform, declared(team, {"pipelines": team["pipelines"]}, resolve=lambda _: outputs, stacks=exported)


def test_a_stack_without_teams_has_no_such_output() -> None:
    assert "platform" not in declared(GCP, {}).exports


@pytest.mark.parametrize("base", [GCP, AWS, EFS, EXISTING], ids=["gcp", "s3", "efs", "existing"])
def test_the_output_is_whole_and_has_nothing_secret(base: Mapping[str, Any]) -> None:
    platform = declared(base, {"teams": TEAMS})
    assert platform.secret_exports == {"kubeconfig"}
    facts = PlatformFacts.model_validate(platform.exports["platform"])
    (cluster,) = facts.clusters.values()
    assert set(cluster.teams) == set(facts.teams) == set(TEAMS)
    for name, pool in platform.result.platforms[next(iter(facts.clusters))].pools.items():
        assert cluster.pools[name].node() == pool.allocatable
        assert cluster.pools[name].selector == pool.selector
        assert [taint.taint() for taint in cluster.pools[name].taints] == list(pool.taints)


@pytest.mark.parametrize("base", [GCP, AWS, EFS, EXISTING], ids=["gcp", "s3", "efs", "existing"])
def test_a_team_declares_its_namespace_and_nothing_of_the_cloud(base: Mapping[str, Any]) -> None:
    _, team = pair(base)
    assert {resource.package for resource in team.resources if resource.custom and not resource.read} == {
        "kubernetes",
        "pulumi",
    }
    inside = [resource for resource in team.resources if resource.package == "kubernetes"]
    outside = {resource.type for resource in inside if not resource.metadata.get("namespace")}
    assert outside == {"kubernetes:core/v1:Namespace"}
    assert {resource.metadata["namespace"] for resource in inside if resource.metadata.get("namespace")} == {
        "fraud"
    }
    assert "kubeconfig" in secret_inputs(team.one("pulumi:providers:kubernetes", "dev"))


def test_a_teams_pods_use_its_own_folder_of_the_bucket() -> None:
    platform, team = pair(GCP)
    volume = team.one("kubernetes:batch/v1:Job", "mnist-train").inputs["spec"]["template"]["spec"]["volumes"]
    attributes = next(entry["csi"]["volumeAttributes"] for entry in volume if "csi" in entry)
    assert attributes["mountOptions"].endswith(",only-dir=fraud")
    assert team.exports["mnist"]["runs"]["train"].startswith(f"gs://{attributes['bucketName']}/fraud/mnist/train/")
    grants = {resource.name: resource.inputs for resource in platform.of(GRANT)}
    assert set(grants) == {
        "store-user",
        "store-user-fraud",
        "store-names-fraud",
        "store-user-vision",
        "store-names-vision",
    }
    fraud = grants["store-user-fraud"]
    assert fraud["member"].endswith("/subject/ns/fraud/sa/runner")
    start = f"projects/_/buckets/{attributes['bucketName']}/objects/fraud/"
    assert fraud["condition"]["expression"] == f'resource.name.startsWith("{start}")'
    # Listing has no condition, so its role may read nothing.
    assert "condition" not in grants["store-names-fraud"]
    assert grants["store-names-fraud"]["role"] == "roles/storage.legacyBucketReader"
    assert grants["store-user-vision"]["member"].endswith("/subject/ns/see/sa/eye")


def with_apps(base: Mapping[str, Any], rights: Mapping[str, Any], **how: Any) -> tuple[Recording, Recording]:
    """As `pair`, of a team whose stack runs apps of MNIST; ``rights`` are what the platform lets its apps do."""
    teams = {**TEAMS, "fraud": {**TEAMS["fraud"], "apps": {"mnist": dict(rights)}}}
    return pair(base, {"teams": teams, **how}, apps={"serving": {"pool": "cpu"}})


def test_an_app_of_a_team_has_an_identity_that_reads_the_teams_folder_alone() -> None:
    platform, team = with_apps(GCP, {"serving": "read", "notebook": "write"})
    member = "/subject/ns/fraud/sa/mnist-"
    grants = {
        (resource.inputs["member"].partition(member)[2], resource.inputs["role"]): resource.inputs.get("condition")
        for resource in platform.of(GRANT)
        if member in resource.inputs["member"]
    }
    reads, writes, lists = [
        f"roles/storage.{entry}" for entry in ("objectViewer", "objectUser", "legacyBucketReader")
    ]
    assert {*grants} == {
        ("serving", reads),
        ("serving", lists),
        ("notebook", reads),
        ("notebook", lists),
        ("notebook", writes),
    }
    condition, folder = grants[("serving", reads)], grants[("notebook", writes)]
    assert condition is not None
    assert folder is not None
    assert condition["expression"].endswith('/objects/fraud/")')
    assert folder["expression"].endswith('/objects/fraud/mnist/notebook/")')
    serving = team.one("kubernetes:apps/v1:Deployment", "mnist-serving").inputs["spec"]["template"]["spec"]
    assert serving["serviceAccountName"] == "mnist-serving"
    (volume,) = [volume["csi"] for volume in serving["volumes"] if "csi" in volume]
    assert volume["volumeAttributes"]["mountOptions"].endswith(",only-dir=fraud")


def test_an_app_of_a_team_is_annotated_where_its_identity_is_impersonated() -> None:
    platform, team = with_apps(GCP, {"serving": "read"}, **{"store.impersonation": {"projects": []}})
    accounts = {
        resource.name: resource.inputs["accountId"]
        for resource in platform.of("gcp:serviceaccount/account:Account")
    }
    account = accounts["workload-app-fraud-mnist-serving"]
    result = team.one("kubernetes:core/v1:ServiceAccount", "mnist-serving").metadata["annotations"]
    assert result["iam.gke.io/gcp-service-account"].startswith(f"{account}@")


def test_an_app_without_an_identity_at_the_other_stacks_bucket_is_refused_with_what_to_write_there() -> None:
    with pytest.raises(SettingsError) as error:
        with_apps(GCP, {})
    (problem,) = error.value.problems
    assert problem.key == "slipway:pipelines.mnist.apps.serving"
    assert "lets no app of that name at it" in problem.reason
    assert "`slipway:teams.fraud.apps.mnist.serving: read` into the file of `platform`" in problem.fix


def test_an_app_of_a_team_needs_no_identity_where_nodes_mount_the_store() -> None:
    _, team = with_apps(AWS, {})
    assert team.one("kubernetes:apps/v1:Deployment", "mnist-serving")


def test_on_aws_an_app_of_a_team_may_read_the_teams_objects_alone() -> None:
    platform, _ = with_apps(AWS, {"serving": "read"})
    (bound,) = [
        resource.inputs
        for resource in platform.of("aws:eks/podIdentityAssociation:PodIdentityAssociation")
        if resource.inputs["serviceAccount"] == "mnist-serving"
    ]
    assert bound["namespace"] == "fraud"
    policy = platform.one("aws:iam/rolePolicy:RolePolicy", "app-fraud-mnist-serving").inputs["policy"]
    assert "/store-fraud/*" in policy
    assert "s3:PutObject" not in policy


def test_each_team_has_a_volume_of_its_own_folder() -> None:
    platform, team = pair(EXISTING, {"store": NFS})
    volumes = {resource.name: resource.inputs["spec"] for resource in platform.of(VOLUME)}
    assert {name: spec["nfs"]["path"] for name, spec in volumes.items()} == {
        "here-store-volume": "/exports/all",
        "here-store-volume-fraud": "/exports/all/fraud",
        "here-store-volume-vision": "/exports/all/vision",
    }
    claim = team.one("kubernetes:core/v1:PersistentVolumeClaim")
    wanted = volumes["here-store-volume-fraud"]["claimRef"]
    assert (wanted["namespace"], wanted["name"]) == ("fraud", claim.metadata["name"])
    assert team.of(VOLUME) == []


def test_on_aws_each_team_has_an_access_point_and_a_role_of_its_own() -> None:
    platform, team = pair(AWS)
    points = {
        resource.name: resource.inputs for resource in platform.of("aws:s3/filesAccessPoint:FilesAccessPoint")
    }
    assert {name: point["rootDirectories"][0]["path"] for name, point in points.items()} == {
        "store": "/store",
        "store-fraud": "/store-fraud",
        "store-vision": "/store-vision",
    }
    bound = {
        resource.name: resource.inputs
        for resource in platform.of("aws:eks/podIdentityAssociation:PodIdentityAssociation")
    }
    assert (bound["run-vision"]["namespace"], bound["run-vision"]["serviceAccount"]) == ("see", "eye")
    policy = platform.one("aws:iam/rolePolicy:RolePolicy", "run-fraud").inputs["policy"]
    assert "/store-fraud/*" in policy
    assert "/store/*" not in policy
    assert team.exports["store"].endswith("/store-fraud")


def test_a_team_declares_what_the_platforms_cluster_takes() -> None:
    """Else Autopilot would raise it behind the back of the team's stack."""
    platform, team = pair(AUTOPILOT, memory="13Gi")
    facts = PlatformFacts.model_validate(platform.exports["platform"])
    assert facts.clusters["batch"].pools["cpu"].requests
    assert facts.clusters["batch"].pools["spot"].movable
    job = team.one("kubernetes:batch/v1:Job", "mnist-prepare")
    pod = job.inputs["spec"]["template"]["spec"]
    assert pod["containers"][0]["resources"]["requests"]["cpu"] == "2"
    assert json.loads(job.inputs["metadata"]["annotations"]["slipway/asked"])["cpu"] == "1"


def test_a_teams_pods_have_the_runtime_class_of_the_platforms_pool() -> None:
    _, team = pair(EXISTING, {"clusters.here.pools.cpu.runtime_class": "kata"})
    pods = [job.inputs["spec"]["template"]["spec"] for job in team.of("kubernetes:batch/v1:Job")]
    assert {pod.get("runtimeClassName") for pod in pods} == {"kata"}


def test_a_teams_steps_use_the_network_between_the_platforms_nodes() -> None:
    platform, team = pair(GCP)
    live = {name: pool.interconnect for name, pool in platform.result.platforms["dev"].pools.items()}
    assert {name: pool.interconnect for name, pool in team.result.platforms["dev"].pools.items()} == live
    assert any(live.values())
