"""What a stack on Google Cloud encrypts with its own keys, and what it logs, where its settings ask for it."""

from typing import Any

import pytest

from slipway.infra.schema.problems import SettingsError
from slipway.infra.settings.loading import load
from slipway.infra.settings.model import Settings
from tests.support.clouds.gcp import raw

MINE = "projects/keys/locations/us-central1/keyRings/ring/cryptoKeys/mine"


def hardened(secrets_key: str | None = "own", kms_key: str | None = "own", **top: Any) -> Settings:
    def change(values: dict[str, Any]) -> None:
        values.update(top)
        cluster = values["clusters"]["dev"]
        cluster["control_plane"] = {"secrets_key": secrets_key}
        cluster["flow_logs"] = True
        values["store"].update(kms_key=kms_key, access_logs=True)

    return load(raw(change))


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
