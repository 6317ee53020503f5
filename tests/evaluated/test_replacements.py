"""What is known of replacements: it is of the pinned providers, and of everything that the stacks declare."""

import hashlib
import json
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest

from slipway.command import provider_schemas
from slipway.command.provider_schemas import FILE, SchemaError, declarable, main, pins, sdk_name, table
from slipway.infra.clouds.registry import CLOUDS, reviews
from slipway.infra.kubernetes.review import FILE as KUBERNETES_FILE
from slipway.infra.review.effects import Replacing
from slipway.infra.review.property_diff import Difference, parse_path
from slipway.infra.review.stack import UNKNOWN
from tests.support.checkout import ROOT
from tests.support.tree import write_tree

PROVIDED = {package: cloud.sdk for package, cloud in CLOUDS.items() if cloud.sdk}


def data(package: str) -> dict[str, Any]:
    return json.loads((ROOT / "infra" / "clouds" / package / FILE).read_text(encoding="utf-8"))


def test_each_file_is_of_the_pinned_provider() -> None:
    versions = {package: data(package)["version"] for package in PROVIDED}
    assert versions == {package: pins()[sdk] for package, sdk in PROVIDED.items() if sdk}
    kubernetes = tomllib.loads(KUBERNETES_FILE.read_text(encoding="utf-8"))
    assert kubernetes["version"] == pins()["pulumi-kubernetes"]
    assert kubernetes["version"] in kubernetes["source"]


@pytest.mark.parametrize("package", sorted(PROVIDED))
def test_each_file_has_a_source_and_every_resource_that_the_cloud_can_declare(package: str) -> None:
    held = data(package)
    assert held["source"]
    assert held["date"]
    assert {sdk_name(token) for token in held["types"]} == declarable(package)


def forced(type_: str, path: str) -> bool:
    return bool(Replacing(reviews()).find_forcing(type_, [Difference(parse_path(path), "a", "b")], {}, {}))


@pytest.mark.parametrize(
    ("type_", "path", "replaces"),
    [
        ("gcp:container/nodePool:NodePool", "nodeConfig.taints[0].value", False),
        ("gcp:container/nodePool:NodePool", "nodeConfig.machineType", False),
        ("gcp:container/nodePool:NodePool", "nodeConfig.spot", True),
        ("gcp:container/nodePool:NodePool", "nodeConfig.guestAccelerators[0].type", True),
        ("gcp:container/nodePool:NodePool", "autoscaling.totalMaxNodeCount", False),
        ("gcp:container/nodePool:NodePool", "name", True),
        ("gcp:container/nodePool:NodePool", "nodeConfig.ephemeralStorageConfig.localSsdCount", True),
        ("gcp:container/cluster:Cluster", "tpuConfig.enabled", True),
        ("gcp:container/cluster:Cluster", "location", True),
        ("gcp:storage/bucket:Bucket", "publicAccessPrevention", False),
        ("aws:eks/nodeGroup:NodeGroup", "taints[0].value", False),
        ("aws:eks/nodeGroup:NodeGroup", "capacityType", True),
        ("aws:eks/nodeGroup:NodeGroup", "launchTemplate.version", False),
        ("aws:ec2/launchTemplate:LaunchTemplate", "instanceType", False),
        ("aws:s3/bucketPublicAccessBlock:BucketPublicAccessBlock", "blockPublicAcls", False),
        ("kubernetes:batch/v1:Job", "spec.template.spec.containers[0].args[3]", True),
        ("kubernetes:batch/v1:Job", "spec.backoffLimit", False),
        ("kubernetes:core/v1:ConfigMap", 'data["a.b"]', True),
        ("kubernetes:core/v1:ConfigMap", "metadata.labels.a", False),
        ("kubernetes:core/v1:NodePatch", "spec.taints[0].key", False),
        ("kubernetes:helm.sh/v3:Release", "values.tolerations", False),
        ("kubernetes:rbac.authorization.k8s.io/v1:ClusterRoleBinding", "roleRef.name", True),
        ("kubernetes:batch/v1:Job", "spec.parallelism", True),
        ("kubernetes:batch/v1:CronJob", "spec.schedule", False),
        ("kubernetes:batch/v1:CronJob", "spec.jobTemplate.spec.template.spec.containers[0].image", False),
        ("kubernetes:apps/v1:StatefulSet", "spec.template.spec.containers[0].image", False),
        ("kubernetes:apps/v1:StatefulSet", "spec.volumeClaimTemplates[0].spec.resources.requests.storage", True),
        ("kubernetes:apps/v1:StatefulSet", "spec.persistentVolumeClaimRetentionPolicy.whenDeleted", False),
        ("kubernetes:core/v1:Service", "spec.ports[0].port", False),
        ("kubernetes:policy/v1:PodDisruptionBudget", "spec.minAvailable", False),
        ("random:index/randomPassword:RandomPassword", "length", True),
        ("random:index/randomPassword:RandomPassword", "keepers.round", True),
    ],
)
def test_what_the_providers_replace(type_: str, path: str, replaces: bool) -> None:
    assert forced(type_, path) == replaces


@pytest.mark.parametrize(
    ("type_", "path", "before", "after", "replaces"),
    [
        ("gcp:compute/subnetwork:Subnetwork", "ipCidrRange", "10.0.0.0/22", "10.0.0.0/20", False),
        ("gcp:compute/subnetwork:Subnetwork", "ipCidrRange", "10.0.0.0/22", "10.0.0.0/24", True),
        ("gcp:compute/subnetwork:Subnetwork", "ipCidrRange", "10.0.0.0/22", "10.4.0.0/20", True),
        ("gcp:compute/subnetwork:Subnetwork", "ipCidrRange", UNKNOWN, "10.4.0.0/20", True),
        ("aws:eks/cluster:Cluster", "encryptionConfig", None, {"resources": ["secrets"]}, False),
        ("aws:eks/cluster:Cluster", "encryptionConfig", {"resources": ["secrets"]}, None, True),
    ],
)
def test_what_the_providers_replace_conditionally(
    type_: str, path: str, before: object, after: object, replaces: bool
) -> None:
    found = Replacing(reviews()).find_forcing(type_, [Difference(parse_path(path), before, after)], {}, {})
    assert bool(found) == replaces


SCHEMA: dict[str, Any] = {
    "name": "cloud",
    "version": "1.0.0",
    "resources": {
        "cloud:compute/pool:Pool": {
            "inputProperties": {
                "name": {"type": "string", "willReplaceOnChanges": True},
                "size": {"type": "integer"},
                "config": {"$ref": "#/types/cloud:compute/Config:Config", "willReplaceOnChanges": True},
                "disks": {"type": "array", "items": {"$ref": "#/types/cloud:compute/Disk:Disk"}},
                "labels": {
                    "type": "object",
                    "additionalProperties": {"type": "string"},
                    "willReplaceOnChanges": True,
                },
            },
            "requiredInputs": ["size"],
            "required": ["config", "disks", "id", "name", "size"],
        },
        "cloud:compute/other:Other": {"inputProperties": {}},
    },
    "types": {
        "cloud:compute/Config:Config": {
            "properties": {
                "spot": {"type": "boolean", "willReplaceOnChanges": True},
                "inner": {"$ref": "#/types/cloud:compute/Config:Config"},
            },
            "required": ["spot"],
            "language": {"nodejs": {"requiredOutputs": ["inner", "spot"]}},
        },
        "cloud:compute/Disk:Disk": {"properties": {"kind": {"type": "string", "willReplaceOnChanges": True}}},
    },
}


def test_a_schema_is_followed_into_blocks_lists_and_recursive_types() -> None:
    made = table(SCHEMA, {"compute.Pool"}, "a test", "2026-11-21")
    assert made["types"] == {
        "cloud:compute/pool:Pool": ["config.spot", "config{}", "disks.kind", "labels", "name"]
    }


def test_what_a_provider_computes_is_what_no_input_has_to_say_and_every_output_does() -> None:
    made = table(SCHEMA, {"compute.Pool", "compute.Other"}, "a test", "2026-11-21")
    assert made["computed"] == {"cloud:compute/pool:Pool": ["config", "config.inner", "disks"]}


@pytest.mark.parametrize(
    ("path", "stays"),
    [
        ("addonsConfig.gcpFilestoreCsiDriverConfig", True),
        ("gatewayApiConfig", True),
        ("loggingConfig", True),
        ("maintenancePolicy", False),
        ("resourceLabels", False),
    ],
)
def test_what_stays_of_a_cluster_where_the_stack_no_longer_sets_it(path: str, stays: bool) -> None:
    removed = Difference(parse_path(path), {"enabled": True}, None)
    assert Replacing(reviews()).keeps("gcp:container/cluster:Cluster", removed, {"addonsConfig": {}}) == stays


def test_a_schema_without_the_resource_is_refused() -> None:
    with pytest.raises(SchemaError, match=r"cloud 1\.0\.0 has no resource compute\.Gone"):
        table(SCHEMA, {"compute.Gone"}, "a test", "2026-11-21")


def test_declarable_resources_are_those_that_the_code_calls(tmp_path: Path) -> None:
    code = "import p as cloud\nx = cloud.compute.Pool(cloud.compute.PoolArgs())\ny: cloud.compute.Other\n"
    write_tree(tmp_path, {"slipway/infra/clouds/cloud/pools.py": code})
    assert declarable("cloud", tmp_path) == {"compute.Pool"}


@pytest.mark.slow
def test_check_says_what_is_out_of_date(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    package = next(iter(PROVIDED))
    held = data(package)
    type_ = next(iter(held["types"]))
    published: dict[str, Any] = {
        "version": held["version"],
        "resources": {token: {"inputProperties": {}} for token in held["types"]},
    }
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps(published), encoding="utf-8")
    assert main(["--check", "--schema", f"{package}={schema}"]) == 1
    told = capsys.readouterr().err
    assert "is out of date; run: python -m slipway.command.provider_schemas" in told
    assert f"{type_} -" in told

    monkeypatch.setattr(provider_schemas, "LIBRARY", tmp_path)
    write_tree(tmp_path, {f"slipway/infra/clouds/{package}/{FILE}": ""})
    assert main(["--schema", f"{package}={schema}"]) == 0
    assert main(["--check", "--schema", f"{package}={schema}"]) == 0


def test_a_schema_of_another_version_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    package = next(iter(PROVIDED))
    schema = tmp_path / "schema.json"
    schema.write_text(json.dumps({"version": "0.0.1"}), encoding="utf-8")
    assert main(["--check", "--schema", f"{package}={schema}"]) == 1
    assert "that is 0.0.1, and pyproject.toml pins" in capsys.readouterr().err


def of_provider(package: str, **more: str) -> dict[str, Any]:
    """A schema with all that the code declares of a package, and no property in it."""
    held = data(package)
    return {
        "version": held["version"],
        "resources": {token: {"inputProperties": {}} for token in held["types"]},
        **more,
    }


def test_a_schema_from_a_file_says_which_file_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packages = sorted(PROVIDED)
    files = {package: tmp_path / f"{package}.json" for package in packages}
    for package, more in zip(packages, ({}, {"source": "a schema of my own"}), strict=True):
        files[package].write_text(json.dumps(of_provider(package, **more)), encoding="utf-8")
    monkeypatch.setattr(provider_schemas, "LIBRARY", tmp_path)
    write_tree(tmp_path, {f"slipway/infra/clouds/{package}/{FILE}": "{}" for package in packages})
    assert main([word for package in packages for word in ("--schema", f"{package}={files[package]}")]) == 0
    first, second = (
        json.loads((tmp_path / "slipway/infra/clouds" / package / FILE).read_text()) for package in packages
    )
    digest = hashlib.sha256(files[packages[0]].read_bytes()).hexdigest()
    assert first["source"] == f"the file {packages[0]}.json with the SHA-256 {digest}"
    assert second["source"] == "a schema of my own"


@pytest.mark.parametrize("broken", ["{", '{"version": "0.0.1"}', None])
def test_nothing_is_written_if_one_schema_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], broken: str | None
) -> None:
    good, bad = sorted(PROVIDED)
    files = {package: tmp_path / f"{package}.json" for package in (good, bad)}
    files[good].write_text(json.dumps(of_provider(good)), encoding="utf-8")
    if broken is not None:
        files[bad].write_text(broken, encoding="utf-8")
    monkeypatch.setattr(provider_schemas, "LIBRARY", tmp_path)
    write_tree(tmp_path, {f"slipway/infra/clouds/{package}/{FILE}": "as before" for package in files})
    assert main([word for package in files for word in ("--schema", f"{package}={files[package]}")]) == 1
    assert {(tmp_path / "slipway/infra/clouds" / package / FILE).read_text() for package in files} == {"as before"}
    told = capsys.readouterr().err
    assert f"{bad}: " in told
    assert "nothing was written" in told


@pytest.mark.parametrize("schema", ["nobody=file.json", f"{min(PROVIDED)}"])
def test_a_schema_of_an_unknown_package_is_refused(schema: str) -> None:
    with pytest.raises(SystemExit):
        main(["--schema", schema])


@pytest.mark.slow
@pytest.mark.parametrize("package", sorted(PROVIDED))
def test_the_files_are_what_the_published_schemas_say(package: str, tmp_path: Path) -> None:
    if shutil.which("pulumi") is None:
        pytest.skip("the Pulumi CLI is not on PATH")
    if f"pulumi package get-schema {package}@{data(package)['version']}" not in data(package)["source"]:
        pytest.skip("the file is not made from the published schema: `python -m slipway.command.provider_schemas`")
    version = data(package)["version"]
    command = ["pulumi", "package", "get-schema", f"{package}@{version}"]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    if done.returncode:
        pytest.skip(f"the provider's plugin is not there: {done.stderr.strip()}")
    schema = tmp_path / "schema.json"
    schema.write_text(done.stdout, encoding="utf-8")
    assert main(["--check", "--schema", f"{package}={schema}"]) == 0
