"""What a stack on Google Cloud encrypts with its own keys, and what it logs, where its settings ask for it."""

from typing import Any

import pytest

from slipway.infra.clouds.gcp.emulator import Emulator as GcpEmulator
from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import BUCKET, CLUSTER, declare, raw
from tests.support.recording import Recording

RING = "gcp:kms/keyRing:KeyRing"
KEY = "gcp:kms/cryptoKey:CryptoKey"
GRANT = "gcp:kms/cryptoKeyIAMMember:CryptoKeyIAMMember"
AUDIT = "gcp:projects/iAMAuditConfig:IAMAuditConfig"
SUBNET = "gcp:compute/subnetwork:Subnetwork"
MINE = "projects/keys/locations/us-central1/keyRings/ring/cryptoKeys/mine"


def hardened(secrets_key: str | None = "own", kms_key: str | None = "own", **top: Any) -> Settings:
    def change(values: dict[str, Any]) -> None:
        values.update(top)
        cluster = values["clusters"]["dev"]
        cluster["control_plane"] = {"secrets_key": secrets_key}
        cluster["flow_logs"] = True
        values["store"].update(kms_key=kms_key, access_logs=True)

    return load(raw(change))


def key_of(recording: Recording, name: str) -> str:
    made = GcpEmulator(hardened().request).outputs(KEY, name, recording.one(KEY, name).inputs) or {}
    return str(made["id"])


def test_without_a_word_nothing_is_logged_or_encrypted_with_a_key() -> None:
    recording = declare(load(raw()))
    for token in (RING, KEY, GRANT, AUDIT):
        assert recording.of(token) == []
    assert "databaseEncryption" not in recording.one(CLUSTER).inputs
    assert "encryption" not in recording.one(BUCKET).inputs
    assert "logConfig" not in recording.one(SUBNET).inputs
    assert "cloudkms.googleapis.com" not in {
        resource.inputs["service"] for resource in recording.of("gcp:projects/service:Service")
    }


def test_secrets_and_objects_are_encrypted_with_keys_that_are_rotated() -> None:
    recording = declare(hardened())
    assert recording.one(CLUSTER).inputs["databaseEncryption"] == {
        "state": "ENCRYPTED",
        "keyName": key_of(recording, "secrets-dev"),
    }
    assert recording.one(BUCKET).inputs["encryption"] == {"defaultKmsKeyName": key_of(recording, "store")}
    assert {resource.inputs["rotationPeriod"] for resource in recording.of(KEY)} == {"7776000s"}
    assert recording.one(RING).inputs["location"] == "us-central1"


def test_keys_can_be_used_before_anything_is_encrypted_with_them_and_only_by_who_encrypts() -> None:
    recording = declare(hardened())
    for name, user, agent in (
        ("secrets-dev", CLUSTER, "container-engine-robot"),
        ("store", BUCKET, "gs-project-accounts"),
    ):
        grant = recording.one(GRANT, name)
        assert grant.inputs["cryptoKeyId"] == key_of(recording, name)
        assert grant.inputs["member"].endswith(f"@{agent}.iam.gserviceaccount.com")
        assert grant.urn in recording.waits_for(recording.one(user))
    api = next(
        resource
        for resource in recording.of("gcp:projects/service:Service")
        if resource.inputs["service"] == "cloudkms.googleapis.com"
    )
    assert api.urn in recording.waits_for(recording.one(RING))


@pytest.mark.parametrize("protect", [False, True])
def test_a_destroy_destroys_no_key_and_can_be_followed_by_another_up(protect: bool) -> None:
    recording = declare(hardened(protect=protect))
    kept = [*recording.of(RING), *recording.of(KEY)]
    assert len(kept) == 3
    for entry in kept:
        assert entry.retain_on_delete
        assert entry.protect is protect
    # Their names are never free again: Pulumi adds a random end to one that is not given.
    assert all("name" not in resource.inputs for resource in kept)
    assert all(resource.retain_on_delete for resource in recording.of(GRANT))


def test_each_region_has_a_ring_of_its_own() -> None:
    settings = hardened()
    store = settings.store.model_copy(update={"location": "us-east1"})
    recording = declare(settings.model_copy(update={"store": store}))
    assert sorted(resource.inputs["location"] for resource in recording.of(RING)) == ["us-central1", "us-east1"]


@pytest.mark.parametrize(
    ("keys", "key", "argument"),
    [
        ({"secrets_key": MINE}, "slipway:clusters.dev.control_plane.secrets_key", "`database_encryption`"),
        ({"kms_key": MINE}, "slipway:store.kms_key", "`encryption`"),
    ],
    ids=["cluster", "bucket"],
)
def test_a_key_of_the_users_is_set_by_a_transformation(keys: dict[str, str], key: str, argument: str) -> None:
    with pytest.raises(SettingsError) as caught:
        hardened(**keys)
    (problem,) = caught.value.problems
    assert problem.key == key
    assert argument in problem.fix


def test_connections_and_accesses_are_logged() -> None:
    recording = declare(hardened())
    assert recording.one(SUBNET).inputs["logConfig"]["flowSampling"] == 0.5
    audit = recording.one(AUDIT)
    assert audit.inputs["service"] == "storage.googleapis.com"
    assert {audit_log_config["logType"] for audit_log_config in audit.inputs["auditLogConfigs"]} == {
        "DATA_READ",
        "DATA_WRITE",
    }
    # The whole project has but one: whoever else reads these logs would lose them.
    assert audit.retain_on_delete
