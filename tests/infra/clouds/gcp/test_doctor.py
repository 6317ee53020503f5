"""What Google's recorded answers say of a stack before its first `pulumi up`.

The answers have the shape of the REST references: resourcemanager, cloudbilling, serviceusage, compute and
cloudquotas, all v1, and errors as in google.aip.dev/193.
"""

import json
import sqlite3
from collections.abc import Generator, Mapping
from contextlib import closing
from dataclasses import dataclass, field, replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.parse import urlsplit

import pytest

from slipway.infra.clouds.gcp import doctor, google_api
from slipway.infra.clouds.gcp.review import REVIEW
from slipway.infra.review.contract import reviewed
from slipway.infra.review.facts import Observation, Quota, State
from slipway.infra.review.stack import Resource, Stack
from slipway.infra.schema.inputs import data_at
from slipway.infra.schema.request import InputAccess, Request
from slipway.infra.settings.loading import load
from tests.support.clouds.gcp import raw

# Whoever runs the doctor has chosen their own credentials, of whatever type.
pytestmark = pytest.mark.filterwarnings("ignore:The load_credentials_from:DeprecationWarning")

CRM = "cloudresourcemanager.googleapis.com/v1/projects/mine"
COMPUTE = "compute.googleapis.com/compute/v1/projects/mine"
SERVICES = "serviceusage.googleapis.com/v1/projects/mine/services:batchGet"
ON = ("serviceusage", "cloudresourcemanager", "compute")


def refusal(status: int, message: str, reason: str = "", service: str = "") -> tuple[int, Mapping[str, Any]]:
    info = {
        "@type": "type.googleapis.com/google.rpc.ErrorInfo",
        "reason": reason,
        "domain": "googleapis.com",
        "metadata": {"service": service},
    }
    return status, {"error": {"code": status, "message": message, "details": [info] if reason else []}}


@dataclass
class Google:
    """Answers by host and path, without the query; ``asked`` are the bodies of POSTs."""

    answers: dict[str, tuple[int, Mapping[str, Any]]] = field(default_factory=dict)
    bodies: list[Any] = field(default_factory=list)

    def healthy(self) -> None:
        """As for a project that has everything."""
        self.answers = {
            CRM: (200, {"projectId": "mine", "lifecycleState": "ACTIVE"}),
            "cloudbilling.googleapis.com/v1/projects/mine/billingInfo": (200, {"billingEnabled": True}),
            SERVICES: (
                200,
                {
                    "services": [
                        {"name": f"projects/1/services/{entry}.googleapis.com", "state": "ENABLED"} for entry in ON
                    ]
                },
            ),
            f"{CRM}:testIamPermissions": (
                200,
                {
                    "permissions": [
                        "compute.networks.create",
                        "compute.networks.delete",
                        "iam.serviceAccounts.actAs",
                        "serviceusage.services.enable",
                        "serviceusage.services.get",
                    ]
                },
            ),
            f"{COMPUTE}/zones/us-central1-a/machineTypes/n1-standard-4": (200, {"name": "n1-standard-4"}),
            f"{COMPUTE}/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4": (200, {"name": "nvidia-tesla-t4"}),
            f"{COMPUTE}/regions/us-central1": (
                200,
                {
                    "quotas": [
                        {"metric": "CPUS", "limit": 24.0, "usage": 8.0, "owner": "ORGANIZATION"},
                        {"metric": "PREEMPTIBLE_CPUS", "limit": 0.0, "usage": 0.0},
                        {"metric": "NVIDIA_T4_GPUS", "limit": 1.0, "usage": 0.0},
                    ]
                },
            ),
            "cloudquotas.googleapis.com/v1/projects/mine/locations/global/services/compute.googleapis.com/quotaInfos/"
            "GPUS-PER-GPU-FAMILY-per-project-region": (
                200,
                {
                    "dimensionsInfos": [
                        {
                            "dimensions": {"region": "us-central1", "gpu_family": "NVIDIA_T4"},
                            "details": {"value": "9"},
                        },
                        {"dimensions": {"gpu_family": "NVIDIA_H100"}, "details": {"value": "8"}},
                        {"details": {"value": "0"}},
                    ]
                },
            ),
        }


@pytest.fixture
def google(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Generator[Google]:
    """Google on this machine, as somebody with a token."""
    served = Google()
    served.healthy()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = served.answers.get(urlsplit(self.path).path[1:], refusal(404, "not found"))
            content = json.dumps(body).encode()
            self.send_response(status)
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            served.bodies.append(json.loads(self.rfile.read(int(self.headers["Content-Length"]))))
            self.do_GET()

        def log_message(self, format: str, *args: Any) -> None:
            pass

    for name in (*google_api.KEYS, google_api.DEFAULT, *doctor.PROJECT_VARIABLES):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_OAUTH_ACCESS_TOKEN", "ya29.token")
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    google_api.signed_in_by_default.cache_clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        monkeypatch.setattr(
            google_api, "ADDRESS", f"http://127.0.0.1:{server.server_address[1]}/{{host}}/{{path}}"
        )
        thread = Thread(target=server.serve_forever, args=(0.02,), daemon=True)
        thread.start()
        yield served
        server.shutdown()
    google_api.signed_in_by_default.cache_clear()


def stack(project: str = "mine", *quotas: Quota) -> Stack:
    def resource(type_: str, name: str, **properties: Any) -> Resource:
        return Resource(f"urn:{name}", type_, name, properties)

    declared = [
        resource("gcp:projects/service:Service", "compute", service="compute.googleapis.com"),
        resource("gcp:projects/service:Service", "file", service="file.googleapis.com"),
        resource("gcp:compute/network:Network", "network"),
        resource(
            "gcp:container/nodePool:NodePool",
            "train",
            location="us-central1",
            nodeLocations=["us-central1-a"],
            nodeConfig={
                "machineType": "n1-standard-4",
                "guestAccelerators": [{"type": "nvidia-tesla-t4", "count": 1}],
            },
        ),
    ]
    result = {resource_.urn: resource_ for resource_ in declared}
    return Stack("dev", result, {"gcp:project": project} if project else {}, quotas=quotas)


def quota(metric: str, needed: float) -> Quota:
    return Quota(metric, "us-central1", needed, "GPUs", "gcloud see")


def examined(subject: Stack, request: Request | None = None) -> dict[State, list[Observation]]:
    observations: dict[State, list[Observation]] = {state: [] for state in State}
    for probe in doctor.probes(subject, request):
        for observation in probe.run():
            observations[observation.state].append(observation)
    return observations


def of(given: list[Observation], subject: str) -> list[tuple[str, str]]:
    return [(observation.said, observation.mend) for observation in given if observation.subject == subject]


def test_a_project_that_has_everything_is_fine(google: Google, tmp_path: Path) -> None:
    with closing(sqlite3.connect(tmp_path / "credentials.db")) as database:
        database.execute("create table credentials (account_id text, value blob)")
        database.execute("insert into credentials values ('me@example.com', '')")
        database.commit()
    observations = examined(stack("mine", quota("NVIDIA_T4_GPUS", 1)))
    wrong = [observation for observation in observations[State.WRONG] if observation.subject != doctor.AUTH_PLUGIN]
    assert (wrong, observations[State.UNKNOWN]) == ([], [])
    assert of(observations[State.FINE], "gcloud sign-in") == [("has me@example.com", "")]
    assert of(observations[State.FINE], doctor.APIS) == [
        ("3 of 4 are on; `pulumi up` switches on file.googleapis.com", "")
    ]
    assert "iam.serviceAccounts.actAs" in google.bodies[0]["permissions"]


def test_each_thing_that_is_missing_comes_with_its_command(google: Google) -> None:
    google.answers["cloudbilling.googleapis.com/v1/projects/mine/billingInfo"] = (200, {"billingEnabled": False})
    google.answers[f"{CRM}:testIamPermissions"] = (200, {})
    del google.answers[f"{COMPUTE}/zones/us-central1-a/acceleratorTypes/nvidia-tesla-t4"]
    observations = examined(stack("mine", quota("NVIDIA_T4_GPUS", 2)))[State.WRONG]
    assert of(observations, "billing")[0][1] == "gcloud billing projects link mine --billing-account=<account>"
    assert "--role=roles/compute.networkAdmin" in " ".join(mend for _, mend in of(observations, doctor.ROLES))
    assert of(observations, doctor.OFFERS) == [
        (
            "us-central1-a does not offer nvidia-tesla-t4",
            "gcloud compute accelerator-types list --filter='name=nvidia-tesla-t4'",
        )
    ]
    ((said, mend),) = of(observations, "quotas")
    assert said == "NVIDIA_T4_GPUS (us-central1) is 1 GPUs; the stack needs up to 2"
    assert mend == "open https://console.cloud.google.com/iam-admin/quotas?project=mine"
    assert of(observations, "gcloud sign-in")[0][1] == "gcloud auth login"


@pytest.mark.parametrize(
    ("metric", "needed", "state"),
    [
        # A project without a quota for Spot vCPUs counts them with the others, of which 16 are left.
        ("PREEMPTIBLE_CPUS", 16, State.FINE),
        ("PREEMPTIBLE_CPUS", 17, State.WRONG),
        ("GPUS-PER-GPU-FAMILY-per-project-region, NVIDIA_H100", 8, State.FINE),
        ("GPUS-PER-GPU-FAMILY-per-project-region, NVIDIA_H100", 9, State.WRONG),
        ("GPUS-PER-GPU-FAMILY-per-project-region, NVIDIA_B200", 1, State.WRONG),
        ("NO_SUCH_METRIC", 1, State.UNKNOWN),
    ],
)
def test_what_is_left_of_a_quota_decides(google: Google, metric: str, needed: float, state: State) -> None:
    observations = examined(stack("mine", quota(metric, needed)))
    assert [entry for entry, told in observations.items() if of(told, "quotas")] == [state]


def test_what_there_is_for_a_pool_is_asked_by_quota_and_zone(google: Google) -> None:
    google.answers[f"{COMPUTE}/zones/us-central1-b/machineTypes/n1-standard-4"] = (200, {"name": "n1-standard-4"})
    declared = reviewed(stack(), [REVIEW])
    (pool,) = declared.pools
    supply = doctor.supply(declared, replace(pool, zones=["us-central1-a", "us-central1-b"]))
    assert [(entry.quota.metric, entry.limit, entry.used) for entry in supply.standings] == [
        ("CPUS", 24, 8),
        ("NVIDIA_T4_GPUS", 1, 0),
    ]
    assert supply.offering == ["us-central1-a"]
    assert doctor.supply(replace(declared, configuration={}), pool).unknown


def test_an_api_that_is_off_is_told_and_what_needs_it_is_not_called_fine(google: Google) -> None:
    off = refusal(403, "Compute Engine API has not been used", "SERVICE_DISABLED", "compute.googleapis.com")
    for path in list(google.answers):
        if path.startswith("compute"):
            google.answers[path] = off
    observations = examined(stack("mine", quota("NVIDIA_T4_GPUS", 1)))
    on = "gcloud services enable compute.googleapis.com --project mine"
    assert [mend for _, mend in of(observations[State.UNKNOWN], "quotas")] == [on]
    assert [mend for _, mend in of(observations[State.UNKNOWN], doctor.OFFERS)] == [on]
    assert of(observations[State.FINE], "quotas") == []

    google.answers[CRM] = refusal(403, "API has not been used", "SERVICE_DISABLED", "cloudresourcemanager")
    ((_, mend),) = of(examined(stack())[State.WRONG], doctor.APIS)
    assert mend == (
        "gcloud services enable serviceusage.googleapis.com cloudresourcemanager.googleapis.com --project mine"
    )


def test_a_project_that_nobody_may_see_is_wrong_and_nothing_else_is_asked(google: Google) -> None:
    google.answers[CRM] = refusal(403, "The caller does not have permission")
    observations = examined(stack())
    assert of(observations[State.WRONG], doctor.PROJECT)[0][1] == "gcloud projects describe mine"
    assert google.bodies == []
    assert of(examined(stack(""))[State.WRONG], "gcp:project")[0][1].startswith("pulumi config set gcp:project")


def test_without_credentials_the_rest_is_unknown(
    google: Google, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    monkeypatch.setattr(google_api, "METADATA", "http://127.0.0.1:9")
    observations = examined(stack())
    assert of(observations[State.WRONG], doctor.SIGN_IN)[0][1] == "gcloud auth application-default login"
    assert [observation.subject for observation in observations[State.UNKNOWN]] == [
        "project, billing, APIs, roles, quotas and machine types"
    ]
    file = tmp_path / "application_default_credentials.json"
    file.write_text('{"type": "something_else"}', encoding="utf-8")
    google_api.signed_in_by_default.cache_clear()
    ((said, _),) = of(examined(stack())[State.WRONG], doctor.SIGN_IN)
    assert str(file) in said


def test_a_login_that_has_ended_is_told_apart_from_a_network_that_is_away(
    google: Google, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.delenv("GOOGLE_OAUTH_ACCESS_TOKEN")
    key = {
        "type": "external_account",
        "audience": "//iam.googleapis.com/projects/1/locations/global/workloadIdentityPools/p/providers/q",
        "subject_token_type": "urn:ietf:params:oauth:token-type:jwt",
        "token_url": "https://sts.googleapis.com/v1/token",
        "credential_source": {"file": str(tmp_path / "gone")},
    }
    monkeypatch.setenv("GOOGLE_CREDENTIALS", json.dumps(key))
    ((said, mend),) = of(examined(stack())[State.WRONG], doctor.SIGN_IN)
    assert str(tmp_path / "gone") in said
    assert mend == "gcloud auth application-default login"

    (tmp_path / "gone").write_text("token", encoding="utf-8")
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    google_api.signed_in_by_default.cache_clear()
    observations = examined(stack())
    assert of(observations[State.WRONG], doctor.SIGN_IN) == []
    assert "cannot be reached" in of(observations[State.UNKNOWN], doctor.SIGN_IN)[0][0]


STORED = "storage.googleapis.com/storage/v1/b/team-data"


def examined_bucket(google: Google, folder: str = "vision", **bucket: Any) -> dict[State, list[Observation]]:
    """What is said of the store's bucket; ``bucket`` are keys of Google's answer that differ from a good one."""
    google.answers[STORED] = (
        200,
        {
            "name": "team-data",
            "location": "US-CENTRAL1",
            "iamConfiguration": {
                "uniformBucketLevelAccess": {"enabled": True},
                "publicAccessPrevention": "enforced",
            },
            **bucket,
        },
    )
    google.answers.setdefault(
        f"{STORED}/iam/testPermissions", (200, {"permissions": [*chain(*google_api.NEEDED.values())]})
    )
    store = {"kind": "existing-gcs", "bucket": "team-data", "folder": folder}
    request = load(raw(lambda values: values.update(store=store))).request
    subject = stack()
    cluster = Resource("urn:dev", "gcp:container/cluster:Cluster", "dev", {"location": "us-central1"})
    with_cluster = Stack("dev", {**subject.resources, cluster.urn: cluster}, subject.configuration)
    return {
        state: [entry for entry in observations if entry.subject == google_api.BUCKET]
        for state, observations in examined(with_cluster, request).items()
    }


def test_a_bucket_that_is_there_and_closed_is_fine(google: Google) -> None:
    rule = {"action": {"type": "Delete"}, "condition": {"age": 7, "matchesPrefix": ["vision2/", "tmp/"]}}
    old = {"action": {"type": "Delete"}, "condition": {"daysSinceNoncurrentTime": 30}}
    observations = examined_bucket(google, lifecycle={"rule": [rule, old]})
    assert [len(observations[state]) for state in (State.FINE, State.WRONG, State.UNKNOWN)] == [1, 0, 0]


def test_a_bucket_that_nobody_may_see_is_wrong(google: Google) -> None:
    examined_bucket(google)
    google.answers[STORED] = refusal(403, "does not have storage.buckets.get access")
    store = {"kind": "existing-gcs", "bucket": "team-data", "folder": "vision"}
    request = load(raw(lambda values: values.update(store=store))).request
    ((said, mend),) = of(examined(stack(), request)[State.WRONG], google_api.BUCKET)
    assert "is not there, or you may not see it" in said
    assert mend == "gcloud storage buckets describe gs://team-data"


@pytest.mark.parametrize(
    ("bucket", "words"),
    [
        ({"iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}, "is public: allUsers"),
        ({"iamConfiguration": {"publicAccessPrevention": "enforced"}}, "no uniform access"),
        ({"location": "EUROPE-WEST4"}, "is in europe-west4"),
        ({"retentionPolicy": {"retentionPeriod": "86400"}}, "retention policy"),
        ({"billing": {"requesterPays": True}}, "requester pay"),
        ({"lifecycle": {"rule": [{"action": {"type": "Delete"}, "condition": {"age": 30}}]}}, "age: 30"),
    ],
)
def test_what_a_bucket_would_do_to_results_is_said(google: Google, bucket: dict[str, Any], words: str) -> None:
    google.answers[f"{STORED}/iam"] = (
        200,
        {"bindings": [{"role": "roles/storage.objectViewer", "members": ["user:me@example.com", "allUsers"]}]},
    )
    (observation,) = examined_bucket(google, **bucket)[State.WRONG]
    assert words in observation.said


def test_who_may_not_grant_on_the_bucket_is_told_what_its_owner_has_to_do(google: Google) -> None:
    google.answers[f"{STORED}/iam/testPermissions"] = (200, {})
    granting, reading = examined_bucket(google)[State.WRONG]
    assert "storage.buckets.setIamPolicy" in granting.said
    assert granting.mend.startswith("gcloud storage buckets add-iam-policy-binding gs://team-data")
    assert reading.mend.endswith("--role=roles/storage.objectViewer")


PHOTOS = "storage.googleapis.com/storage/v1/b/photos"


def examined_inputs(google: Google, *urls: str, grants: bool = True, **bucket: Any) -> list[Observation]:
    """What is said of the bucket of inputs; ``bucket`` are keys of Google's answer that differ from a good one."""
    good = {"location": "US-CENTRAL1", "iamConfiguration": {"uniformBucketLevelAccess": {"enabled": True}}}
    google.answers.setdefault(PHOTOS, (200, {"name": "photos", **good, **bucket}))
    permissions = {"permissions": [*chain(*google_api.GRANTING.values())]}
    google.answers.setdefault(f"{PHOTOS}/iam/testPermissions", (200, permissions))
    inputs = [InputAccess(data_at("images", url, grants=grants), ["cpu"], ()) for url in urls]
    cluster = Resource("urn:dev", "gcp:container/cluster:Cluster", "dev", {"location": "us-central1"})
    subject = Stack("dev", {cluster.urn: cluster}, stack().configuration)
    observations = examined(subject, replace(load(raw()).request, inputs=inputs))
    return [entry for state in State for entry in observations[state] if entry.subject == google_api.INPUTS]


def test_a_bucket_that_takes_the_grants_of_inputs_is_fine_and_told_once(google: Google) -> None:
    (observation,) = examined_inputs(google, "gs://photos/train", "gs://photos/labels")
    assert observation.state == State.FINE


@pytest.mark.parametrize(
    ("bucket", "words"),
    [
        ({"iamConfiguration": {}}, "no uniform access"),
        ({"location": "EUROPE-WEST4"}, "is in europe-west4"),
        ({"billing": {"requesterPays": True}}, "requester pay"),
    ],
)
def test_what_keeps_pods_from_a_bucket_of_inputs_is_said(
    google: Google, bucket: dict[str, Any], words: str
) -> None:
    (observation,) = examined_inputs(google, "gs://photos/train", **bucket)
    assert observation.state == State.WRONG
    assert words in observation.said


def test_who_may_not_grant_on_a_bucket_of_inputs_is_told_how_to_do_without(google: Google) -> None:
    google.answers[f"{PHOTOS}/iam/testPermissions"] = (200, {})
    (observation,) = examined_inputs(google, "gs://photos/train")
    assert "storage.buckets.setIamPolicy" in observation.said
    assert "grants: false" in observation.advice


def test_a_bucket_whose_owner_grants_is_not_asked_about(google: Google) -> None:
    google.answers[PHOTOS] = refusal(403, "does not have storage.buckets.get access")
    assert examined_inputs(google, "gs://photos/train", grants=False) == []
    (observation,) = examined_inputs(google, "gs://photos/train")
    assert observation.state == State.WRONG
