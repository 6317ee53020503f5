"""A stack whose pipeline has a Dockerfile: what is declared to build its image, and what its steps are given."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest

from slipway.evaluated.pod_rules import breaches
from slipway.evaluated.workloads import DEPLOYMENT, STATEFUL_SET
from slipway.infra.clouds.aws.emulator import Emulator as AwsEmulator
from slipway.infra.clouds.existing.platforms import Emulator as ExistingEmulator
from slipway.infra.clouds.gcp.emulator import Emulator as GcpEmulator
from slipway.infra.program import declare
from slipway.infra.review.stack import JOB, Resource, Stack, at, mapping, mappings
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.preview.build import image_remarks
from slipway.preview.differences import compare
from tests.support.checkout import ROOT
from tests.support.clouds.aws_values import AWS
from tests.support.recording import Recording, record
from tests.support.stack_values import GCP
from tests.support.tree import write_tree

pytestmark = pytest.mark.slow

NAMESPACE = "kubernetes:core/v1:Namespace"
SECRET = "kubernetes:core/v1:Secret"
HERE: dict[str, Any] = {
    "clusters": {
        "here": {
            "cloud": "existing",
            "kubeconfig": "/nowhere",
            "pools": {"cpu": {"selector": {"a": "b"}, "cpu": "4", "memory": "16Gi", "ephemeral_storage": "40Gi"}},
        }
    },
    "store": {"kind": "pvc"},
    "registry": {"pool": "cpu", "repository": "registry.example.org/team/slipway"},
}
PIPELINE = """\
description: Says what it runs in.
build: docker
steps:
  say: {run: [python3, say.py, "{output}"], code: src}
  plain: {run: [python3, say.py], code: src, image: "debian@sha256:%s"}
""" % ("4" * 64)
DOCKERFILE = f"FROM debian@sha256:{'1' * 64}\nCOPY tool /tool\n"


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A pipeline with a Dockerfile."""
    files = {"pipeline.yaml": PIPELINE, "src/say.py": "", "docker/Dockerfile": DOCKERFILE, "docker/tool": "one"}
    return write_tree(tmp_path / "said", files)


def stack(folder: Path, values: Mapping[str, Any] = HERE, pool: str = "cpu", **more: Any) -> dict[str, Any]:
    steps = {name: {"pool": pool, "cpu": "500m", "memory": "1Gi"} for name in ("say", "plain")}
    registry = {"pool": pool, "memory": "2Gi", "cpu": "1", "ephemeral_storage": "4Gi"}
    rest = {"pipelines": {"said": {"uses": str(folder), "steps": steps}}}
    return {**values, "registry": {**registry, **mapping(values.get("registry"))}, **rest, **more}


def declared(values: Mapping[str, Any], *, preview: bool = False) -> Recording:
    request = load(values).request
    emulators = [entry(request) for entry in (ExistingEmulator, GcpEmulator, AwsEmulator)]
    config = {f"slipway:{key}": value for key, value in values.items()}
    clouds = {"gcp:project": "emulated-project", "aws:region": "eu-west-1"}
    return record(lambda: declare(ROOT), {**clouds, **config}, preview=preview, emulators=emulators)


def image_of(recording: Recording, job: str, container: str = "containers") -> str:
    spec = at(recording.one(JOB, job).inputs, "spec", "template", "spec")
    return str(mappings(mapping(spec)[container])[0]["image"])


def build_of(recording: Recording) -> Resource:
    return recording.one(JOB, "image-build-said")


def test_a_step_runs_in_the_image_by_its_digest_once_it_is_built(folder: Path) -> None:
    recording = declared(stack(folder))
    build = build_of(recording)
    image = image_of(recording, "said-say")
    assert image.startswith("registry.example.org/team/slipway:context-")
    assert "@sha256:" in image
    assert build.urn in recording.waits_for(recording.one(JOB, "said-say"))
    # A step that names another image does not wait for this one.
    assert image_of(recording, "said-plain") == f"debian@sha256:{'4' * 64}"
    assert build.urn not in recording.waits_for(recording.one(JOB, "said-plain"))


def test_a_run_is_decided_by_the_context_and_known_before_the_image_is(folder: Path) -> None:
    before = declared(stack(folder), preview=True)
    jobs = {resource.name: resource.inputs["metadata"]["name"] for resource in before.of(JOB)}
    assert jobs == {
        resource.name: resource.inputs["metadata"]["name"] for resource in declared(stack(folder)).of(JOB)
    }
    (folder / "docker" / "tool").write_text("two")
    after = {
        resource.name: resource.inputs["metadata"]["name"]
        for resource in declared(stack(folder), preview=True).of(JOB)
    }
    changed = {name for name, job in jobs.items() if after[name] != job}
    assert changed == {"image-build-said", "said-say"}


def test_only_buildkit_runs_unguarded_and_it_has_neither_a_token_nor_the_store(folder: Path) -> None:
    recording = declared(stack(folder))
    spec = mapping(at(build_of(recording).inputs, "spec", "template", "spec"))
    assert {breach.container for breach in breaches(spec)} == {"buildkit"}
    assert spec["automountServiceAccountToken"] is False
    assert {volume["name"] for volume in mappings(spec["volumes"])} == {
        "bundle",
        "context",
        "work",
        "tmp",
        "state",
    }
    security = mapping(mappings(spec["containers"])[0]["securityContext"])
    assert security["runAsUser"] == 1000
    assert security["capabilities"] == {"drop": ["ALL"], "add": ["SETGID", "SETUID"]}
    assert "privileged" not in security
    enforced = "pod-security.kubernetes.io/enforce"
    labels = {
        str(resource.inputs["metadata"]["name"]): mapping(resource.inputs["metadata"]["labels"])[enforced]
        for resource in recording.of(NAMESPACE)
    }
    assert labels == {"slipway": "restricted", "slipway-images": "privileged"}


def test_a_login_stays_secret_and_with_the_container_that_uses_it(folder: Path) -> None:
    values = stack(folder, secrets={"push": "[secret]", "pull": "[secret]"})
    values["registry"] = {**values["registry"], "login": "push", "pull_login": "pull"}
    recording = declared(values)
    spec = mapping(at(build_of(recording).inputs, "spec", "template", "spec"))
    mounts = {
        str(init_container["name"]): {str(mount["name"]) for mount in mappings(init_container["volumeMounts"])}
        for init_container in (*mappings(spec["initContainers"]), *mappings(spec["containers"]))
    }
    assert "login" in mounts["prepare"]
    assert "login" not in mounts["buildkit"]
    pulling = at(recording.one(JOB, "said-say").inputs, "spec", "template", "spec", "imagePullSecrets")
    assert pulling == [{"name": "registry-pull"}]
    assert {resource.inputs["type"] for resource in recording.of(SECRET)} >= {
        "Opaque",
        "kubernetes.io/dockerconfigjson",
    }


@pytest.mark.parametrize(
    ("values", "pool", "repositories", "host"),
    [
        (GCP, "cpu", "gcp:artifactregistry/repository:Repository", "-docker.pkg.dev/"),
        (AWS, "cpu", "aws:ecr/repository:Repository", ".dkr.ecr."),
    ],
)
def test_a_cloud_s_own_registry_is_declared_and_written_to_without_a_key(
    folder: Path, values: Mapping[str, Any], pool: str, repositories: str, host: str
) -> None:
    recording = declared(stack(folder, values, pool))
    assert len(recording.of(repositories)) == 2
    assert host in image_of(recording, "said-say")
    assert recording.of(SECRET) == []
    # Before the image is built, nobody knows its digest.
    assert "sha256" not in image_of(declared(stack(folder, values, pool), preview=True), "said-say")


def refused(values: Mapping[str, Any]) -> None:
    request = load(values).request
    config = {f"slipway:{key}": value for key, value in values.items()}
    record(lambda: declare(ROOT), config, preview=True, emulators=[ExistingEmulator(request)])


def problems(values: Mapping[str, Any]) -> dict[str, str]:
    with pytest.raises(SettingsError) as caught:
        refused(values)
    return {problem.key: f"{problem.reason}; {problem.fix}" for problem in caught.value.problems}


def test_a_build_without_a_registry_is_refused(folder: Path) -> None:
    values = stack(folder)
    del values["registry"]
    assert "nothing says where" in problems(values)["slipway:registry"]


@pytest.mark.parametrize(
    ("registry", "key", "reason"),
    [
        ({"repository": None}, "repository", "brings no registry of its own"),
        ({"repository": "registry.example.org/a:latest"}, "repository", "no tag and no digest"),
        ({"repository": "team/slipway"}, "repository", "begins with no registry"),
        ({"pool": "gpu"}, "pool", "no cluster of the stack has a pool"),
        ({"memory": "64Gi"}, "memory", "one node of pool"),
    ],
)
def test_a_registry_that_cannot_have_images_is_refused(
    folder: Path, registry: Mapping[str, Any], key: str, reason: str
) -> None:
    values = stack(folder)
    values["registry"] = {**values["registry"], **registry}
    assert reason in problems(values)[f"slipway:registry.{key}"]


def test_a_login_that_nothing_sets_is_a_secret_that_is_missing(folder: Path) -> None:
    values = stack(folder)
    values["registry"] = {**values["registry"], "login": "missing"}
    assert "`registry.login` needs it" in problems(values)["slipway:secrets.missing"]


@pytest.mark.parametrize(
    ("change", "why"), [({"openshift": True}, "OpenShift"), ({"access": "namespace"}, "one namespace")]
)
def test_a_cluster_that_refuses_such_pods_is_refused_first(folder: Path, change: Any, why: str) -> None:
    values = stack(folder)
    values["clusters"] = {"here": {**values["clusters"]["here"], **change}}
    assert why in problems(values)["slipway:registry.pool"]


def test_a_base_image_by_tag_is_refused_before_anything_is_declared(folder: Path) -> None:
    (folder / "docker" / "Dockerfile").write_text("FROM debian:12\n")
    declared_stack = problems(stack(folder))
    assert any(
        key.endswith("pipeline.yaml: build") and "debian:12" in text for key, text in declared_stack.items()
    )


SERVED = """\
description: Says what it runs in, and shows it.
build: docker
services:
  cache: {run: [cached, --port, "{port}"], port: 7000}
steps:
  say: {run: [python3, say.py, "{output}"], code: src, connects: [cache]}
apps:
  same: {kind: program, run: [python3, show.py, "{port}"], code: src, port: 8080}
  own: {kind: program, run: [python3, show.py, "{port}"], code: src, port: 8080, build: shown}
  other: {kind: program, run: [show, "{port}"], port: 8080, image: "debian@sha256:%s"}
  tensorboard: {kind: tensorboard}
""" % ("4" * 64)
"""A pipeline of which a service, a step and two apps run in images that are built."""


@pytest.fixture
def served(tmp_path: Path) -> Path:
    files = {"src/say.py": "", "src/show.py": "", "docker/Dockerfile": DOCKERFILE, "docker/tool": "one"}
    shown = {"shown/Dockerfile": f"{DOCKERFILE}ENV SHOWN=yes\n", "shown/tool": "two"}
    return write_tree(tmp_path / "said", {"pipeline.yaml": SERVED, **files, **shown})


def serving(folder: Path, **apps: Any) -> dict[str, Any]:
    placed = {"pool": "cpu", "cpu": "100m", "memory": "128Mi"}
    section = {
        "uses": str(folder),
        "services": {"cache": placed},
        "steps": {"say": placed},
        "apps": {name: {**placed, **app} for name, app in apps.items()},
    }
    return {**stack(folder), "pipelines": {"said": section}}


def images_of(recording: Recording) -> dict[str, str]:
    """The image of each pod that is no build's, by the name of what declares it."""
    result: dict[str, str] = {}
    for kind in (JOB, DEPLOYMENT, STATEFUL_SET):
        for resource in recording.of(kind):
            if not resource.name.startswith(("image-build-", "network-")):
                spec = at(resource.inputs, "spec", "template", "spec")
                result[resource.name] = str(mappings(mapping(spec)["containers"])[0]["image"])
    return result


def test_programs_that_are_services_and_apps_have_their_image_built_as_steps_have(served: Path) -> None:
    recording = declared(serving(served, same={}, own={}, other={}, tensorboard={}))
    images = images_of(recording)
    # The image of the pipeline is one for all, built once; that of an app is its own.
    assert images["said-say"] == images["said-cache"] == images["said-same"]
    assert "@sha256:" in images["said-own"]
    assert images["said-own"] != images["said-same"]
    assert images["said-other"] == f"debian@sha256:{'4' * 64}"
    assert "tensorflow/tensorflow" in images["said-tensorboard"]
    builds = {
        resource.name: resource for resource in recording.of(JOB) if resource.name.startswith("image-build-")
    }
    assert set(builds) == {"image-build-said", "image-build-said-own"}
    for kind, name, build in (
        (STATEFUL_SET, "said-cache", "image-build-said"),
        (JOB, "said-say", "image-build-said"),
        (DEPLOYMENT, "said-same", "image-build-said"),
        (DEPLOYMENT, "said-own", "image-build-said-own"),
    ):
        assert builds[build].urn in recording.waits_for(recording.one(kind, name)), name
    assert builds["image-build-said-own"].urn not in recording.waits_for(recording.one(DEPLOYMENT, "said-other"))


def test_nothing_is_built_for_an_app_that_the_stack_leaves_out_or_gives_an_image(served: Path) -> None:
    image = f"debian@sha256:{'5' * 64}"
    recording = declared(serving(served, own={"image": image}))
    assert images_of(recording)["said-own"] == image
    assert [resource.name for resource in recording.of(JOB) if resource.name.startswith("image-build-")] == [
        "image-build-said"
    ]


def test_an_app_s_pods_are_new_when_its_context_changed(served: Path) -> None:
    before = images_of(declared(serving(served, own={})))
    (served / "shown" / "tool").write_text("three")
    after = images_of(declared(serving(served, own={})))
    assert {name for name, image in before.items() if after[name] != image} == {"said-own"}


def test_a_pod_of_a_service_or_an_app_pulls_with_the_registry_s_login(served: Path) -> None:
    values = serving(served, own={}) | {"secrets": {"push": "[secret]", "pull": "[secret]"}}
    values["registry"] = {**values["registry"], "login": "push", "pull_login": "pull"}
    recording = declared(values)
    for kind, name in ((STATEFUL_SET, "said-cache"), (DEPLOYMENT, "said-own")):
        pulling = at(recording.one(kind, name).inputs, "spec", "template", "spec", "imagePullSecrets")
        assert pulling == [{"name": "registry-pull"}], name


@pytest.mark.parametrize(
    ("before", "after", "key", "said"),
    [
        ("shown}", "gone}", "apps.own.build", ["there is no such folder", "name the folder with the Dockerfile"]),
        ("shown}", "src}", "apps.own.build", ["there is no such file", "`dockerfile`"]),
        ("shown}", "../elsewhere}", "apps.own.build.context", ["not a path below the pipeline's folder"]),
        ("shown}", "leading}", "apps.own.build", ["a link leads out of the repository", "put the folder itself"]),
        ("port: 8080, image:", "port: 8080, build: shown, image:", "apps.other.image", ["the app has a `build`"]),
        (
            "kind: tensorboard",
            "kind: tensorboard, build: shown",
            "apps.tensorboard.build",
            ["there is no such key"],
        ),
        ("build: docker", "build: gone", "build", ["there is no such folder"]),
        ("port: 7000", "port: 7000, build: gone", "services.cache.build", ["there is no such folder"]),
        ("port: 7000", "port: 7000, build: {args: {1st: x}}", "services.cache.build.args.1st", ["not the name"]),
    ],
)
def test_a_build_that_cannot_be_is_one_error_at_its_key(
    served: Path, before: str, after: str, key: str, said: list[str]
) -> None:
    (served.parent / "elsewhere").mkdir()
    (served / "leading").symlink_to(served.parent / "elsewhere")
    (served / "pipeline.yaml").write_text(SERVED.replace(before, after, 1))
    wrong = problems(serving(served, same={}, own={}, other={}, tensorboard={}))
    result = {place.rpartition("pipeline.yaml: ")[2]: text for place, text in wrong.items()}
    assert set(result) == {key}
    for word in said:
        assert word in result[key]


def test_a_registry_is_asked_for_by_the_programs_that_want_it(served: Path) -> None:
    values = serving(served, own={})
    del values["registry"]
    said = problems(values)["slipway:registry"]
    assert "builds the image of `say`, `cache` and `own`" in said
    assert "`slipway:registry: {pool: cpu}`" in said


def test_no_registry_is_asked_for_where_the_stack_places_nothing_that_is_built(served: Path) -> None:
    other = f'port: 7000, image: "debian@sha256:{"4" * 64}"'
    text = SERVED.replace("build: docker\n", "").replace("port: 7000", other)
    (served / "pipeline.yaml").write_text(text)
    values = serving(served, other={})
    del values["registry"]
    refused(values)


def test_a_preview_says_of_each_image_whether_it_is_built(served: Path) -> None:
    before = Stack("said", declared(serving(served, own={}), preview=True).evaluation.resources)
    (served / "shown" / "tool").write_text("three")
    after = Stack("said", declared(serving(served, own={}), preview=True).evaluation.resources)
    said = list(image_remarks(after, compare(before, after)))
    assert len(said) == 2
    assert any(
        "the image of said-own will be built from" in entry and "/shown/Dockerfile" in entry for entry in said
    )
    assert any("will not be built: nothing of its context has changed" in entry for entry in said)


def test_who_else_asks_for_an_image_changes_nothing_of_it(served: Path) -> None:
    """Another pipeline of the same folder, which comes first, builds no second image and runs no step again."""
    alone = declared(serving(served))
    values = serving(served)
    values["pipelines"] = {"earlier": values["pipelines"]["said"], **values["pipelines"]}
    both = declared(values)
    assert [resource.name for resource in both.of(JOB) if resource.name.startswith("image-build-")] == [
        "image-build-earlier"
    ]
    names = [recording_.one(JOB, "said-say").inputs["metadata"]["name"] for recording_ in (alone, both)]
    assert names[0] == names[1]
    assert images_of(alone)["said-say"] == images_of(both)["said-say"]
